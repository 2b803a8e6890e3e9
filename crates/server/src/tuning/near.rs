//! Metric lines that nearly were a metric that is defined: told when it never appeared, by the
//! command line too.

use std::collections::BTreeSet;

use shoal_tuner::edits;

/// How many lines are told.
const MOST: usize = 3;
/// A line is told up to here, in characters.
const LONGEST: usize = 160;

/// Lines of a log that look like values of the metric `objective`, whose definition's expression is
/// `regex` (none: no definition has its name), the nearest first; then lines that look like any
/// metric.
pub fn near_misses<'a>(lines: impl IntoIterator<Item = &'a str>, objective: &str, regex: Option<&str>) -> Vec<String> {
    let wanted = words(objective);
    let spelt: Vec<String> = regex.map(words).unwrap_or_default();
    let mut found: Vec<(usize, usize, &str)> = Vec::new();
    let mut known = BTreeSet::new();
    for (place, line) in lines.into_iter().enumerate() {
        for name in metric_names(line) {
            let named = words(&name);
            if !named.is_empty() && known.insert(named.clone()) {
                found.push((distance_of(&named, &wanted).min(distance_of(&named, &spelt)), place, line));
            }
        }
    }
    found.sort_unstable();
    let mut told = BTreeSet::new();
    found
        .into_iter()
        .filter(|(_, place, _)| told.insert(*place))
        .take(MOST)
        .map(|(_, _, line)| shortened(line))
        .collect()
}

/// What stands before each `=` or `:` that a number follows.
fn metric_names(line: &str) -> Vec<String> {
    let name = |(at, sign): (usize, char)| {
        let value = line[at + sign.len_utf8()..].trim_start();
        let number: String =
            value.chars().take_while(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '+')).collect();
        number.parse::<f64>().ok()?;
        // A tab is `#011` in the log.
        let before = line[..at].trim_end().rsplit("#011").next()?;
        let name = before.rsplit(|it: char| it.is_whitespace() || matches!(it, ',' | ';' | '[' | ']' | '|')).next()?;
        name.chars().any(char::is_alphabetic).then(|| name.to_owned())
    };
    line.char_indices().filter(|(_, sign)| matches!(sign, '=' | ':')).filter_map(name).collect()
}

/// Lower-case words of letters and digits.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|it: char| !it.is_alphanumeric());
    parts.filter(|part| part.chars().any(char::is_alphabetic)).map(str::to_lowercase).collect()
}

/// How far the nearest words of the two are from each other: 0 is the same word, and a word within
/// another counts half.
fn distance_of(some: &[String], others: &[String]) -> usize {
    let pairs = some.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| {
            if one.contains(other.as_str()) || other.contains(one.as_str()) {
                edits(one, other).div_ceil(2)
            } else {
                edits(one, other)
            }
        })
        .min()
        .unwrap_or(usize::MAX)
}

fn shortened(line: &str) -> String {
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    let start: String = line.chars().take(LONGEST).collect();
    format!("{start}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_lines_come_first_and_each_metric_once() {
        let lines = [
            "starting at 12:30 with 4 workers",
            "epoch=1 loss=0.75",
            "[1]#011train-logloss:0.6#011validation_auc:0.71",
            "Validation AUC: 0.71",
            "[2]#011train-logloss:0.5#011validation_auc:0.72",
            "no numbers here: none",
        ];
        let near = near_misses(lines, "validation:auc", Some(r"val-auc=(\S+)"));
        assert_eq!(near[..2], [lines[2], lines[3]], "{near:?}");
        let all = near_misses(lines, "accuracy", None);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(!all.iter().any(|line| line.starts_with("starting")), "a time of day is no metric: {all:?}");
        assert_eq!(near_misses(["nothing", ""], "auc", None), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_is_cut() {
        let line = format!("auc=0.5 {}", "x".repeat(400));
        assert_eq!(near_misses([line.as_str()], "auc", None)[0].chars().count(), LONGEST + 3);
    }

    #[test]
    fn a_metric_is_a_name_with_a_number_behind_it() {
        for (line, expected) in [
            ("", &[][..]),
            ("=", &[]),
            ("loss=", &[]),
            ("= 1", &[]),
            ("12:30 = 5", &[]),
            ("loss=0.5", &["loss"]),
            ("loss = 0.5; acc: 1e-3", &["loss", "acc"]),
            ("[5]#011train-auc:0.61#011val-auc:-.5#011x", &["train-auc", "val-auc"]),
            ("step 3 | größe: 7,5 | étape:nan", &["größe", "étape"]),
            ("損失：0.5 損失: 0.5", &["損失"]),
            ("status: ok, loss:0.1.2, url=http://a:80/b", &["url=http://a"]),
            ("a=b=3", &["a=b"]),
        ] {
            assert_eq!(metric_names(line), expected, "{line}");
        }
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = format!("auc=0.5 {}", "é".repeat(400));
        let near = near_misses([line.as_str()], "auc", None);
        assert_eq!(near[0].chars().count(), LONGEST + 3);
        let exact: String = format!("auc=0.5 {}", "é".repeat(LONGEST - 8));
        assert_eq!(near_misses([exact.as_str()], "auc", None), [exact.as_str()], "one that fits stays");
    }

    #[test]
    fn a_line_with_several_metrics_is_told_once_and_the_nearest_is_first() {
        let lines = ["epoch=1 lr=0.1 los=0.5", "time=3", "epoch=2 lr=0.1 los=0.4", "loss_train=2"];
        assert_eq!(near_misses(lines, "loss", None), [lines[3], lines[0], lines[1]]);
        assert_eq!(near_misses(lines, "", Some("")).len(), 3, "an objective without words is near to none");
    }
}
