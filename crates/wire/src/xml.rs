//! The little XML that query services answer.

use serde_json::Value;

use crate::timestamp;

/// A text as XML character data.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A parser would read a bare carriage return as a line feed.
            '\r' => escaped.push_str("&#13;"),
            // XML 1.0 has no way to write other control characters.
            letter if letter < ' ' && !matches!(letter, '\t' | '\n') => escaped.push('\u{FFFD}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// `<name>text</name>`, escaped.
pub(crate) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// A reply's member and all below it, as the query protocol writes what JSON writes otherwise.
/// Times are the numbers in `Timestamps` and in members whose names end in `Timestamp`; the maps of
/// all replies are `ExtendedStatistics` and `Attributes`, other objects are structures.
pub(crate) fn tree(name: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(entries) if matches!(name, "ExtendedStatistics" | "Attributes") => {
            let entry = |(key, value): (&String, &Value)| {
                format!("<entry>{}{}</entry>", element("key", key), tree("value", value))
            };
            format!("<{name}>{}</{name}>", entries.iter().map(entry).collect::<String>())
        }
        Value::Object(members) => {
            format!("<{name}>{}</{name}>", members.iter().map(|(name, value)| tree(name, value)).collect::<String>())
        }
        Value::Array(items) => {
            let time = |item: &Value| if name == "Timestamps" { instant(item) } else { None };
            let member = |item| time(item).map_or_else(|| tree("member", item), |time| element("member", &time));
            format!("<{name}>{}</{name}>", items.iter().map(member).collect::<String>())
        }
        Value::String(text) => element(name, text),
        Value::Number(_) if name.ends_with("Timestamp") => element(name, &instant(value).unwrap_or_default()),
        Value::Number(_) | Value::Bool(_) => element(name, &value.to_string()),
    }
}

fn instant(value: &Value) -> Option<String> {
    value.as_f64().map(|seconds| timestamp::iso8601(timestamp::from_seconds(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn character_data_is_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(escape(text), expected, "{text:?}");
        check("plain é \u{1F686}", "plain é \u{1F686}");
        check("<a b=\"c\">&'</a>", "&lt;a b=&quot;c&quot;&gt;&amp;&#39;&lt;/a&gt;");
        check("a\tb\nc\rd", "a\tb\nc&#13;d");
        check("\u{0}\u{1b}", "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn replies_are_trees() {
        let body = json!({"Text": "<", "List": [{"Value": 0.5}, {"Yes": true}], "Empty": [], "Timestamp": 0, "Timestamps": [60.0], "None": null});
        let list = "<List><member><Value>0.5</Value></member><member><Yes>true</Yes></member></List>";
        let times =
            "<Timestamp>1970-01-01T00:00:00Z</Timestamp><Timestamps><member>1970-01-01T00:01:00Z</member></Timestamps>";
        assert_eq!(tree("Result", &body), format!("<Result><Text>&lt;</Text>{list}<Empty></Empty>{times}</Result>"));
    }
}
