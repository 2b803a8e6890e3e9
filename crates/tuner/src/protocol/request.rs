//! Requests, one JSON object a line. What every ask and tell carries is read without a copy.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// All fields of all requests; each operation looks at its own.
#[derive(Debug, Deserialize)]
pub(super) struct Request<'a> {
    #[serde(borrow, default)]
    pub(super) op: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) resource: Option<u32>,
    /// Outer: whether it is there. Inner: null is a failure.
    #[serde(default, deserialize_with = "there")]
    pub(super) value: Option<Option<f64>>,
    pub(super) values: Option<Vec<Option<f64>>>,
    pub(super) config: Option<Map<String, Value>>,
}

#[expect(clippy::option_option, reason = "null and absent are different things here")]
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Request<'_> {
    /// Values of the objectives as they were sent, null as not a number; none: the request has no
    /// value.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        match (&self.values, self.value) {
            (Some(values), _) => Some(values.iter().map(|value| value.unwrap_or(f64::NAN)).collect()),
            (None, value) => value.map(|value| vec![value.unwrap_or(f64::NAN)]),
        }
    }
}

/// What starts a study. Beyond the protocol: `searcher`, `scheduler`, `objectives`, `max_trials`.
#[derive(Debug, Deserialize)]
pub(super) struct Init {
    pub(super) space: Vec<Map<String, Value>>,
    pub(super) seed: Value,
    #[serde(default)]
    pub(super) mode: Mode,
    pub(super) max_resource: Option<u32>,
    pub(super) min_resource: Option<u32>,
    pub(super) eta: Option<u32>,
    pub(super) searcher: Option<Value>,
    pub(super) scheduler: Option<Value>,
    pub(super) objectives: Option<Vec<String>>,
    pub(super) max_trials: Option<u32>,
}

/// Whether trials report on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// One value at the end.
    #[default]
    Single,
    /// One value after every unit of resource.
    Mf,
}

/// Python's `json` writes `NaN` and `Infinity`, which are not JSON: they become null here, outside
/// of strings.
pub(super) fn without_nan(line: &str) -> Option<String> {
    let (mut fixed, mut rest, mut in_string, mut found) = (String::with_capacity(line.len()), line, false, false);
    while let Some(letter) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            found = true;
            fixed.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        let mut taken = letter.len_utf8();
        if letter == '"' {
            in_string = !in_string;
        } else if letter == '\\' && in_string {
            taken += rest[taken..].chars().next().map_or(0, char::len_utf8);
        }
        fixed.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    found.then_some(fixed)
}
