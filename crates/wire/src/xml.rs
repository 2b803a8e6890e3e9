//! The little XML that query services answer.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_data_is_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(escape(text), expected, "{text:?}");
        check("plain é \u{1F686}", "plain é \u{1F686}");
        check("<a b=\"c\">&'</a>", "&lt;a b=&quot;c&quot;&gt;&amp;&#39;&lt;/a&gt;");
        check("a\tb\nc\rd", "a\tb\nc&#13;d");
        check("\u{0}\u{1b}", "\u{FFFD}\u{FFFD}");
    }
}
