//! The one validator: walks a request along its shape in the constraint table.
//!
//! Messages are AWS's own, with every violation in one answer; a name that is nearly one of a few
//! is followed by the one that was meant. What AWS's JSON reader refuses (a number where a text
//! belongs) is a `SerializationException` here too; members that are null or unknown are dropped,
//! as it does.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    Error, ErrorCode,
    shape::{Member, Shape},
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
                    violations.push(violation(
                        &entry,
                        path,
                        &format!("Map keys must satisfy constraint: [{constraints}]"),
                    ));
                }
                let Some(constraints) = constraints(shape) else {
                    walk(shape, value, &format!("{path}.{name}.member"), violations)?;
                    continue;
                };
                if !broken(shape, value, &format!("{path}.{name}"))?.is_empty() {
                    violations.push(violation(
                        &entry,
                        path,
                        &format!("Map value must satisfy constraint: [{constraints}]"),
                    ));
                }
            }
            Ok(())
        }
        scalar => {
            let broken = broken(scalar, value, path)?;
            violations
                .extend(broken.iter().map(|constraint| violation(&format!("'{}'", shown(value)), path, constraint)));
            Ok(())
        }
    }
}

fn structure(
    members: &'static [Member],
    value: &mut Value,
    path: &str,
    violations: &mut Vec<String>,
) -> Result<(), Error> {
    let Value::Object(given) = value else { return Err(mistyped(value, "a Structure", path)) };
    given.retain(|name, value| !value.is_null() && members.iter().any(|member| member.name == name));
    for member in members {
        let path =
            if path.is_empty() { lower_camel(member.name) } else { format!("{path}.{}", lower_camel(member.name)) };
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

/// The constraints that a single value breaks. A whole number written with a fraction of zero
/// becomes an integer.
fn broken(shape: &Shape, value: &mut Value, path: &str) -> Result<Vec<String>, Error> {
    Ok(match shape {
        Shape::String { min, max, pattern } => {
            let Value::String(text) = value else { return Err(mistyped(value, "a String", path)) };
            let length = text.chars().count() as u64;
            let pattern = pattern.as_ref().filter(|pattern| !pattern.matches(text));
            let pattern =
                pattern.map(|pattern| format!("Member must satisfy regular expression pattern: {}", pattern.source()));
            [above(length, *max), below(length, *min), pattern].into_iter().flatten().collect()
        }
        Shape::Enum(choices) => {
            let Value::String(text) = value else { return Err(mistyped(value, "a String", path)) };
            let known = choices.contains(&text.as_str());
            let meant = || shoal_tuner::near(text, choices.iter().copied());
            let refusal = || format!("Member must satisfy enum value set: [{}]{}", nearest(choices, text), meant());
            if known { Vec::new() } else { vec![refusal()] }
        }
        Shape::Number { bits, min, max } => {
            let kind = match bits {
                Some(64) => "a Long",
                Some(_) => "an Integer",
                None => "a Float",
            };
            let whole = bits.map(|bits| whole(value, bits));
            if let Some(whole) = whole {
                *value = whole.map(Value::from).ok_or_else(|| mistyped(value, kind, path))?;
            }
            let number = value.as_f64().ok_or_else(|| mistyped(value, kind, path))?;
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

/// A whole number of so many bits, however it is written.
fn whole(value: &Value, bits: u8) -> Option<i64> {
    /// Up to here doubles hold every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = value.as_i64().or_else(|| {
        value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|number| number as i64)
    });
    whole.filter(|number| bits == 64 || i32::try_from(*number).is_ok())
}

/// All constraints of a text, as AWS lists them for members of lists and maps; `None` for shapes
/// that have their own paths.
fn constraints(shape: &Shape) -> Option<String> {
    let mut all = Vec::new();
    match shape {
        Shape::String { min, max, pattern } => {
            if *max != u64::MAX {
                all.push(format!("Member must have length less than or equal to {max}"));
            }
            all.push(format!("Member must have length greater than or equal to {min}"));
            all.extend(
                pattern
                    .as_ref()
                    .map(|pattern| format!("Member must satisfy regular expression pattern: {}", pattern.source())),
            );
        }
        Shape::Enum(choices) => all.push(format!("Member must satisfy enum value set: [{}]", choices.join(", "))),
        Shape::Number { .. }
        | Shape::Boolean
        | Shape::Timestamp
        | Shape::Structure(_)
        | Shape::List { .. }
        | Shape::Map { .. } => {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pattern::Pattern;

    static NAME: Shape = Shape::String { min: 1, max: 4, pattern: Some(Pattern::new("[a-z]*")) };
    static FREE: Shape = Shape::String { min: 0, max: u64::MAX, pattern: None };
    static COLOUR: Shape = Shape::Enum(&["red", "green"]);
    static COUNT: Shape = Shape::Number { bits: Some(32), min: 1.0, max: 10.0 };
    static SEED: Shape = Shape::Number { bits: Some(64), min: f64::NEG_INFINITY, max: f64::INFINITY };
    static RATE: Shape = Shape::Number { bits: None, min: 0.0, max: 0.5 };
    static FLAG: Shape = Shape::Boolean;
    static TIME: Shape = Shape::Timestamp;
    static NAMES: Shape = Shape::List { min: 1, max: 2, member: &NAME };
    static FLAGS: Shape = Shape::List { min: 0, max: 9, member: &FLAG };
    static LABELS: Shape = Shape::Map { min: 0, max: 2, key: &NAME, value: &NAME };
    static NESTED: Shape = Shape::Map { min: 0, max: 9, key: &FREE, value: &INNER };
    static INNER: Shape = Shape::Structure(&[Member { name: "Name", required: true, shape: &NAME }]);
    static INNERS: Shape = Shape::List { min: 0, max: 2, member: &INNER };
    static ROOT: Shape = Shape::Structure(&[
        Member { name: "Free", required: false, shape: &FREE },
        Member { name: "Name", required: false, shape: &NAME },
        Member { name: "Colour", required: false, shape: &COLOUR },
        Member { name: "Count", required: false, shape: &COUNT },
        Member { name: "Seed", required: false, shape: &SEED },
        Member { name: "Rate", required: false, shape: &RATE },
        Member { name: "Flag", required: false, shape: &FLAG },
        Member { name: "Time", required: false, shape: &TIME },
        Member { name: "Names", required: false, shape: &NAMES },
        Member { name: "Flags", required: false, shape: &FLAGS },
        Member { name: "Labels", required: false, shape: &LABELS },
        Member { name: "Nested", required: false, shape: &NESTED },
        Member { name: "Inner", required: false, shape: &INNER },
        Member { name: "Inners", required: false, shape: &INNERS },
    ]);

    #[test]
    fn what_fits_passes_and_is_cleaned() {
        let check = |given: Value, expected: Value| {
            let mut value = given.clone();
            assert_eq!(validate(&ROOT, &mut value), Ok(()), "{given}");
            assert_eq!(value, expected, "{given}");
        };
        let all = json!({"Free": "any\nthing", "Name": "abcd", "Colour": "red", "Count": 10, "Seed": -7, "Flag": false, "Time": 1.5, "Names": ["a"],
            "Flags": [true], "Labels": {"a": "b"}, "Nested": {"x": {"Name": "a"}}, "Inner": {"Name": "a"}, "Inners": [{"Name": "a"}, {"Name": "b"}]});
        check(all.clone(), all);
        check(json!({}), json!({}));
        check(json!({"Name": null, "Unknown": {"x": 1}, "Labels": {"a": null}}), json!({"Labels": {}}));
        check(json!({"Inner": {"Name": "a", "Unknown": 1}}), json!({"Inner": {"Name": "a"}}));
        check(json!({"Rate": 0.25}), json!({"Rate": 0.25}));
        check(json!({"Rate": 0}), json!({"Rate": 0}));
        check(json!({"Seed": i64::MIN}), json!({"Seed": i64::MIN}));
        check(json!({"Count": 3.0}), json!({"Count": 3}));
        check(json!({"Labels": {}, "Inners": []}), json!({"Labels": {}, "Inners": []}));
    }

    #[test]
    fn violations_are_told_as_aws_tells_them() {
        let check = |given: Value, expected: &str| {
            let error = validate(&ROOT, &mut given.clone()).expect_err("a violation");
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::ValidationException, expected), "{given}");
        };
        let pattern = "Member must satisfy regular expression pattern: [a-z]*";
        let texts = format!(
            "Member must have length less than or equal to 4, Member must have length greater than or equal to 1, \
             {pattern}"
        );
        let one = |value: &str, path: &str, constraint: &str| {
            format!(
                "1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: {constraint}"
            )
        };
        check(json!({"Name": ""}), &one("", "name", "Member must have length greater than or equal to 1"));
        check(json!({"Name": "abcde"}), &one("abcde", "name", "Member must have length less than or equal to 4"));
        check(json!({"Name": "A"}), &one("A", "name", pattern));
        check(json!({"Colour": "blue"}), &one("blue", "colour", "Member must satisfy enum value set: [red, green]"));
        check(
            json!({"Colour": "Geen"}),
            &one("Geen", "colour", "Member must satisfy enum value set: [red, green]; did you mean green?"),
        );
        check(json!({"Count": 0}), &one("0", "count", "Member must have value greater than or equal to 1"));
        check(json!({"Count": 11}), &one("11", "count", "Member must have value less than or equal to 10"));
        check(json!({"Rate": 0.75}), &one("0.75", "rate", "Member must have value less than or equal to 0.5"));
        check(json!({"Rate": -1}), &one("-1", "rate", "Member must have value greater than or equal to 0"));
        check(json!({"Names": []}), &one("[]", "names", "Member must have length greater than or equal to 1"));
        check(
            json!({"Names": ["a", "b", "c"]}),
            &one("[a, b, c]", "names", "Member must have length less than or equal to 2"),
        );
        check(
            json!({"Names": ["a", "B"]}),
            &one("[B]", "names", &format!("Member must satisfy constraint: [{texts}]")),
        );
        check(
            json!({"Labels": {"A": "b"}}),
            &one("{A=b}", "labels", &format!("Map keys must satisfy constraint: [{texts}]")),
        );
        check(
            json!({"Labels": {"a": "B"}}),
            &one("{a=B}", "labels", &format!("Map value must satisfy constraint: [{texts}]")),
        );
        check(
            json!({"Labels": {"a": "b", "b": "b", "c": "b"}}),
            &one("{3 entries}", "labels", "Member must have length less than or equal to 2"),
        );
        check(json!({"Nested": {"x": {"Name": "A"}}}), &one("A", "nested.x.member.name", pattern));
        check(json!({"Inners": [{"Name": "a"}, {"Name": "B"}]}), &one("B", "inners.2.member.name", pattern));
        let missing = "1 validation error detected: Value null at 'inner.name' failed to satisfy constraint: Member \
                       must not be null";
        check(json!({"Inner": {}}), missing);
        check(json!({"Inner": {"Name": null}}), missing);
        check(
            json!({"Name": "ABCDE", "Count": 0}),
            "3 validation errors detected: Value 'ABCDE' at 'name' failed to satisfy constraint: Member must have \
             length less than or equal to 4; \
             Value 'ABCDE' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: \
             [a-z]*; \
             Value '0' at 'count' failed to satisfy constraint: Member must have value greater than or equal to 1",
        );
    }

    #[test]
    fn wrong_json_types_are_not_validated_further() {
        let check = |given: Value, expected: &str| {
            let error = validate(&ROOT, &mut given.clone()).expect_err("a wrong type");
            assert_eq!((error.code, error.message.as_str()), (ErrorCode::SerializationException, expected), "{given}");
        };
        check(json!([]), "START_ARRAY can not be converted to a Structure");
        check(json!({"Name": 1}), "NUMBER_VALUE can not be converted to a String at 'name'");
        check(json!({"Colour": true}), "TRUE_VALUE can not be converted to a String at 'colour'");
        check(json!({"Count": "1"}), "STRING_VALUE can not be converted to an Integer at 'count'");
        check(json!({"Count": 1.5}), "NUMBER_VALUE can not be converted to an Integer at 'count'");
        check(json!({"Count": 3_000_000_000_u64}), "NUMBER_VALUE can not be converted to an Integer at 'count'");
        check(json!({"Seed": 1e300}), "NUMBER_VALUE can not be converted to a Long at 'seed'");
        check(json!({"Seed": u64::MAX}), "NUMBER_VALUE can not be converted to a Long at 'seed'");
        check(json!({"Rate": "0.1"}), "STRING_VALUE can not be converted to a Float at 'rate'");
        check(json!({"Flag": "true"}), "STRING_VALUE can not be converted to a Boolean at 'flag'");
        check(json!({"Time": "2026-11-21"}), "STRING_VALUE can not be converted to a Timestamp at 'time'");
        check(json!({"Names": {}}), "START_OBJECT can not be converted to a List at 'names'");
        check(json!({"Names": [null]}), "NULL_VALUE can not be converted to a String at 'names'");
        check(json!({"Flags": [1]}), "NUMBER_VALUE can not be converted to a Boolean at 'flags.1.member'");
        check(json!({"Labels": []}), "START_ARRAY can not be converted to a Map at 'labels'");
        check(json!({"Labels": {"a": 1}}), "NUMBER_VALUE can not be converted to a String at 'labels.a'");
        check(json!({"Inner": "x"}), "STRING_VALUE can not be converted to a Structure at 'inner'");
        check(json!({"Inners": [false]}), "FALSE_VALUE can not be converted to a Structure at 'inners.1.member'");
    }

    #[test]
    fn messages_stay_short() {
        let told = |mut given: Value| validate(&ROOT, &mut given).expect_err("a violation").message;
        let long = told(json!({"Name": "é".repeat(100_000)}));
        assert!(long.len() < 2000 && long.contains("..."), "{} bytes", long.len());
        let many = json!({"Inners": vec![json!({"Name": "A"}); 100]});
        let many = told(many);
        assert!(many.starts_with("101 validation errors detected: ") && many.len() < 2000, "{} bytes", many.len());
        let types: Vec<String> = (0..100).map(|at| format!("ml.x{at}.large")).collect();
        let types: Vec<&str> = types.iter().map(String::as_str).chain(["ml.m5.xlarge", "ml.m5.large"]).collect();
        let nearest = nearest(&types, "ml.m5.xlrge");
        assert!(
            nearest.starts_with("ml.m5.xlarge, ml.m5.large, ") && nearest.ends_with("... (102 values)"),
            "{nearest}"
        );
    }
}
