//! The ranges of a tuning job's parameters: read from AWS's strings and checked.

use std::collections::BTreeSet;

use crate::{Error, refusal::refuse};

use super::{AutoParameter, ParameterRange, RangeValues, ScalingType, request};

/// Most ranges of all kinds together.
const MOST_RANGES: usize = 30;

/// The ranges in the order integer, continuous, categorical, and the parameters whose ranges are to
/// be found.
///
/// # Errors
/// The first rule that is broken, with its place below `path`.
pub(super) fn ranges(
    ranges: request::ParameterRanges,
    path: &str,
) -> Result<(Vec<ParameterRange>, Vec<AutoParameter>), Error> {
    let given = ranges.integer_parameter_ranges.len()
        + ranges.continuous_parameter_ranges.len()
        + ranges.categorical_parameter_ranges.len();
    if given > MOST_RANGES {
        return refuse(path, &format!("it has {given} ranges of all kinds together, and {MOST_RANGES} are allowed"));
    }
    let mut all = Vec::with_capacity(given);
    for (at, range) in ranges.integer_parameter_ranges.into_iter().enumerate() {
        all.push((
            integer(&range, &format!("{path}.integerParameterRanges.{}.member", at + 1))?,
            "integerParameterRanges",
            at,
        ));
    }
    for (at, range) in ranges.continuous_parameter_ranges.into_iter().enumerate() {
        all.push((
            continuous(&range, &format!("{path}.continuousParameterRanges.{}.member", at + 1))?,
            "continuousParameterRanges",
            at,
        ));
    }
    for (at, range) in ranges.categorical_parameter_ranges.into_iter().enumerate() {
        all.push((
            categorical(range, &format!("{path}.categoricalParameterRanges.{}.member", at + 1))?,
            "categoricalParameterRanges",
            at,
        ));
    }
    let mut names = BTreeSet::new();
    for (range, list, at) in &all {
        name(&range.name, &format!("{path}.{list}.{}.member.name", at + 1), &mut names)?;
    }
    for (at, parameter) in ranges.auto_parameters.iter().enumerate() {
        name(&parameter.name, &format!("{path}.autoParameters.{}.member.name", at + 1), &mut names)?;
    }
    let auto =
        ranges.auto_parameters.into_iter().map(|it| AutoParameter { name: it.name, hint: it.value_hint }).collect();
    Ok((all.into_iter().map(|(range, ..)| range).collect(), auto))
}

fn name(name: &str, path: &str, names: &mut BTreeSet<String>) -> Result<(), Error> {
    if name.is_empty() {
        return refuse(path, "it is empty; give the hyperparameter's name");
    }
    if name == super::OBJECTIVE_HYPERPARAMETER {
        return refuse(path, "the service sets this hyperparameter itself; choose another name");
    }
    if !names.insert(name.to_owned()) {
        return refuse(path, &format!("the hyperparameter '{name}' has a range already; give it one"));
    }
    Ok(())
}

fn integer(range: &request::NumericRange, path: &str) -> Result<ParameterRange, Error> {
    let number = |text: &str, member: &str| {
        text.trim()
            .parse::<i64>()
            .or_else(|_| refuse(&format!("{path}.{member}"), &format!("'{text}' is not a whole number")))
    };
    let (min, max) = (number(&range.min_value, "minValue")?, number(&range.max_value, "maxValue")?);
    if min > max {
        return reversed(range, path);
    }
    let scaling = range.scaling_type;
    match scaling {
        ScalingType::Logarithmic if min <= 0 => return not_positive(range, path),
        ScalingType::ReverseLogarithmic => {
            return refuse(
                &format!("{path}.scalingType"),
                "ReverseLogarithmic is for continuous parameters with 0 <= values < 1, not for integer ones; use \
                 Linear or Logarithmic",
            );
        }
        _ => {}
    }
    Ok(ParameterRange { name: range.name.clone(), values: RangeValues::Integer { min, max, scaling } })
}

fn continuous(range: &request::NumericRange, path: &str) -> Result<ParameterRange, Error> {
    let number = |text: &str, member: &str| match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => refuse(&format!("{path}.{member}"), &format!("'{text}' is not a finite number")),
    };
    let (min, max) = (number(&range.min_value, "minValue")?, number(&range.max_value, "maxValue")?);
    if min > max {
        return reversed(range, path);
    }
    if !(max - min).is_finite() {
        return refuse(&format!("{path}.maxValue"), "the range is too wide for its width to be a number; narrow it");
    }
    let scaling = range.scaling_type;
    match scaling {
        ScalingType::Logarithmic if min <= 0.0 => return not_positive(range, path),
        ScalingType::ReverseLogarithmic if min < 0.0 || max >= 1.0 => {
            return refuse(
                &format!("{path}.scalingType"),
                &format!(
                    "ReverseLogarithmic needs 0 <= values < 1, and '{}' goes from {} to {}; use Linear, or narrow the \
                     range",
                    range.name, range.min_value, range.max_value
                ),
            );
        }
        _ => {}
    }
    Ok(ParameterRange { name: range.name.clone(), values: RangeValues::Continuous { min, max, scaling } })
}

fn categorical(range: request::CategoricalRange, path: &str) -> Result<ParameterRange, Error> {
    for (at, value) in range.values.iter().enumerate() {
        if range.values[..at].contains(value) {
            return refuse(&format!("{path}.values"), &format!("the value '{value}' is there twice"));
        }
        if value.contains('\0') {
            return refuse(&format!("{path}.values"), "a value has a NUL character, which no program can be given");
        }
    }
    Ok(ParameterRange { name: range.name, values: RangeValues::Categorical(range.values) })
}

fn reversed<T>(range: &request::NumericRange, path: &str) -> Result<T, Error> {
    refuse(
        &format!("{path}.minValue"),
        &format!(
            "the minimum of '{}', {}, is greater than its maximum, {}",
            range.name, range.min_value, range.max_value
        ),
    )
}

fn not_positive<T>(range: &request::NumericRange, path: &str) -> Result<T, Error> {
    refuse(
        &format!("{path}.scalingType"),
        &format!(
            "Logarithmic needs values greater than 0, and '{}' begins at {}; use Linear, or raise MinValue",
            range.name, range.min_value
        ),
    )
}
