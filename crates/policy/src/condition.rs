//! Conditions: an operator, a key of the request, and values.

use serde_json::Value;

use crate::{PolicyError, evaluate::Request, pattern::Pattern};

/// All that a document may ask of a request; names of tags follow those that end in `/`. A
/// condition on anything else would never hold, which in a deny would be an open door.
const KEYS: [&str; 7] = [
    "aws:requesttag/",
    "aws:resourcetag/",
    "sagemaker:resourcetag/",
    "aws:tagkeys",
    "aws:principalarn",
    "aws:username",
    "s3:prefix",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equals,
    EqualsIgnoreCase,
    Like,
    Arn,
    /// The key is missing.
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    One,
    AnyValue,
    AllValues,
}

/// One line of a `Condition`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    compare: Compare,
    is_negated: bool,
    if_exists: bool,
    of: Of,
    /// In lower case, but for the name of a tag.
    key: String,
    values: Vec<Pattern>,
}

/// The key as requests have it: names of tags keep their case.
fn normal(key: &str) -> String {
    match key.split_once('/') {
        Some((prefix, tag)) => format!("{}/{tag}", prefix.to_ascii_lowercase()).replace("sagemaker:", "aws:"),
        None => key.to_ascii_lowercase(),
    }
}

impl Condition {
    /// The lines of a `Condition` element.
    pub(crate) fn all(element: &Value) -> Result<Vec<Self>, PolicyError> {
        let wrong =
            || PolicyError::new("Condition is an object of operators, each an object of keys and values".into());
        let mut all = Vec::new();
        for (operator, lines) in element.as_object().ok_or_else(wrong)? {
            for (key, values) in lines.as_object().ok_or_else(wrong)? {
                all.push(Self::of(operator, key, values)?);
            }
        }
        Ok(all)
    }

    fn of(operator: &str, key: &str, values: &Value) -> Result<Self, PolicyError> {
        let (of, rest) = match operator.split_once(':') {
            Some(("ForAnyValue", rest)) => (Of::AnyValue, rest),
            Some(("ForAllValues", rest)) => (Of::AllValues, rest),
            _ => (Of::One, operator),
        };
        let (plain, if_exists) = rest.strip_suffix("IfExists").map_or((rest, false), |plain| (plain, true));
        let (compare, is_negated) = match plain {
            "StringEquals" => (Compare::Equals, false),
            "StringNotEquals" => (Compare::Equals, true),
            "StringEqualsIgnoreCase" => (Compare::EqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Compare::EqualsIgnoreCase, true),
            "StringLike" => (Compare::Like, false),
            "StringNotLike" => (Compare::Like, true),
            "ArnEquals" | "ArnLike" => (Compare::Arn, false),
            "ArnNotEquals" | "ArnNotLike" => (Compare::Arn, true),
            "Null" if !if_exists && of == Of::One => (Compare::Null, false),
            _ => return Err(PolicyError::new(format!("the condition operator '{operator}' is not evaluated here"))),
        };
        let key = normal(key);
        let lower = key.to_ascii_lowercase();
        if !KEYS.iter().any(|known| if known.ends_with('/') { lower.starts_with(known) } else { lower == *known }) {
            return Err(PolicyError::new(format!(
                "the condition key '{key}' is not evaluated here; there are aws:RequestTag/.., aws:ResourceTag/.., \
                 aws:TagKeys, aws:PrincipalArn, aws:username and s3:prefix"
            )));
        }
        if key == "aws:tagkeys" && of == Of::One && compare != Compare::Null {
            return Err(PolicyError::new(
                "aws:TagKeys has several values: write ForAnyValue: or ForAllValues: before the operator".into(),
            ));
        }
        let is_literal = !matches!(compare, Compare::Like | Compare::Arn);
        let value = |value: &Value| match (value, compare) {
            (Value::Bool(is_missing), Compare::Null) => Pattern::of(&is_missing.to_string(), true),
            (Value::String(text), Compare::Null) if !matches!(text.as_str(), "true" | "false") => {
                Err(PolicyError::new("the value of Null is true or false".into()))
            }
            (Value::String(text), Compare::EqualsIgnoreCase) => Pattern::of(&text.to_lowercase(), true),
            (Value::String(text), _) => Pattern::of(text, is_literal),
            _ => Err(PolicyError::new(format!("values of '{key}' are texts"))),
        };
        let values = match values {
            Value::Array(values) => values.iter().map(value).collect::<Result<Vec<_>, _>>()?,
            one => vec![value(one)?],
        };
        if values.is_empty() {
            return Err(PolicyError::new(format!("'{key}' is compared with nothing")));
        }
        Ok(Self { compare, is_negated, if_exists, of, key, values })
    }

    /// It names one caller or a few.
    pub(crate) fn names_callers(&self) -> bool {
        let is_of_caller = matches!(self.key.as_str(), "aws:principalarn" | "aws:username");
        is_of_caller
            && !self.is_negated
            && !self.if_exists
            && self.of == Of::One
            && self.compare != Compare::Null
            && self.values.iter().all(|value| !value.has_wildcards())
    }

    pub(crate) fn holds(&self, request: &Request<'_>) -> bool {
        let present = request.values(&self.key);
        if self.compare == Compare::Null {
            let is_missing = if present.is_empty() { "true" } else { "false" };
            return self.values.iter().any(|value| value.fits(is_missing, None));
        }
        if present.is_empty() {
            // A request without the key differs from every value.
            return self.is_negated && self.of != Of::AnyValue || self.if_exists || self.of == Of::AllValues;
        }
        let one = |text: &&str| self.values.iter().any(|value| self.compares(value, text, request)) != self.is_negated;
        match self.of {
            Of::One | Of::AnyValue => present.iter().any(one),
            Of::AllValues => present.iter().all(one),
        }
    }

    fn compares(&self, value: &Pattern, text: &str, request: &Request<'_>) -> bool {
        match self.compare {
            Compare::EqualsIgnoreCase => value.fits(&text.to_lowercase(), request.username()),
            Compare::Equals | Compare::Like | Compare::Arn | Compare::Null => value.fits(text, request.username()),
        }
    }
}
