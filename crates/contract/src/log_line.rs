//! Lines as logs show them.

/// A line as the log stream shows it and as metric definitions see it: UTF-8 with replacement
/// characters, and every control character as `#` and three octal digits, so that a tab is the
/// `#011` on which documented metric regexes rely and a terminal that prints a log executes
/// nothing. `line` has no newline; a carriage return before it is dropped, one inside (progress
/// bars) is `#015`.
pub fn escape_line(line: &[u8]) -> String {
    let text = readable(line);
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if character.is_control() {
            escaped.push_str(&format!("#{:03o}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// The line as text, unescaped.
pub(crate) fn readable(line: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_octal() {
        let cases: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"plain #011 \xc3\xbc", "plain #011 \u{fc}"),
            (b"[0]\ttrain-auc:0.9", "[0]#011train-auc:0.9"),
            (b"windows\r", "windows"),
            (b"10%\r20%", "10%#01520%"),
            (b"\x1b[31mred\0", "#033[31mred#000"),
            (b"bad \xff\xfe", "bad \u{fffd}\u{fffd}"),
            (b"\xc2\x9b2J\x7f", "#2332J#177"),
        ];
        for (line, expected) in cases {
            assert_eq!(escape_line(line), expected);
        }
    }
}
