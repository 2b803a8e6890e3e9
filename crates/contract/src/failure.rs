//! Why a program failed: its failure file, else the end of its stderr.

use std::collections::VecDeque;

/// Longest text of a failure that is kept, in characters.
pub const MAX_CHARACTERS: usize = 1024;

/// The first [`MAX_CHARACTERS`] of a failure file; `None` if it says nothing. Giving the first 4
/// KiB of the file is enough.
pub fn failure_text(file: &[u8]) -> Option<String> {
    // A character has at most four bytes; what is cut in the middle lies behind the last character
    // that counts.
    let text = String::from_utf8_lossy(&file[..file.len().min(4 * MAX_CHARACTERS)]);
    let text: String = text.trim().chars().take(MAX_CHARACTERS).collect();
    (!text.is_empty()).then_some(text)
}

/// Begins a traceback of Python.
pub(crate) const TRACEBACK: &str = "Traceback (most recent call last)";

/// In the line in which torchrun says that a process has failed; behind it comes a traceback of its
/// own, twice as long as a [`Tail`], that says no more.
const OF_TORCHRUN: [&str; 3] = ["failed (exitcode: ", ") local_rank: ", " of binary: "];

/// The last [`MAX_CHARACTERS`] of a stream of lines, in bounded memory. Where a process of
/// torchrun's has raised, it is what was said until torchrun speaks of it.
#[derive(Debug, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    characters: usize,
    /// Whether there was a traceback since torchrun last spoke of a failure.
    raised: bool,
    /// The text when it did.
    until_torchrun: Option<String>,
}

impl Tail {
    /// Adds a line without its end.
    pub fn push(&mut self, line: &[u8]) {
        let keep = &line[line.len().saturating_sub(4 * MAX_CHARACTERS)..];
        let line = last_characters(&String::from_utf8_lossy(keep), MAX_CHARACTERS).to_owned();
        if OF_TORCHRUN.iter().all(|words| line.contains(words)) {
            self.until_torchrun = std::mem::take(&mut self.raised).then(|| self.last_lines());
        }
        self.raised |= line.contains(TRACEBACK);
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
        self.until_torchrun.clone().unwrap_or_else(|| self.last_lines())
    }

    fn last_lines(&self) -> String {
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
        assert!(
            (MAX_CHARACTERS - 20..=MAX_CHARACTERS).contains(&text.chars().count()) && text.starts_with("line "),
            "{text}"
        );
        assert!(text.ends_with("line 9998 \u{fc}\nline 9999 \u{fc}"), "{text}");
        tail.push(&[b'x'; 1 << 20]);
        assert_eq!(tail.text(), "x".repeat(MAX_CHARACTERS));
        let mut short = Tail::default();
        short.push(b"Traceback");
        short.push(b"\xff");
        assert_eq!(short.text(), "Traceback\n\u{fffd}");
    }

    /// torchrun's words are those of torch 2.15 and of torch 2.0, shortened.
    #[test]
    fn a_process_of_torchruns_that_raised_has_the_last_word() {
        let raised = [
            "Traceback (most recent call last):",
            "  File \"train.py\", line 4, in <module>",
            "ValueError: no column 'price'",
        ];
        let failed = "E1122 17:41:33.248000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: \
                      1) local_rank: 0 (pid: 7) of binary: /bin/python";
        let earlier = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 7) \
                       of binary: /bin/python";
        let own = [
            "Traceback (most recent call last):",
            "  File \"/bin/torchrun\", line 8, in <module>",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ];
        let report = "  exitcode  : 1 (pid: 7) ".repeat(100);
        let text_of = |parts: &[&[&str]]| {
            let mut tail = Tail::default();
            parts.iter().copied().flatten().for_each(|line| tail.push(line.as_bytes()));
            tail.text()
        };
        for spoken in [failed, earlier] {
            assert_eq!(
                text_of(&[&["a warning"], &raised, &[spoken], &own, &[&report]]),
                format!("a warning\n{}", raised.join("\n"))
            );
        }
        // One that was killed says nothing itself.
        let killed = text_of(&[&["a warning", failed], &own]);
        assert_eq!(killed, format!("a warning\n{failed}\n{}", own.join("\n").trim_end()));
        // Of processes that were started again, the last failure counts.
        let again = text_of(&[&["Traceback (most recent call last):", "OSError", failed], &raised, &[failed], &own]);
        assert!(again.ends_with("ValueError: no column 'price'"), "{again}");
    }
}
