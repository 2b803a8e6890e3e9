//! Filter patterns of CloudWatch Logs, as far as they are about words: `term`, `"a phrase"`,
//! `?either ?or`, `-without`.
//!
//! Source: "Filter pattern syntax for metric filters, subscription filters, filter log events, and
//! Live Tail" of the CloudWatch Logs User Guide. A term is found wherever its letters stand, case
//! mattering. Patterns over JSON, over columns and regular expressions are refused.

use crate::Error;

/// Which lines are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterPattern {
    required: Vec<String>,
    excluded: Vec<String>,
    /// One of these, if there are any.
    alternatives: Vec<String>,
}

impl FilterPattern {
    /// Reads a pattern; an empty one wants every line.
    ///
    /// # Errors
    /// A pattern of a kind that is not served, or a term that has to be quoted.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut rest = text.trim();
        match rest.chars().next() {
            Some('{') => return Err(unserved("over JSON ({ $.field = value })")),
            Some('[') => return Err(unserved("over columns ([field, ...])")),
            _ => {}
        }
        let mut pattern = Self::default();
        while !rest.is_empty() {
            let (sign, after) = match rest.as_bytes()[0] {
                sign @ (b'-' | b'?') => (Some(sign), &rest[1..]),
                _ => (None, rest),
            };
            let (term, after) = term(after)?;
            match sign {
                None => pattern.required.push(term),
                Some(b'-') => pattern.excluded.push(term),
                Some(_) => pattern.alternatives.push(term),
            }
            rest = after.trim_start();
        }
        // As documented: beside other terms, alternatives have no effect.
        if !pattern.required.is_empty() || !pattern.excluded.is_empty() {
            pattern.alternatives.clear();
        }
        Ok(pattern)
    }

    /// Whether a line is wanted.
    #[must_use]
    pub fn matches(&self, line: &str) -> bool {
        let found = |term: &String| line.contains(term.as_str());
        self.required.iter().all(found)
            && !self.excluded.iter().any(found)
            && (self.alternatives.is_empty() || self.alternatives.iter().any(found))
    }
}

/// A term at the beginning of the text, and what follows it.
fn term(text: &str) -> Result<(String, &str), Error> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut term = String::new();
        let mut letters = quoted.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => return Ok((term, &quoted[at + 1..])),
                '\\' => term.extend(letters.next().map(|(_, escaped)| escaped)),
                letter => term.push(letter),
            }
        }
        return Err(invalid("a quotation mark is not closed"));
    }
    if text.starts_with('%') {
        return Err(unserved("with regular expressions (%...%)"));
    }
    let (term, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    if term.is_empty() {
        return Err(invalid("a '?' or '-' stands before no term"));
    }
    match term.chars().find(|letter| !letter.is_alphanumeric() && *letter != '_') {
        Some(_) => Err(invalid(&format!(
            "Invalid character(s) in term '{term}'; put it in quotation marks: \"{}\"",
            term.replace('"', "\\\"")
        ))),
        None => Ok((term.to_owned(), rest)),
    }
}

fn invalid(what: &str) -> Error {
    Error::validation(format!("Invalid filter pattern: {what}."))
}

fn unserved(kind: &str) -> Error {
    Error::validation(format!(
        "Invalid filter pattern: Shoal does not serve patterns {kind}; it serves terms, \"quoted phrases\", \
         ?alternatives and -exclusions."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wanted_or_not() {
        const LINES: [&str; 4] = [
            "[ERROR 400] BAD REQUEST",
            "[ERROR 401] UNAUTHORIZED REQUEST",
            "[WARN] slow \"disk\"",
            "epoch 3: loss=0.5",
        ];
        // Pattern, and the lines that it wants.
        for (pattern, expected) in [
            ("", vec![0, 1, 2, 3]),
            ("  ", vec![0, 1, 2, 3]),
            ("ERROR", vec![0, 1]),
            ("error", vec![]),
            ("ERROR 400", vec![0]),
            ("400 ERROR", vec![0]),
            ("\"ERROR 401\"", vec![1]),
            ("\"loss=\"", vec![3]),
            ("\"\\\"disk\\\"\"", vec![2]),
            ("?ERROR ?WARN", vec![0, 1, 2]),
            ("?\"[WARN]\" ?loss", vec![2, 3]),
            ("ERROR -400", vec![1]),
            ("-ERROR", vec![2, 3]),
            ("-\"BAD REQUEST\" -slow", vec![1, 3]),
            ("?400 ?WARN REQUEST", vec![0, 1]),
            ("?WARN -400", vec![1, 2, 3]),
            ("épo", vec![]),
        ] {
            let read = FilterPattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            let wanted: Vec<usize> = (0..LINES.len()).filter(|at| read.matches(LINES[*at])).collect();
            assert_eq!(wanted, expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for (pattern, expected) in [
            ("{ $.level = \"x\" }", "over JSON"),
            (" [ip, user, ...]", "over columns"),
            ("%ERR.*%", "regular expressions"),
            ("loss=0.5", "put it in quotation marks: \"loss=0.5\""),
            ("\"open", "not closed"),
            ("ERROR -", "before no term"),
            ("? ERROR", "before no term"),
        ] {
            let error = FilterPattern::parse(pattern).expect_err(pattern);
            assert!(
                error.message.starts_with("Invalid filter pattern: ") && error.message.contains(expected),
                "{pattern}: {error}"
            );
        }
    }
}
