//! Nothing is left for later: no markers of unfinished work anywhere.

use super::Source;

/// Markers, in halves so that this file does not hold them.
const FORBIDDEN: [(&str, &str); 5] =
    [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("to", "do!("), ("unimple", "mented!(")];

/// Complaints with file and line.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let words = FORBIDDEN.map(|(a, b)| format!("{a}{b}"));
    let mut problems = Vec::new();
    for Source { path, text } in sources {
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| holds(line, word)) {
                problems.push(format!("{path}:{}: {word}: finish it, or file an issue", index + 1));
            }
        }
    }
    problems
}

/// Whether the word stands in the line by itself, not as a part of a longer one.
fn holds(line: &str, word: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !letter(before) && (word.ends_with('(') || !letter(after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found() {
        for (line, expected) in [
            (concat!("// TO", "DO: later"), 1),
            (concat!("to", "do!(\"later\")"), 1),
            (concat!("# FIX", "ME"), 1),
            ("mktemp -d /tmp/shoal.XXXXXX", 0),
            (concat!("const TO", "DOS: u32 = 1;"), 0),
            ("nothing is left to do", 0),
        ] {
            let problems = check(&[Source { path: "a.rs".into(), text: line.into() }]);
            assert_eq!(problems.len(), expected, "{line}");
        }
    }
}
