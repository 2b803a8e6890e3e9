//! Values as Python writes them: what its `str()` makes of what its `json.loads` has read.

use serde_json::Value;

/// `json.loads(text)`, or the text itself where it is no JSON: how toolkits read each
/// hyperparameter.
pub(crate) fn decoded(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// `str(value)`: a string is itself, everything else as [`repr`] has it.
pub(crate) fn str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => repr(other),
    }
}

/// `repr(value)`, members of objects in the order of their names.
fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => repr_of_float(float),
            None => number.to_string(),
        },
        Value::String(text) => repr_of_string(text),
        Value::Array(values) => format!("[{}]", Vec::from_iter(values.iter().map(repr)).join(", ")),
        Value::Object(members) => {
            let mut members = Vec::from_iter(members);
            members.sort_by_key(|(name, _)| *name);
            let members = members.into_iter().map(|(name, value)| format!("{}: {}", repr_of_string(name), repr(value)));
            format!("{{{}}}", Vec::from_iter(members).join(", "))
        }
    }
}

/// The shortest digits that read back as the same number; with an exponent of two digits at least
/// where that is below -4 or from 16 on.
pub(crate) fn repr_of_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent @ (..=-5 | 16..)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ if float.fract() == 0.0 => format!("{float:.1}"),
        _ => float.to_string(),
    }
}

/// Single quotes, unless there are such in it and no double ones.
fn repr_of_string(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut repr = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => repr.push_str("\\\\"),
            '\n' => repr.push_str("\\n"),
            '\r' => repr.push_str("\\r"),
            '\t' => repr.push_str("\\t"),
            _ if character == quote => repr.extend(['\\', quote]),
            _ if character.is_ascii_control() => repr.push_str(&format!("\\x{:02x}", u32::from(character))),
            _ => repr.push(character),
        }
    }
    repr.push(quote);
    repr
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `python3 -c 'import json, sys; print(str(json.loads(sys.argv[1])))'` prints.
    #[test]
    fn values_are_written_as_python_writes_them() {
        for (json, expected) in [
            ("\"plain\"", "plain"),
            ("true", "True"),
            ("null", "None"),
            ("3", "3"),
            ("-0.5", "-0.5"),
            ("1.0", "1.0"),
            ("1e-4", "0.0001"),
            ("0.00001", "1e-05"),
            ("1.5e-7", "1.5e-07"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.5e300", "1.5e+300"),
            ("0.1", "0.1"),
            ("18446744073709551615", "18446744073709551615"),
            ("[1, \"a\", null, [true]]", "[1, 'a', None, [True]]"),
            ("[\"it's\", \"\\\"\", \"'\\\"\", \"a\\tb\\\\\"]", "[\"it's\", '\"', '\\'\"', 'a\\tb\\\\']"),
            ("{\"b\": 1, \"a\": {\"x\": 1e-5}}", "{'a': {'x': 1e-05}, 'b': 1}"),
            ("[]", "[]"),
            ("{}", "{}"),
        ] {
            assert_eq!(str(&decoded(json)), expected, "{json}");
        }
        assert_eq!(str(&decoded("no json")), "no json");
    }
}
