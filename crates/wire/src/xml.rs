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
            // XML 1.0 has no way to write other control characters.
            letter if letter < ' ' && !matches!(letter, '\t' | '\n' | '\r') => escaped.push('\u{FFFD}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// `<name>text</name>`, escaped.
pub(crate) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}
