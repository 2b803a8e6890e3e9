//! The query protocol's requests: a form with `Action`, read into the same JSON values that awsJson
//! services send.

use std::collections::BTreeMap;

use http::request::Parts;
use serde_json::{Map, Number, Value};

use crate::{
    Error, ErrorCode,
    shape::{Member, Shape},
    sigv4::percent_decoded,
    timestamp,
};

/// A request's form, or the query string of a GET.
pub(crate) fn request_pairs(head: &Parts, body: &[u8]) -> Result<Vec<(String, String)>, Error> {
    pairs(if body.is_empty() { head.uri.query().unwrap_or_default().as_bytes() } else { body })
}

/// Pairs of a form or a query string.
fn pairs(form: &[u8]) -> Result<Vec<(String, String)>, Error> {
    let malformed = || Error::new(ErrorCode::SerializationException, "The form in the request's body is not UTF-8.");
    let form = std::str::from_utf8(form).map_err(|_| malformed())?;
    let decode = |text: &str| String::from_utf8(percent_decoded(&text.replace('+', " "))).map_err(|_| malformed());
    form.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| Ok((decode(name)?, decode(value)?)))
        .collect()
}

/// An operation's input: `A=x&B.member.1.C=y&D.entry.1.key=k&D.entry.1.value=v` as its shape says.
/// A value that is not what its shape says stays a text, which the validator then refuses;
/// parameters that the shape does not have are left out.
pub(crate) fn input(shape: &Shape, pairs: &[(String, String)]) -> Value {
    let mut form = Form::new();
    for (name, value) in pairs {
        form.entry(name).or_insert(value);
    }
    structure(shape, "", &form)
}

/// The first value of each parameter, in the order of their names: what is below a prefix stands
/// together.
type Form<'a> = BTreeMap<&'a str, &'a str>;

fn structure(shape: &Shape, prefix: &str, form: &Form<'_>) -> Value {
    let Shape::Structure(members) = shape else { return Value::Null };
    let member = |member: &Member| {
        Some((member.name.to_owned(), value(member.shape, &format!("{prefix}{}", member.name), form)?))
    };
    Value::Object(members.iter().filter_map(member).collect::<Map<_, _>>())
}

/// The value at a path; `None` if the form has nothing there.
fn value(shape: &Shape, path: &str, form: &Form<'_>) -> Option<Value> {
    let below = format!("{path}.");
    match shape {
        Shape::Structure(_) => has_below(form, &below).then(|| structure(shape, &below, form)),
        Shape::List { member, .. } => {
            let items = indices(form, &format!("{below}member.")).into_values();
            let items: Vec<Value> = items.filter_map(|path| value(member, &path, form)).collect();
            (!items.is_empty() || form.get(path).is_some_and(|text| text.is_empty())).then_some(Value::Array(items))
        }
        Shape::Map { value: shape, .. } => {
            let entries = indices(form, &format!("{below}entry.")).into_values();
            let entry = |path: String| {
                // SNS names these parts of its message attributes in another way.
                let named = |name: &str| form.get(format!("{path}.{name}").as_str());
                let (key, below) = named("key").map(|key| (key, "value")).or(named("Name").map(|key| (key, "Value")))?;
                Some(((*key).to_owned(), value(shape, &format!("{path}.{below}"), form)?))
            };
            let entries: Map<_, _> = entries.filter_map(entry).collect();
            (!entries.is_empty()).then_some(Value::Object(entries))
        }
        Shape::String { .. } | Shape::Enum(_) => form.get(path).map(|text| Value::from(*text)),
        Shape::Number { .. } => form.get(path).map(|text| number(text).unwrap_or_else(|| Value::from(*text))),
        Shape::Boolean => form.get(path).map(|text| match *text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            other => Value::from(other),
        }),
        Shape::Timestamp => {
            form.get(path).map(|text| timestamp::parse(text).map_or_else(|| Value::from(*text), timestamp::seconds))
        }
    }
}

fn has_below(form: &Form<'_>, prefix: &str) -> bool {
    form.range(prefix..).next().is_some_and(|(name, _)| name.starts_with(prefix))
}

/// The numbered paths below a prefix, in the order of their numbers.
fn indices(form: &Form<'_>, prefix: &str) -> BTreeMap<u32, String> {
    form.range(prefix..)
        .map_while(|(name, _)| name.strip_prefix(prefix))
        .filter_map(|rest| rest.split('.').next()?.parse().ok())
        .map(|index: u32| (index, format!("{prefix}{index}")))
        .collect()
}

fn number(text: &str) -> Option<Value> {
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| text.parse().ok().and_then(Number::from_f64).map(Value::Number))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static TEXT: Shape = Shape::String { min: 0, max: u64::MAX, pattern: None };
    static COUNT: Shape = Shape::Number { bits: Some(32), min: 0.0, max: 9.0 };
    static FLAG: Shape = Shape::Boolean;
    static TIME: Shape = Shape::Timestamp;
    static TEXTS: Shape = Shape::List { min: 0, max: 9, member: &TEXT };
    static INNER: Shape = Shape::Structure(&[
        Member { name: "Text", required: false, shape: &TEXT },
        Member { name: "Count", required: false, shape: &COUNT },
        Member { name: "Texts", required: false, shape: &TEXTS },
    ]);
    static INNERS: Shape = Shape::List { min: 0, max: 9, member: &INNER };
    static LABELS: Shape = Shape::Map { min: 0, max: 9, key: &TEXT, value: &COUNT };
    static ROOT: Shape = Shape::Structure(&[
        Member { name: "Text", required: false, shape: &TEXT },
        Member { name: "Count", required: false, shape: &COUNT },
        Member { name: "Flag", required: false, shape: &FLAG },
        Member { name: "Time", required: false, shape: &TIME },
        Member { name: "Texts", required: false, shape: &TEXTS },
        Member { name: "Inner", required: false, shape: &INNER },
        Member { name: "Inners", required: false, shape: &INNERS },
        Member { name: "Labels", required: false, shape: &LABELS },
    ]);

    #[test]
    fn forms_are_read_along_the_shape() {
        let check = |form: &str, expected: Value| {
            let pairs = pairs(form.as_bytes()).expect("UTF-8");
            assert_eq!(input(&ROOT, &pairs), expected, "{form}");
        };
        check("", json!({}));
        check("Action=X&Version=1&Text=a+b%26", json!({"Text": "a b&"}));
        check("Text=a&Text=b", json!({"Text": "a"}));
        check("Count=3", json!({"Count": 3}));
        check("Count=0.5", json!({"Count": 0.5}));
        check("Count=x", json!({"Count": "x"}));
        check("Count=NaN", json!({"Count": "NaN"}));
        check("Flag=true", json!({"Flag": true}));
        check("Flag=1", json!({"Flag": "1"}));
        check("Time=2026-11-21T07%3A24%3A28.250Z", json!({"Time": 1_795_245_868.25}));
        check("Time=soon", json!({"Time": "soon"}));
        check("Texts.member.1=a&Texts.member.2=b", json!({"Texts": ["a", "b"]}));
        check("Texts.member.10=c&Texts.member.9=b&Texts.member.x=d", json!({"Texts": ["b", "c"]}));
        check("Texts=", json!({"Texts": []}));
        check("Inner.Text=a&Inner.Texts.member.1=b", json!({"Inner": {"Text": "a", "Texts": ["b"]}}));
        check("Inners.member.2.Text=b&Inners.member.1.Count=1", json!({"Inners": [{"Count": 1}, {"Text": "b"}]}));
        check("Labels.entry.1.key=k&Labels.entry.1.value=4&Labels.entry.2.key=alone", json!({"Labels": {"k": 4}}));
        check("Labels.entry.1.Name=k&Labels.entry.1.Value=4", json!({"Labels": {"k": 4}}));
        check("Inner=a&Inners=b&Inners.member.1=c&Texts.1=d", json!({}));
    }
}
