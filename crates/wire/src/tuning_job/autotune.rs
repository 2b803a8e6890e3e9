//! Autotune: ranges for parameters of which only a value that works is known.
//!
//! AWS does not say how it finds them. Here: a parameter that the algorithm recommends a range for
//! gets that one. Any other is searched around its hint: a positive number from a tenth of it to
//! ten times it, logarithmically (not beyond 1 where the hint is below 1, as rates and fractions
//! are; a whole number stays whole and is at least 1); zero from 0 to 1; a negative number between
//! ten times it and a tenth of it; `true` and `false` both; any other text is kept as it is. Where
//! that leaves nothing to tune, all of the algorithm's recommended parameters are tuned that the
//! request does not fix.

use std::collections::BTreeMap;

use super::{AutoParameter, ParameterRange, RangeValues, ScalingType, TuningDefinition};

/// What becomes of a parameter of Autotune.
enum Found {
    Range(RangeValues),
    /// It stays as its hint says.
    Fixed,
}

impl TuningDefinition {
    /// The definition with ranges for its parameters of Autotune, and hints that are no ranges as
    /// static hyperparameters. `recommended` are the ranges that the algorithm recommends;
    /// `autotune` says whether they are used where there is nothing else to tune.
    #[must_use]
    pub fn with_auto_ranges(mut self, recommended: &[ParameterRange], autotune: bool) -> Self {
        for parameter in std::mem::take(&mut self.auto_parameters) {
            match found(&parameter, recommended) {
                Found::Range(values) => self.ranges.push(ParameterRange { name: parameter.name, values }),
                Found::Fixed => {
                    self.static_hyperparameters.insert(parameter.name, parameter.hint);
                }
            }
        }
        if self.ranges.is_empty() && autotune {
            self.ranges = recommended
                .iter()
                .filter(|range| !is_fixed(&self.static_hyperparameters, &range.name))
                .cloned()
                .collect();
        }
        self
    }
}

fn is_fixed(statics: &BTreeMap<String, String>, name: &str) -> bool {
    statics.contains_key(name)
}

fn found(parameter: &AutoParameter, recommended: &[ParameterRange]) -> Found {
    if let Some(range) = recommended.iter().find(|range| range.name == parameter.name) {
        return Found::Range(range.values.clone());
    }
    // SDK v2 writes texts as JSON.
    let hint = parameter.hint.trim().trim_matches('"');
    if matches!(hint, "true" | "false" | "True" | "False") {
        let other = match hint {
            "true" => "false",
            "false" => "true",
            "True" => "False",
            _ => "True",
        };
        return Found::Range(RangeValues::Categorical(vec![
            parameter.hint.clone(),
            parameter.hint.replace(hint, other),
        ]));
    }
    if let Ok(whole) = hint.parse::<i64>() {
        return around_whole(whole).map_or(Found::Fixed, Found::Range);
    }
    match hint.parse::<f64>() {
        Ok(number) if number.is_finite() => around(number).map_or(Found::Fixed, Found::Range),
        _ => Found::Fixed,
    }
}

fn around_whole(hint: i64) -> Option<RangeValues> {
    let (min, max, scaling) = match hint {
        0 => (0, 1, ScalingType::Linear),
        1.. => ((hint / 10).max(1), hint.checked_mul(10)?, ScalingType::Logarithmic),
        _ => (hint.checked_mul(10)?, hint / 10, ScalingType::Linear),
    };
    Some(RangeValues::Integer { min, max, scaling })
}

fn around(hint: f64) -> Option<RangeValues> {
    let (min, max, scaling) = if hint == 0.0 {
        (0.0, 1.0, ScalingType::Linear)
    } else if hint > 0.0 {
        let max = if hint < 1.0 { (hint * 10.0).min(1.0) } else { hint * 10.0 };
        (hint / 10.0, max, ScalingType::Logarithmic)
    } else {
        (hint * 10.0, hint / 10.0, ScalingType::Linear)
    };
    (min.is_finite()
        && max.is_finite()
        && min < max
        && (max - min).is_finite()
        && (scaling == ScalingType::Linear || min > 0.0))
        .then_some(RangeValues::Continuous { min, max, scaling })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around_hint(hint: &str) -> String {
        let recommended = [ParameterRange {
            name: "eta".to_owned(),
            values: RangeValues::Continuous { min: 0.1, max: 0.5, scaling: ScalingType::Linear },
        }];
        let (name, hint) = hint.split_once('=').unwrap_or(("p", hint));
        match found(&AutoParameter { name: name.to_owned(), hint: hint.to_owned() }, &recommended) {
            Found::Fixed => "fixed".to_owned(),
            Found::Range(RangeValues::Integer { min, max, scaling }) => format!("{min}..{max} {scaling:?}"),
            Found::Range(RangeValues::Continuous { min, max, scaling }) => format!("{min:.4}..{max:.4} {scaling:?}"),
            Found::Range(RangeValues::Categorical(values)) => values.join("|"),
        }
    }

    #[test]
    fn ranges_follow_from_hints() {
        for (hint, expected) in [
            ("eta=0.3", "0.1000..0.5000 Linear"),
            ("0.3", "0.0300..1.0000 Logarithmic"),
            ("0.001", "0.0001..0.0100 Logarithmic"),
            ("2.5", "0.2500..25.0000 Logarithmic"),
            ("0.0", "0.0000..1.0000 Linear"),
            ("-2.0", "-20.0000..-0.2000 Linear"),
            ("64", "6..640 Logarithmic"),
            ("1", "1..10 Logarithmic"),
            ("0", "0..1 Linear"),
            ("-30", "-300..-3 Linear"),
            ("\"64\"", "6..640 Logarithmic"),
            ("true", "true|false"),
            ("\"False\"", "\"False\"|\"True\""),
            ("binary:logistic", "fixed"),
            ("", "fixed"),
            ("nan", "fixed"),
            ("9223372036854775807", "fixed"),
            ("1e308", "fixed"),
            ("5e-324", "fixed"),
        ] {
            assert_eq!(around_hint(hint), expected, "{hint}");
        }
    }
}
