//! Words that GLOSSARY.md replaces become fewer: each may stand in the sources as often as
//! `xtask/unused_words.txt` says, and no more.

use std::collections::BTreeMap;

use super::Source;

/// Where the words and what to write instead are listed.
const GLOSSARY: &str = "GLOSSARY.md";
/// The heading of their table.
const HEADING: &str = "## Words not used";
/// Files that list the words or quote history.
const EXEMPT: [&str; 3] = [GLOSSARY, "CHANGELOG.md", "xtask/src/tidy/unused_words.rs"];

/// Complaints about words that stand more often than allowed; `allowed` has lines `COUNT WORD`.
pub(super) fn check(sources: &[Source], allowed: &str) -> Vec<String> {
    let limits = limits(allowed);
    counts(sources)
        .into_iter()
        .filter_map(|(word, Count { instead, found, last })| {
            let limit = limits.get(word).copied().unwrap_or(0);
            let excess = found.checked_sub(limit).filter(|excess| *excess > 0)?;
            let was = if limits.contains_key(word) {
                "in xtask/unused_words.txt"
            } else {
                "as it is not in xtask/unused_words.txt"
            };
            Some(format!("{last}: \"{word}\" stands {excess} times too often ({limit} {was}); write: {instead}"))
        })
        .collect()
}

/// The text of `xtask/unused_words.txt` for what is found now. A limit never rises; a word that is
/// new in the table gets what is found.
pub(super) fn renewed(sources: &[Source], allowed: &str) -> String {
    let limits = limits(allowed);
    let limit = |word: &str, found: usize| limits.get(word).map_or(found, |limit| found.min(*limit));
    counts(sources).into_iter().map(|(word, count)| format!("{} {word}\n", limit(word, count.found))).collect()
}

/// How often a word of the glossary's table occurs.
struct Count<'a> {
    /// What to write for it.
    instead: &'a str,
    found: usize,
    /// File and line of its last occurrence.
    last: String,
}

fn counts(sources: &[Source]) -> BTreeMap<&str, Count<'_>> {
    let glossary = sources.iter().find(|source| source.path == GLOSSARY).map_or("", |source| &source.text);
    let mut counts: BTreeMap<&str, Count<'_>> = words(glossary)
        .into_iter()
        .map(|(word, instead)| (word, Count { instead, found: 0, last: String::new() }))
        .collect();
    for Source { path, text } in sources.iter().filter(|source| !EXEMPT.contains(&source.path.as_str())) {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, count) in &mut counts {
                let found = occurrences(&line, word);
                if found > 0 {
                    count.found += found;
                    count.last = format!("{path}:{}", index + 1);
                }
            }
        }
    }
    counts
}

/// Words of the table, each with what to write instead.
fn words(glossary: &str) -> Vec<(&str, &str)> {
    let (_, table) = glossary.split_once(HEADING).unwrap_or_default();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let (not, but) = row.trim_matches('|').split_once('|')?;
        Some(not.split(',').map(move |word| (word.trim(), but.trim())))
    })
    .flatten()
    .collect()
}

/// Times that the word stands in the line by itself; `_` separates words, as in names.
fn occurrences(line: &str, word: &str) -> usize {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let alone = |(at, _): &(usize, &str)| {
        !letter(line[..*at].chars().next_back()) && !letter(line[at + word.len()..].chars().next())
    };
    line.match_indices(word).filter(alone).count()
}

fn limits(allowed: &str) -> BTreeMap<&str, usize> {
    allowed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(count, word)| Some((word, count.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Vec<Source> {
        let glossary = format!(
            "# Words\n\n{HEADING}\n\n| not | but |\n|---|---|\n| told, tells | sent |\n| for good | permanently \
             |\n\nEnd"
        );
        vec![Source { path: GLOSSARY.into(), text: glossary }, Source { path: "a.rs".into(), text: text.into() }]
    }

    #[test]
    fn words_are_counted_against_their_limits() {
        for (text, allowed, expected) in [
            ("it is told", "", 1),
            ("it is told", "1 told\n", 0),
            ("let told_why = retold;", "1 told\n", 0),
            ("Told\nfor good", "1 told\n", 1),
            ("told tells told", "1 told\n1 tells\n", 1),
            ("nothing of the kind", "", 0),
        ] {
            assert_eq!(check(&sources(text), allowed).len(), expected, "{text}");
        }
    }

    #[test]
    fn a_complaint_names_the_place_and_the_better_word() {
        let problems = check(&sources("\nstopped for good"), "");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("a.rs:2: \"for good\"") && problems[0].ends_with("write: permanently"),
            "{problems:?}"
        );
    }

    #[test]
    fn limits_fall_and_never_rise() {
        let sources = sources("told told for good");
        let limits = |[for_good, tells, told]: [u32; 3]| format!("{for_good} for good\n{tells} tells\n{told} told\n");
        assert_eq!(renewed(&sources, ""), limits([1, 0, 2]), "words without a limit");
        for (allowed, expected, excesses) in
            [([3, 1, 2], [1, 0, 2], 0), ([3, 1, 1], [1, 0, 1], 1), ([0, 0, 2], [0, 0, 2], 1)]
        {
            assert_eq!(renewed(&sources, &limits(allowed)), limits(expected), "{allowed:?}");
            assert_eq!(check(&sources, &limits(expected)).len(), excesses, "{allowed:?}");
        }
    }
}
