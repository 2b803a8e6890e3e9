//! Values that metric definitions find in log lines.

use std::{collections::BTreeMap, sync::Arc};

use fancy_regex::{Regex, RegexBuilder};

use crate::log_line::readable;

/// Backtracking steps that one definition may take on one line. Expressions without look-around and
/// back references take none.
const STEP_LIMIT: usize = 50_000;

/// Lines are searched up to here; no metric line is longer, and it bounds what an expensive
/// expression costs.
const SEARCHED_BYTES: usize = 8 << 10;

/// What the log shows in place of a tab.
const ESCAPED_TAB: &str = "#011";

/// After so many lines on which it hit [`STEP_LIMIT`], a definition is given up.
const OVERRUNS: u32 = 10;

/// A name and the regular expression whose first group is its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Metric's name.
    pub name: String,
    /// In Python's syntax, as far as it overlaps with Rust's, with look-around and back references.
    pub regex: String,
}

/// What a definition found.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The definition's name.
    pub name: String,
    /// Finite.
    pub value: f64,
}

/// A definition that finds nothing, or nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The definition's name.
    pub name: String,
    /// Why, for people.
    pub reason: String,
}

/// Expressions that are compiled, by their text: for those who scrape with the same definitions
/// again.
#[derive(Debug, Default)]
pub struct Expressions(BTreeMap<String, Arc<Regex>>);

#[derive(Debug)]
struct Search {
    name: String,
    regex: Arc<Regex>,
    overruns: u32,
}

/// Applies metric definitions to lines.
#[derive(Debug)]
pub struct Scraper {
    searches: Vec<Search>,
    rejected: Vec<Rejected>,
}

impl Scraper {
    /// Compiles the definitions that are not among the compiled, which then has these alone; those
    /// that do not compile are told by [`Self::take_rejected`].
    pub fn new(definitions: &[Definition], compiled: &mut Expressions) -> Self {
        let (mut searches, mut rejected) = (Vec::new(), Vec::new());
        let known = std::mem::take(&mut compiled.0);
        for Definition { name, regex } in definitions {
            let again = known.get(regex).map(|regex| Ok(regex.clone()));
            match again.unwrap_or_else(|| RegexBuilder::new(regex).backtrack_limit(STEP_LIMIT).build().map(Arc::new)) {
                Ok(regex) => {
                    compiled.0.insert(regex.as_str().to_owned(), regex.clone());
                    searches.push(Search { name: name.clone(), regex, overruns: 0 });
                }
                Err(error) => {
                    rejected.push(Rejected {
                        name: name.clone(),
                        reason: format!("its regex \"{regex}\" does not compile: {error}"),
                    });
                }
            }
        }
        Self { searches, rejected }
    }

    /// The values on one line, in the definitions' order. An expression is searched for (not
    /// matched from the line's start) in the escaped line, and, if it is not there and the line has
    /// tabs, in the line as it was written; its first match counts. A first group that is no
    /// decimal number gives nothing; `nan` and `inf` are told as they are, and are no points of a
    /// metric: AWS's wire has no such numbers.
    pub fn values(&mut self, escaped: &str, line: &[u8]) -> Vec<Value> {
        let escaped = cut(escaped);
        let with_tabs = line.contains(&b'\t').then(|| readable(&line[..line.len().min(SEARCHED_BYTES)]));
        let mut values = Vec::new();
        for search in &mut self.searches {
            let text = match search.first_group(escaped) {
                None => with_tabs.as_deref().and_then(|line| search.first_group(line)),
                found => found,
            };
            // `(\S+)`, as the documented definitions end, is meant to end at a tab, which the
            // escaped line no longer shows as a space.
            let text = text.and_then(|text| text.split(ESCAPED_TAB).next());
            if let Some(value) = text.and_then(|text| text.trim().parse::<f64>().ok()) {
                values.push(Value { name: search.name.clone(), value });
            }
        }
        self.give_up();
        values
    }

    /// Definitions that were found not to work since the last call.
    pub fn take_rejected(&mut self) -> Vec<Rejected> {
        std::mem::take(&mut self.rejected)
    }

    fn give_up(&mut self) {
        let rejected = &mut self.rejected;
        self.searches.retain(|search| {
            let keep = search.overruns < OVERRUNS;
            if !keep {
                let reason = format!(
                    "its regex \"{}\" needs more than {STEP_LIMIT} steps on a line; it is no longer applied",
                    search.regex.as_str()
                );
                rejected.push(Rejected { name: search.name.clone(), reason });
            }
            keep
        });
    }
}

impl Search {
    fn first_group<'t>(&mut self, line: &'t str) -> Option<&'t str> {
        match self.regex.captures(line) {
            Ok(captures) => captures?.get(1).map(|group| &line[group.start()..group.end()]),
            Err(_) => {
                self.overruns += 1;
                None
            }
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SEARCHED_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape_line;

    fn scrape(regex: &str, line: &str) -> Vec<f64> {
        let mut scraper =
            Scraper::new(&[Definition { name: "m".into(), regex: regex.into() }], &mut Expressions::default());
        assert_eq!(scraper.take_rejected(), [], "{regex}");
        scraper.values(&escape_line(line.as_bytes()), line.as_bytes()).into_iter().map(|value| value.value).collect()
    }

    #[test]
    fn documented_and_python_style_expressions_find_their_values() {
        let round = "[12]\ttrain-auc:0.90000\tvalidation-auc:0.80000";
        assert_eq!(scrape(r".*\[[0-9]+\].*#011train-auc:(\S+)", round), [0.9], "the value ends at the tab");
        let cases: &[(&str, &str, &[f64])] = &[
            // The built-in definitions of the XGBoost image.
            (r".*\[[0-9]+\].*#011validation-auc:(\S+)", round, &[0.8]),
            (r".*\[[0-9]+\].*#011train-auc:([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?).*", round, &[0.9]),
            // The same with a real tab.
            (r"\tvalidation-auc:(\S+)", round, &[0.8]),
            // The developer guide's and the SDKs' examples.
            (r"Train_error=(.*?);", "epoch 3 Train_error=0.138318;  Valid_error=0.324557;", &[0.138318]),
            (r"Valid_error=(.*?);", "epoch 3 Train_error=0.138318;  Valid_error=0.324557;", &[0.324557]),
            (
                r"#quality_metric: host=\S+, epoch=\S+, train loss <loss>=(\S+)",
                "#quality_metric: host=algo-1, epoch=0, train loss <loss>=0.5",
                &[0.5],
            ),
            (
                r"#quality_metric: host=\S+, train mse <loss>=(\S+)",
                "#quality_metric: host=algo-1, train mse <loss>=1e-3",
                &[1e-3],
            ),
            (r"'loss': ([0-9]+(.|e\-)[0-9]+),?", "{'loss': 0.6712, 'epoch': 1.0}", &[0.6712]),
            (r"{'loss': ([0-9.]+)", "{'loss': 0.6712, 'epoch': 1.0}", &[0.6712]),
            (r#"{"loss": ([0-9.]+)}"#, r#"{"loss": 2.5}"#, &[2.5]),
            (r"Test set: Average loss: ([0-9\.]+)", "Test set: Average loss: 0.0505, Accuracy: 98%", &[0.0505]),
            (r"(?P<name>acc)=(?P<value>\S+)", "acc=0.5", &[]),
            (r"(?:acc)=(?P<value>\S+)", "acc=0.5", &[0.5]),
            (r"(?<=acc=)(\S+)(?!x)", "acc=0.5", &[0.5]),
            (r"loss=([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\Z", "x loss=-1.5e-3", &[-1.5e-3]),
            (r"(?i)LOSS[:=]\s*(\S+)", "loss: 7", &[7.0]),
            // The first of several, once.
            (r"v=(\d)", "v=1 v=2", &[1.0]),
            (r"v=(\S+)", "v=-inf", &[f64::NEG_INFINITY]),
            // Nothing that is no number.
            (r"v=(\S+)", "v=none", &[]),
            (r"v=(\S+)", "v=0.5,", &[]),
            (r"v=\S+", "v=5", &[]),
            (r"v=(\S+)", "other", &[]),
        ];
        for (regex, line, expected) in cases {
            assert_eq!(scrape(regex, line), *expected, "{regex} on {line}");
        }
    }

    #[test]
    fn a_bad_definition_is_told_and_spoils_no_other() {
        let definitions = [("bad", "("), ("good", "v=(\\d+)")]
            .map(|(name, regex)| Definition { name: name.into(), regex: regex.into() });
        let mut scraper = Scraper::new(&definitions, &mut Expressions::default());
        let rejected = scraper.take_rejected();
        assert_eq!(rejected.len(), 1);
        assert!(rejected[0].name == "bad" && rejected[0].reason.contains("does not compile"), "{rejected:?}");
        assert_eq!(scraper.values("v=3", b"v=3"), [Value { name: "good".into(), value: 3.0 }]);
    }

    #[test]
    fn an_evil_expression_is_given_up() {
        // The back reference keeps it from the linear engine; the run of a's makes the backtracking
        // exponential.
        let definitions = [("evil", r"(a+)+\1$"), ("good", "v=(\\d+)")]
            .map(|(name, regex)| Definition { name: name.into(), regex: regex.into() });
        let mut scraper = Scraper::new(&definitions, &mut Expressions::default());
        let line = format!("{}b v=3", "a".repeat(4000));
        let mut rejected = Vec::new();
        for _ in 0..2 * OVERRUNS {
            assert_eq!(scraper.values(&line, line.as_bytes()), [Value { name: "good".into(), value: 3.0 }]);
            rejected.extend(scraper.take_rejected());
        }
        assert_eq!(rejected.len(), 1);
        assert!(rejected[0].name == "evil" && rejected[0].reason.contains("steps"), "{rejected:?}");
    }

    #[test]
    fn only_the_beginning_of_a_huge_line_is_searched() {
        let line = format!("{}v=3", "\u{fc}".repeat(SEARCHED_BYTES));
        assert_eq!(scrape("v=(\\d)", &line), [0.0; 0]);
        assert_eq!(scrape("v=(\\d)", &format!("v=3 {line}")), [3.0]);
    }
}
