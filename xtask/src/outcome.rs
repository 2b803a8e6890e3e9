//! What the tests said, summed over every runner.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::frameworks;

/// Counts, and names where a person wants them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many passed.
    pub(crate) passed: usize,
    /// Names of those that failed.
    pub(crate) failed: Vec<String>,
    /// Why tests failed, by name, where their runner reports it.
    pub(crate) reasons: BTreeMap<String, String>,
    /// Those that this machine could not run.
    pub(crate) skipped: Vec<Skip>,
    /// Names of those, among the passed, that failed at first.
    pub(crate) at_the_second_try: Vec<String>,
    /// Which step ended when, in seconds from the start.
    pub(crate) steps: Vec<(String, u64)>,
}

/// A test that did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    /// Test's name.
    pub(crate) name: String,
    /// As the test says it, e.g. `needs root`.
    pub(crate) reason: String,
}

impl Outcome {
    /// Counts a check that has no counts of its own.
    pub(crate) fn count(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    /// Counts a failure.
    pub(crate) fn fail(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    /// Adds a report, as conftest.py writes it: a list of `{name, outcome, reason}`.
    pub(crate) fn read(&mut self, report: &Value) {
        for test in report.as_array().into_iter().flatten() {
            let name = test["name"].as_str().unwrap_or("a test without a name");
            match test["outcome"].as_str() {
                Some("passed") => self.passed += 1,
                Some("skipped") => {
                    let reason = test["reason"].as_str().unwrap_or("no reason given");
                    self.skipped.push(Skip { name: name.to_owned(), reason: reason.to_owned() });
                }
                _ => {
                    self.fail(name);
                    if let Some(reason) = test["reason"].as_str() {
                        self.reasons.insert(name.to_owned(), reason.to_owned());
                    }
                }
            }
        }
    }

    /// The same report; those that passed have no names.
    pub(crate) fn json(&self) -> Value {
        let passed = std::iter::repeat_n(json!({"outcome": "passed"}), self.passed);
        let failed =
            self.failed.iter().map(|name| json!({"name": name, "outcome": "failed", "reason": self.reasons.get(name)}));
        let skipped =
            self.skipped.iter().map(|skip| json!({"name": skip.name, "outcome": "skipped", "reason": skip.reason}));
        passed.chain(failed).chain(skipped).collect()
    }

    /// Adds the outcome of one runner, and that of its second try of the failed tests.
    pub(crate) fn add(&mut self, first: Outcome, again: Outcome) {
        self.passed += first.passed + again.passed;
        self.skipped.extend(first.skipped.into_iter().chain(again.skipped));
        self.at_the_second_try.extend(first.failed.into_iter().filter(|name| !again.failed.contains(name)));
        self.failed.extend(again.failed);
        self.reasons.extend(first.reasons);
        self.reasons.extend(again.reasons);
    }

    /// Turns skips into failures unless their reason holds on this machine.
    pub(crate) fn refuse_skips(&mut self, is_honest: impl Fn(&str) -> bool) {
        let (honest, refused): (Vec<_>, Vec<_>) = self.skipped.drain(..).partition(|skip| is_honest(&skip.reason));
        self.skipped = honest;
        self.failed.extend(
            refused.into_iter().map(|skip| format!("{} (skipped here without need: {})", skip.name, skip.reason)),
        );
    }

    /// Prints skips and failures by name, then the closing line; says whether all is well.
    pub(crate) fn report(&self) -> bool {
        for skip in &self.skipped {
            println!("skipped {}: {}", skip.name, skip.reason);
        }
        for name in &self.at_the_second_try {
            println!("passed at the second try only: {name}{}", self.reason(name));
        }
        for name in &self.failed {
            println!("FAILED {name}{}", self.reason(name));
        }
        if let Some(line) = frameworks::left_out(&self.skipped) {
            println!("{line}");
        }
        if !self.steps.is_empty() {
            println!("{}", self.steps_line());
        }
        println!("{}", self.closing_line());
        self.failed.is_empty() && self.passed > 0
    }

    fn reason(&self, name: &str) -> String {
        self.reasons.get(name).map(|reason| format!(" - {}", reason.replace('\n', " "))).unwrap_or_default()
    }

    /// When each step ended, for who looks where the time goes.
    fn steps_line(&self) -> String {
        let ends = self.steps.iter().map(|(name, seconds)| format!("{name} {seconds} s"));
        format!("ended after: {}", Vec::from_iter(ends).join(", "))
    }

    /// `N passed, N failed[, N skipped]`.
    fn closing_line(&self) -> String {
        let counts = format!("{} passed, {} failed", self.passed, self.failed.len());
        if self.skipped.is_empty() { counts } else { format!("{counts}, {} skipped", self.skipped.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: usize, failed: &[&str], skipped: &[(&str, &str)]) -> Outcome {
        let skipped =
            skipped.iter().map(|(name, reason)| Skip { name: (*name).into(), reason: (*reason).into() }).collect();
        Outcome { passed, failed: failed.iter().map(|name| (*name).into()).collect(), skipped, ..Outcome::default() }
    }

    #[test]
    fn closing_lines() {
        assert_eq!(outcome(3, &[], &[]).closing_line(), "3 passed, 0 failed");
        assert_eq!(outcome(3, &["a"], &[("b", "needs root")]).closing_line(), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn ends_of_steps() {
        let steps = vec![("build".to_owned(), 300), ("Rust tests".to_owned(), 700)];
        assert_eq!(Outcome { steps, ..Outcome::default() }.steps_line(), "ended after: build 300 s, Rust tests 700 s");
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        assert!(!outcome(0, &[], &[]).report());
        assert!(outcome(1, &[], &[]).report());
        assert!(!outcome(1, &["a"], &[]).report());
    }

    #[test]
    fn reports_are_counted() {
        let report = json!([
            {"name": "test_a", "outcome": "passed"},
            {"name": "test_b", "outcome": "failed", "reason": "assert 1 == 2\n +1"},
            {"name": "test_c", "outcome": "error"},
            {"name": "test_d", "outcome": "skipped", "reason": "needs root"},
        ]);
        let mut read = Outcome::default();
        read.read(&report);
        let mut expected = outcome(1, &["test_b", "test_c"], &[("test_d", "needs root")]);
        expected.reasons = BTreeMap::from([("test_b".to_owned(), "assert 1 == 2\n +1".to_owned())]);
        assert_eq!(read, expected);
        assert_eq!(read.reason("test_b"), " - assert 1 == 2  +1");
        let mut again = Outcome::default();
        again.read(&read.json());
        assert_eq!(again, read);
    }

    #[test]
    fn what_fails_twice_has_failed() {
        let mut all = outcome(1, &["z"], &[]);
        all.add(outcome(7, &["a", "b"], &[]), outcome(1, &["b"], &[]));
        assert_eq!(
            (all.passed, &all.failed[..], &all.at_the_second_try[..]),
            (9, &["z".to_owned(), "b".to_owned()][..], &["a".to_owned()][..])
        );
    }

    #[test]
    fn skips_without_need_fail() {
        let mut outcome = outcome(1, &[], &[("a", "needs root"), ("b", "too lazy")]);
        outcome.refuse_skips(|reason| reason == "needs root");
        assert_eq!(outcome.skipped.len(), 1);
        assert_eq!(outcome.failed, ["b (skipped here without need: too lazy)"]);
    }
}
