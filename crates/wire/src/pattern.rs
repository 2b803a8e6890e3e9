//! Patterns of the constraint table: Java's regular expressions, matched against the whole value.

use std::sync::OnceLock;

use fancy_regex::{Regex, RegexBuilder};

/// Steps that a pattern with look-around may take on one value; plain patterns take linear time
/// anyway.
const MOST_STEPS: usize = 1_000_000;

/// A pattern of the table, compiled when it is first needed.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: &'static str,
    compiled: OnceLock<Regex>,
}

impl Pattern {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, compiled: OnceLock::new() }
    }

    /// As the service model writes it, for messages.
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// Whether the whole text matches. A text on which the step limit is reached does not.
    pub(crate) fn matches(&self, text: &str) -> bool {
        // Patterns that allow everything but line ends are by far the most common ones.
        match self.source {
            ".*" => !text.contains('\n'),
            ".+" => !text.is_empty() && !text.contains('\n'),
            source => self
                .compiled
                .get_or_init(|| compile(source).expect("a test compiles every pattern of the table"))
                .is_match(text)
                .unwrap_or(false),
        }
    }
}

/// Java's dialect in Rust's: classes are ASCII unless they are written as `\p{..}`.
pub(crate) fn compile(source: &str) -> Result<Regex, fancy_regex::Error> {
    let translated = source
        .replace(r"\p{Alnum}", "[a-zA-Z0-9]")
        .replace(r"\w", "[a-zA-Z0-9_]")
        .replace(r"\d", "[0-9]")
        // Java reads four digits here; the model means all beyond the first plane.
        .replace(r"\u10000-\u10FFFF", r"\u{10000}-\u{10FFFF}")
        // A hyphen after a range stands for itself in Java.
        .replace(r"0-9-\.", r"0-9\-\.");
    RegexBuilder::new(&format!(r"\A(?:{translated})\z")).backtrack_limit(MOST_STEPS).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_patterns_match_the_whole_text() {
        let check = |source: &'static str, text: &str, expected: bool| {
            assert_eq!(Pattern::new(source).matches(text), expected, "{source:?} on {text:?}");
        };
        check("[a-z]+", "abc", true);
        check("[a-z]+", "abc1", false);
        check("[a-z]+", "1abc", false);
        check("a|b", "ab", false);
        check("[a-z]+", "abc\n", false);
        check(".*", "", true);
        check(".*", "a\nb", false);
        check(".+", "", false);
        check(r"[\S\s]*", "a\nb", true);
        check(r"[\p{Alnum}\-]+", "a-1", true);
        check(r"[\p{Alnum}\-]+", "é", false);
        check(r"\w+", "é", false);
        check(r"\d", "٣", false);
        check(r"[\p{L}\p{Z}]*", "é ü", true);
        check(r"[\u0020-\u007E\u10000-\u10FFFF]+", "a🚆", true);
        check(r"[\u0020-\u007E\u10000-\u10FFFF]+", "é", false);
        check(r"[a-z0-9-\.]{1,63}", "a-b.c", true);
        check(r"([a-z-]){0,62}(?<!-)", "a-b", true);
        check(r"([a-z-]){0,62}(?<!-)", "a-", false);
        check(r"(?!\s*$).+", "  ", false);
    }

    #[test]
    fn steps_are_limited() {
        let evil = Pattern::new("(?=(a+)+$)(a|aa)+b");
        assert!(!evil.matches(&"a".repeat(5000)));
    }
}
