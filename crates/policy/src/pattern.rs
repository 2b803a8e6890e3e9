//! Texts with wildcards and variables: `*`, `?`, `${aws:username}`, and `${*}`, `${?}`, `${$}` for
//! the letters themselves.

use crate::PolicyError;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    AnyOne,
    Any,
    Username,
}

/// What texts are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Part>);

impl Pattern {
    /// Wildcards are letters like others where `is_literal`.
    ///
    /// # Errors
    /// It has a variable that is not known here.
    pub(crate) fn of(text: &str, is_literal: bool) -> Result<Self, PolicyError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(behind) = rest.strip_prefix("${") {
                let Some((name, after)) = behind.split_once('}') else {
                    return Err(PolicyError::new(format!(
                        "'{text}' has a variable without its end: write }} behind it"
                    )));
                };
                parts.push(match name.to_ascii_lowercase().as_str() {
                    "*" => Part::One('*'),
                    "?" => Part::One('?'),
                    "$" => Part::One('$'),
                    "aws:username" => Part::Username,
                    _ => {
                        return Err(PolicyError::new(format!(
                            "'{text}' has the variable '{name}', and there is aws:username alone"
                        )));
                    }
                });
                rest = after;
                continue;
            }
            parts.push(match letter {
                '*' if !is_literal => Part::Any,
                '?' if !is_literal => Part::AnyOne,
                letter => Part::One(letter),
            });
            rest = &rest[letter.len_utf8()..];
        }
        Ok(Self(parts))
    }

    /// Whether it has a letter that stands for others.
    pub(crate) fn has_wildcards(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Any | Part::AnyOne))
    }

    /// Whether all texts that fit are this one, or begin with it and a `/`.
    pub(crate) fn begins(&self, text: &str) -> bool {
        let letters = text.chars().map(Part::One).collect::<Vec<_>>();
        let rest = self.0.strip_prefix(letters.as_slice());
        rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&Part::One('/')))
    }

    /// Whether the whole text is one of those that it stands for. A variable without a value fits
    /// nothing.
    pub(crate) fn fits(&self, text: &str, username: Option<&str>) -> bool {
        let mut parts = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            match (part, username) {
                (Part::Username, None) => return false,
                (Part::Username, Some(name)) => parts.extend(name.chars().map(Part::One)),
                (part, _) => parts.push(part.clone()),
            }
        }
        fits(&parts, &Vec::from_iter(text.chars()))
    }
}

/// In steps of the product of both lengths at most: after a mismatch the last `*` takes one letter
/// more, as what comes before it need not be looked at again.
fn fits(parts: &[Part], text: &[char]) -> bool {
    let (mut part, mut at) = (0, 0);
    let mut last_any: Option<(usize, usize)> = None;
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                last_any = Some((part, at));
                part += 1;
            }
            Some(Part::AnyOne) => (part, at) = (part + 1, at + 1),
            Some(Part::One(letter)) if *letter == text[at] => (part, at) = (part + 1, at + 1),
            _ => match &mut last_any {
                Some((any, taken)) => {
                    *taken += 1;
                    (part, at) = (*any + 1, *taken);
                }
                None => return false,
            },
        }
    }
    parts[part..].iter().all(|part| *part == Part::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str) -> bool {
        Pattern::of(pattern, false).unwrap().fits(text, Some("anna"))
    }

    #[test]
    fn wildcards_stand_for_any_letters() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a/b:c", true),
            ("a*", "a", true),
            ("a?", "a", false),
            ("a?", "ab", true),
            ("a*c", "abcbc", true),
            ("a*c", "abcb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("arn:aws:s3:::out/${aws:username}/*", "arn:aws:s3:::out/anna/x", true),
            ("arn:aws:s3:::out/${aws:username}/*", "arn:aws:s3:::out/ann/x", false),
            ("${*}", "*", true),
            ("${*}", "a", false),
            ("${$}{x}", "${x}", true),
            ("ä?", "äö", true),
        ] {
            assert_eq!(check(pattern, text), expected, "{pattern} {text}");
        }
        assert!(!Pattern::of("${aws:username}", false).unwrap().fits("", None));
        assert!(!Pattern::of("a*", true).unwrap().fits("ab", None));
    }

    /// Against the definition, for all short patterns and texts.
    #[test]
    fn the_fast_way_is_the_plain_way() {
        fn plain(pattern: &[char], text: &[char]) -> bool {
            match pattern {
                [] => text.is_empty(),
                ['*', rest @ ..] => (0..=text.len()).any(|taken| plain(rest, &text[taken..])),
                ['?', rest @ ..] => !text.is_empty() && plain(rest, &text[1..]),
                [letter, rest @ ..] => text.first() == Some(letter) && plain(rest, &text[1..]),
            }
        }
        let words = |letters: &[char], longest: u32| {
            let mut all = vec![String::new()];
            let mut last = all.clone();
            for _ in 0..longest {
                last =
                    last.iter().flat_map(|word| letters.iter().map(move |letter| format!("{word}{letter}"))).collect();
                all.extend(last.clone());
            }
            all
        };
        for pattern in words(&['a', 'b', '*', '?'], 5) {
            let compiled = Pattern::of(&pattern, false).unwrap();
            for text in words(&['a', 'b'], 5) {
                let (letters, of_text) = (Vec::from_iter(pattern.chars()), Vec::from_iter(text.chars()));
                assert_eq!(compiled.fits(&text, None), plain(&letters, &of_text), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn an_evil_pattern_costs_little() {
        let (pattern, text) = ("*a".repeat(2000) + "b", "a".repeat(4000));
        assert!(!check(&pattern, &text));
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        for (pattern, why) in [("${aws:userid}", "'aws:userid'"), ("${aws:username", "without its end")] {
            assert!(Pattern::of(pattern, false).unwrap_err().to_string().contains(why));
        }
    }
}
