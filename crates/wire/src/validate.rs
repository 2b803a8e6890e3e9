//! The one validator: walks a request along its shape in the constraint table.
//!
//! Messages are AWS's own, with every violation in one answer. What AWS's JSON reader refuses (a number where a text belongs) is a
//! `SerializationException` here too; members that are null or unknown are dropped, as it does.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    Error, ErrorCode,
    constraints::{Member, Shape},
};

/// Violations told in one message; the rest is counted.
const MOST_TOLD: usize = 10;
/// Characters shown of a value.
const MOST_SHOWN: usize = 256;
/// Names shown of a long list of allowed values.
const MOST_CHOICES: usize = 12;

/// Checks a request and drops members that are null or unknown.
///
/// # Errors
/// A value of the wrong JSON type, or the list of all violated constraints.
pub(crate) fn validate(shape: &Shape, request: &mut Value) -> Result<(), Error> {
    let mut violations = Vec::new();
    walk(shape, request, "", &mut violations)?;
    let told = match violations.as_slice() {
        [] => return Ok(()),
        [one] => format!("1 validation error detected: {one}"),
        all => format!("{} validation errors detected: {}", all.len(), all[..all.len().min(MOST_TOLD)].join("; ")),
    };
    Err(Error::validation(told))
}

fn walk(shape: &Shape, value: &mut Value, path: &str, violations: &mut Vec<String>) -> Result<(), Error> {
    match shape {
        Shape::Structure(members) => structure(members, value, path, violations),
        Shape::List { min, max, member } => {
            let Value::Array(items) = value else { return Err(mistyped(value, "a List", path)) };
            size(items.len(), *min, *max, || list_text(items), path, violations);
            if let Some(constraints) = constraints(member) {
                for item in items.iter_mut() {
                    if !broken(member, item, path)?.is_empty() {
                        violations.push(violation(
                            &format!("'[{}]'", shown(item)),
                            path,
                            &format!("Member must satisfy constraint: [{constraints}]"),
                        ));
                    }
                }
                return Ok(());
            }
            for (at, item) in items.iter_mut().enumerate() {
                walk(member, item, &format!("{path}.{}.member", at + 1), violations)?;
            }
            Ok(())
        }
        Shape::Map { min, max, key, value: shape } => {
            let Value::Object(entries) = value else { return Err(mistyped(value, "a Map", path)) };
            entries.retain(|_, value| !value.is_null());
            size(entries.len(), *min, *max, || format!("{{{} entries}}", entries.len()), path, violations);
            for (name, value) in entries.iter_mut() {
                let entry = format!("'{{{}={}}}'", clipped(name), shown(value));
                if !broken(key, &mut Value::String(name.clone()), path)?.is_empty() {
                    let constraints = constraints(key).unwrap_or_default();
                    violations.push(violation(&entry, path, &format!("Map keys must satisfy constraint: [{constraints}]")));
                }
                let Some(constraints) = constraints(shape) else {
                    walk(shape, value, &format!("{path}.{name}.member"), violations)?;
                    continue;
                };
                if !broken(shape, value, &format!("{path}.{name}"))?.is_empty() {
                    violations.push(violation(&entry, path, &format!("Map value must satisfy constraint: [{constraints}]")));
                }
            }
            Ok(())
        }
        scalar => {
            let broken = broken(scalar, value, path)?;
            violations.extend(broken.iter().map(|constraint| violation(&format!("'{}'", shown(value)), path, constraint)));
            Ok(())
        }
    }
}

fn structure(members: &'static [Member], value: &mut Value, path: &str, violations: &mut Vec<String>) -> Result<(), Error> {
    let Value::Object(given) = value else { return Err(mistyped(value, "a Structure", path)) };
    given.retain(|name, value| !value.is_null() && members.iter().any(|member| member.name == name));
    for member in members {
        let path = if path.is_empty() { lower_camel(member.name) } else { format!("{path}.{}", lower_camel(member.name)) };
        match given.get_mut(member.name) {
            Some(value) => walk(member.shape, value, &path, violations)?,
            None if member.required => violations.push(violation("null", &path, "Member must not be null")),
            None => {}
        }
    }
    Ok(())
}

fn size(length: usize, min: u64, max: u64, text: impl Fn() -> String, path: &str, violations: &mut Vec<String>) {
    for constraint in [above(length as u64, max), below(length as u64, min)].into_iter().flatten() {
        violations.push(violation(&format!("'{}'", text()), path, &constraint));
    }
}

fn above(length: u64, max: u64) -> Option<String> {
    (length > max).then(|| format!("Member must have length less than or equal to {max}"))
}

fn below(length: u64, min: u64) -> Option<String> {
    (length < min).then(|| format!("Member must have length greater than or equal to {min}"))
}

/// The constraints that a single value breaks. A whole number written with a fraction of zero becomes an integer.
fn broken(shape: &Shape, value: &mut Value, path: &str) -> Result<Vec<String>, Error> {
    Ok(match shape {
        Shape::String { min, max, pattern } => {
            let Value::String(text) = value else { return Err(mistyped(value, "a String", path)) };
            let length = text.chars().count() as u64;
            let pattern = pattern.as_ref().filter(|pattern| !pattern.matches(text));
            let pattern = pattern.map(|pattern| format!("Member must satisfy regular expression pattern: {}", pattern.source()));
            [above(length, *max), below(length, *min), pattern].into_iter().flatten().collect()
        }
        Shape::Enum(choices) => {
            let Value::String(text) = value else { return Err(mistyped(value, "a String", path)) };
            let known = choices.contains(&text.as_str());
            if known { Vec::new() } else { vec![format!("Member must satisfy enum value set: [{}]", nearest(choices, text))] }
        }
        Shape::Integer { bits, min, max } => {
            let number = whole(value).ok_or_else(|| mistyped(value, if *bits == 64 { "a Long" } else { "an Integer" }, path))?;
            if *bits == 32 && i32::try_from(number).is_err() {
                return Err(mistyped(value, "an Integer", path));
            }
            *value = Value::from(number);
            let above = (number > *max).then(|| format!("Member must have value less than or equal to {max}"));
            let below = (number < *min).then(|| format!("Member must have value greater than or equal to {min}"));
            above.into_iter().chain(below).collect()
        }
        Shape::Boolean if value.is_boolean() => Vec::new(),
        Shape::Boolean => return Err(mistyped(value, "a Boolean", path)),
        Shape::Timestamp if value.is_number() => Vec::new(),
        Shape::Timestamp => return Err(mistyped(value, "a Timestamp", path)),
        Shape::Structure(_) | Shape::List { .. } | Shape::Map { .. } => Vec::new(),
    })
}

fn whole(value: &Value) -> Option<i64> {
    /// Up to here doubles hold every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|number| number as i64))
}

/// All constraints of a text, as AWS lists them for members of lists and maps; `None` for shapes that have their own paths.
fn constraints(shape: &Shape) -> Option<String> {
    let mut all = Vec::new();
    match shape {
        Shape::String { min, max, pattern } => {
            if *max != u64::MAX {
                all.push(format!("Member must have length less than or equal to {max}"));
            }
            all.push(format!("Member must have length greater than or equal to {min}"));
            all.extend(pattern.as_ref().map(|pattern| format!("Member must satisfy regular expression pattern: {}", pattern.source())));
        }
        Shape::Enum(choices) => all.push(format!("Member must satisfy enum value set: [{}]", choices.join(", "))),
        Shape::Integer { min, max, .. } => {
            all.push(format!("Member must have value less than or equal to {max}"));
            all.push(format!("Member must have value greater than or equal to {min}"));
        }
        Shape::Boolean | Shape::Timestamp | Shape::Structure(_) | Shape::List { .. } | Shape::Map { .. } => {
            return None;
        }
    }
    Some(all.join(", "))
}

fn violation(value: &str, path: &str, constraint: &str) -> String {
    format!("Value {value} at '{path}' failed to satisfy constraint: {constraint}")
}

/// `TrainingJobName` becomes `trainingJobName`.
fn lower_camel(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

fn mistyped(value: &Value, wanted: &str, path: &str) -> Error {
    let token = match value {
        Value::Null => "NULL_VALUE",
        Value::Bool(true) => "TRUE_VALUE",
        Value::Bool(false) => "FALSE_VALUE",
        Value::Number(_) => "NUMBER_VALUE",
        Value::String(_) => "STRING_VALUE",
        Value::Array(_) => "START_ARRAY",
        Value::Object(_) => "START_OBJECT",
    };
    let place = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
    Error::new(ErrorCode::SerializationException, format!("{token} can not be converted to {wanted}{place}"))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => clipped(text),
        other => clipped(&other.to_string()),
    }
}

fn list_text(items: &[Value]) -> String {
    let texts: Vec<String> = items.iter().take(MOST_CHOICES).map(shown).collect();
    format!("[{}{}]", texts.join(", "), if items.len() > MOST_CHOICES { ", ..." } else { "" })
}

/// All choices if they are few, else those that begin most like what was given.
fn nearest(choices: &[&str], given: &str) -> String {
    if choices.len() <= MOST_CHOICES * 2 {
        return choices.join(", ");
    }
    let alike = |choice: &str| choice.bytes().zip(given.bytes()).take_while(|(one, other)| one == other).count();
    let mut sorted: Vec<&str> = choices.to_vec();
    sorted.sort_by_key(|choice| std::cmp::Reverse(alike(choice)));
    let mut text = sorted[..MOST_CHOICES].join(", ");
    write!(text, ", ... ({} values)", choices.len()).expect("a string takes all");
    text
}
