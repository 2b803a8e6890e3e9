//! Spaces and configurations as the protocol's JSON. Values of categorical parameters may be any
//! JSON; they come back as they were sent.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use crate::{Condition, Config, Domain, Parameter, Scaling, Space, SpaceError, Value};

/// A space, and how its names and choices are written.
#[derive(Debug)]
pub struct JsonSpace {
    space: Space,
    /// By parameter: `"name":`.
    keys: Vec<String>,
    /// By parameter: its choices.
    choices: Vec<Vec<Json>>,
    /// By parameter: its choices, written.
    written: Vec<Vec<String>>,
}

/// Rounding that a value may have suffered on its way, relative to the greater end of its range.
const ROUNDING: f64 = 1e-9;

impl JsonSpace {
    /// A space of the protocol's JSON.
    ///
    /// # Errors
    /// The first parameter that makes no sense, and why.
    pub fn new(parameters: &[Map<String, Json>]) -> Result<Self, SpaceError> {
        let space = Space::new(parameters.iter().map(parameter).collect::<Result<_, _>>()?)?;
        let keys = space.parameters().iter().map(|it| format!("{}:", Json::from(it.name.as_str()))).collect();
        let choices: Vec<Vec<Json>> = parameters
            .iter()
            .map(|it| it.get("values").and_then(Json::as_array).cloned().unwrap_or_default())
            .collect();
        let written = choices.iter().map(|choices| choices.iter().map(Json::to_string).collect()).collect();
        Ok(Self { space, keys, choices, written })
    }

    /// What may be tried.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// `{"name":value,...}` of the active parameters.
    pub fn write(&self, config: &Config, out: &mut String) {
        out.push('{');
        let mut comma = "";
        for (index, value) in config.0.iter().enumerate() {
            let Some(value) = value else { continue };
            out.push_str(comma);
            comma = ",";
            out.push_str(&self.keys[index]);
            match value {
                Value::Choice(choice) => out.push_str(&self.written[index][*choice as usize]),
                Value::Int(value) => write!(out, "{value}").expect("strings take all"),
                Value::Float(value) => write_number(*value, out),
            }
        }
        out.push('}');
    }

    /// The configuration of an object. Values of inactive parameters are passed over.
    ///
    /// # Errors
    /// An active parameter has no value, or one that is not its; or the space has no parameter of a
    /// name.
    pub fn read(&self, values: &Map<String, Json>) -> Result<Config, SpaceError> {
        let space = &self.space;
        if let Some(name) = values.keys().find(|name| !space.parameters().iter().any(|it| it.name == **name)) {
            let known: Vec<_> = space.parameters().iter().map(|it| it.name.as_str()).collect();
            return Err(wrong(name, format!("is not in the space; there are: {}", known.join(", "))));
        }
        let mut config = Config(vec![None; self.keys.len()]);
        for &index in space.order() {
            if space.is_active(index, &config) {
                let parameter = &space.parameters()[index];
                let value = values
                    .get(&parameter.name)
                    .ok_or_else(|| wrong(&parameter.name, "has no value in the configuration"))?;
                let value = self.value(index, value).filter(|value| parameter.holds(*value));
                config.0[index] = Some(value.ok_or_else(|| {
                    wrong(&parameter.name, format!("{} is not in its range", values[&parameter.name]))
                })?);
            }
        }
        Ok(config)
    }

    #[expect(clippy::cast_possible_truncation, reason = "checked against the range afterwards")]
    fn value(&self, index: usize, value: &Json) -> Option<Value> {
        match &self.space.parameters()[index].domain {
            Domain::Categorical { .. } => {
                let place = self.choices[index].iter().position(|choice| choice == value)?;
                u32::try_from(place).ok().map(Value::Choice)
            }
            Domain::Integer { .. } => {
                let whole =
                    value.as_i64().or_else(|| value.as_f64().filter(|it| *it == libm::round(*it)).map(|it| it as i64));
                whole.map(Value::Int)
            }
            Domain::Continuous { min, max, .. } => {
                let slack = ROUNDING * libm::fabs(*max).max(1.0);
                let value = value.as_f64().filter(|it| (min - slack..=max + slack).contains(it))?;
                Some(Value::Float(value.clamp(*min, *max)))
            }
        }
    }
}

/// The shortest text that reads back as the same number.
fn write_number(value: f64, out: &mut String) {
    out.push_str(&Json::from(value).to_string());
}

fn wrong(parameter: &str, problem: impl Into<String>) -> SpaceError {
    SpaceError { parameter: parameter.to_owned(), problem: problem.into() }
}

/// The text by which a choice or a condition's value is known inside.
fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn parameter(object: &Map<String, Json>) -> Result<Parameter, SpaceError> {
    let name = object.get("name").and_then(Json::as_str).ok_or_else(|| wrong("?", "needs a \"name\", a string"))?;
    let list = |field: &str, object: &Map<String, Json>| {
        object
            .get(field)
            .and_then(Json::as_array)
            .cloned()
            .ok_or_else(|| wrong(name, format!("needs {field:?}, a list")))
    };
    let real = |field: &str| {
        let value = object.get(field).and_then(|it| it.as_f64().or_else(|| it.as_str()?.trim().parse().ok()));
        value.ok_or_else(|| wrong(name, format!("needs {field:?}, a number")))
    };
    let whole = |field: &str| {
        let value = object
            .get(field)
            .and_then(|it| it.as_i64().or_else(|| it.as_str()?.trim().parse().ok()).or_else(|| whole_number(it)));
        value.ok_or_else(|| wrong(name, format!("needs {field:?}, a whole number")))
    };
    let scaling = || match object.get("scaling") {
        None | Some(Json::Null) => Ok(Scaling::Linear),
        Some(scaling) => serde_json::from_value(scaling.clone()).map_err(|_| {
            wrong(name, format!("has the scaling {scaling}; there are: Linear, Logarithmic, ReverseLogarithmic, Auto"))
        }),
    };
    let domain = match object.get("type").and_then(Json::as_str) {
        Some("continuous") => Domain::Continuous { min: real("min")?, max: real("max")?, scaling: scaling()? },
        Some("integer") => Domain::Integer { min: whole("min")?, max: whole("max")?, scaling: scaling()? },
        Some("categorical") => Domain::Categorical { values: list("values", object)?.iter().map(text).collect() },
        _ => return Err(wrong(name, "needs a \"type\": continuous, integer or categorical")),
    };
    let condition = match object.get("condition") {
        None | Some(Json::Null) => None,
        Some(Json::Object(condition)) => Some(Condition {
            parent: condition
                .get("parent")
                .and_then(Json::as_str)
                .ok_or_else(|| wrong(name, "its condition needs a \"parent\", a string"))?
                .to_owned(),
            values: list("in", condition)?.iter().map(text).collect(),
        }),
        Some(_) => return Err(wrong(name, "its \"condition\" must be an object with \"parent\" and \"in\"")),
    };
    Ok(Parameter { name: name.to_owned(), domain, condition })
}

#[expect(clippy::cast_possible_truncation, reason = "whole, and a saturated end is refused by the range")]
fn whole_number(value: &Json) -> Option<i64> {
    value.as_f64().filter(|it| *it == libm::round(*it)).map(|it| it as i64)
}
