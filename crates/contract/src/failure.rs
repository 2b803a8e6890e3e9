//! Why a program failed: its failure file, else the end of its stderr.

use std::collections::VecDeque;

/// Longest text of a failure that is kept, in characters.
pub const MAX_CHARACTERS: usize = 1024;

/// The first [`MAX_CHARACTERS`] of a failure file; `None` if it says nothing. Giving the first 4 KiB of the file is enough.
pub fn failure_text(file: &[u8]) -> Option<String> {
    // A character has at most four bytes; what is cut in the middle lies behind the last character that counts.
    let text = String::from_utf8_lossy(&file[..file.len().min(4 * MAX_CHARACTERS)]);
    let text: String = text.trim().chars().take(MAX_CHARACTERS).collect();
    (!text.is_empty()).then_some(text)
}

/// The last [`MAX_CHARACTERS`] of a stream of lines, in bounded memory.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    characters: usize,
}

impl Tail {
    /// Adds a line without its end.
    pub fn push(&mut self, line: &[u8]) {
        let keep = &line[line.len().saturating_sub(4 * MAX_CHARACTERS)..];
        let line = last_characters(&String::from_utf8_lossy(keep), MAX_CHARACTERS).to_owned();
        self.characters += line.chars().count() + 1;
        self.lines.push_back(line);
        while let Some(first) = self.lines.front().map(|line| line.chars().count() + 1)
            && self.characters - first >= MAX_CHARACTERS
        {
            self.characters -= first;
            self.lines.pop_front();
        }
    }

    /// The text, lines joined by newlines: whole lines, unless the last one alone is too long.
    pub fn text(&self) -> String {
        let joined = Vec::from_iter(self.lines.iter().map(String::as_str)).join("\n");
        let text = joined.trim_end();
        let kept = last_characters(text, MAX_CHARACTERS);
        let whole = if kept.len() < text.len() { kept.split_once('\n').map(|(_, lines)| lines) } else { None };
        whole.unwrap_or(kept).to_owned()
    }
}

fn last_characters(text: &str, count: usize) -> &str {
    match text.char_indices().rev().nth(count.saturating_sub(1)) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_file_gives_its_first_characters() {
        let long = "\u{fc}".repeat(5000);
        let cases: [(&[u8], Option<&str>); 5] = [
            (b"", None),
            (b" \n", None),
            (b"it broke\n", Some("it broke")),
            (b"\xff!", Some("\u{fffd}!")),
            (long.as_bytes(), Some(&long[..2 * MAX_CHARACTERS])),
        ];
        for (file, expected) in cases {
            assert_eq!(failure_text(file).as_deref(), expected);
        }
    }

    #[test]
    fn a_tail_keeps_the_end_and_no_more() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), "");
        for number in 0..10_000 {
            tail.push(format!("line {number} \u{fc}").as_bytes());
            assert!(tail.characters <= 2 * MAX_CHARACTERS, "{}", tail.characters);
        }
        let text = tail.text();
        assert!((MAX_CHARACTERS - 20..=MAX_CHARACTERS).contains(&text.chars().count()) && text.starts_with("line "), "{text}");
        assert!(text.ends_with("line 9998 \u{fc}\nline 9999 \u{fc}"), "{text}");
        tail.push(&[b'x'; 1 << 20]);
        assert_eq!(tail.text(), "x".repeat(MAX_CHARACTERS));
        let mut short = Tail::default();
        short.push(b"Traceback");
        short.push(b"\xff");
        assert_eq!(short.text(), "Traceback\n\u{fffd}");
    }
}
