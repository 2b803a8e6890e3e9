//! What a rule has found.

use std::fmt;

/// Longest `StatusDetails` of AWS's API, in characters.
const MAX_DETAILS: usize = 1024;

/// The condition of a rule, met at a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Step over all modes; of the profiler's rules, 0 where they know none.
    pub step: u64,
    /// The tensor, or the metric and its host.
    pub subject: String,
    /// Its value that met the condition.
    pub value: f64,
    /// What was found and what to try, in a sentence.
    pub text: String,
}

impl Finding {
    /// `StatusDetails`: begins as AWS's do.
    #[must_use]
    pub fn details(&self, rule: &str) -> String {
        let (step, text) = (self.step, &self.text);
        let whole = format!(
            "RuleEvaluationConditionMet: Evaluation of the rule {rule} at step {step} resulted in the condition being \
             met: {text}"
        );
        shortened(whole)
    }
}

/// Cuts a text to what `StatusDetails` may have.
pub(crate) fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_DETAILS) {
        None => text,
        Some(_) => text.chars().take(MAX_DETAILS - 3).chain("...".chars()).collect(),
    }
}

/// A number with four significant digits.
pub(crate) struct Short(pub(crate) f64);

impl fmt::Display for Short {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let magnitude = value.abs();
        if value == 0.0 || !value.is_finite() || (1e-3..1e6).contains(&magnitude) {
            let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
            write!(formatter, "{rounded}")
        } else {
            let text = format!("{value:.3e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            write!(formatter, "{}e{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1e-7, "1e-7"),
            (2.0 / 3.0, "0.6667"),
            (-123_456_789.0, "-1.235e8"),
            (42.0, "42"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (3.24e-9, "3.24e-9"),
        ] {
            assert_eq!(Short(value).to_string(), text);
        }
    }

    #[test]
    fn details_are_as_long_as_the_api_allows() {
        let finding = |text: &str| Finding { step: 7, subject: "a".into(), value: 1.0, text: text.into() };
        assert_eq!(
            finding("x is 1.").details("AllZero"),
            "RuleEvaluationConditionMet: Evaluation of the rule AllZero at step 7 resulted in the condition being \
             met: x is 1."
        );
        let long = finding(&"é".repeat(2000)).details("AllZero");
        assert_eq!(long.chars().count(), 1024);
        assert!(long.ends_with("é..."));
    }
}
