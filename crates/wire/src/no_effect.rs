//! Fields that requests may have and that change nothing here: one table, from which come the
//! refusals of a strict server, the notes in jobs' logs, the response header [`HEADER`] and the
//! page docs/accepted.md. S3's headers are the S3 front's own, and stand on the same page.
//!
//! A field belongs into the table if a client could believe that it did something. Fields that are
//! refused, and values that ask for what happens anyway (an encryption that is switched off), do
//! not.

mod table;

use serde_json::Value;

use crate::{Call, Error, Service, constraints::input, shape::Shape};

pub use table::TABLE;

/// The response header that names the fields of the request that had no effect.
pub const HEADER: &str = "x-shoal-no-effect";

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldWithoutEffect {
    /// Whose operation.
    pub service: Service,
    /// The operations; rows of `CreateTrainingJob` hold for the definitions of a tuning job, too.
    pub operations: &'static [&'static str],
    /// The member as a path from the input, with `[]` behind lists:
    /// `ResourceConfig.VolumeKmsKeyId`.
    pub field: &'static str,
    /// Which of its values have no effect.
    pub values: Values,
    /// Why, for users.
    pub reason: &'static str,
}

/// Which values of a field have no effect. Null, `false` and empty texts, lists and structures ask
/// for nothing in each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// All.
    Any,
    /// All but this text.
    AllBut(&'static str),
    /// All, but requests cannot do without the field: it is documented, and neither refused nor
    /// noted.
    Required,
}

/// A field of one request that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the request.
    pub path: String,
    /// Why, for users.
    pub reason: &'static str,
}

/// The fields of a request that have no effect, in the order of the table. `input` is an
/// operation's input.
#[must_use]
pub fn in_input(service: Service, operation: &str, input: &Value) -> Vec<Found> {
    let mut found = rows_in(service, operation, input, "");
    if (service, operation) == (Service::SageMaker, "CreateHyperParameterTuningJob") {
        let list = input["TrainingJobDefinitions"].as_array();
        let listed = list.into_iter().flatten().map(|definition| (definition, "TrainingJobDefinitions[]."));
        let single = input.get("TrainingJobDefinition").map(|definition| (definition, "TrainingJobDefinition."));
        for (definition, path) in single.into_iter().chain(listed) {
            for field in rows_in(service, "CreateTrainingJob", definition, path) {
                if !found.contains(&field) {
                    found.push(field);
                }
            }
        }
    }
    found
}

/// The fields of a call that have no effect.
#[must_use]
pub fn in_call(call: &Call) -> Vec<Found> {
    in_input(call.operation.service, call.operation.name, &call.input)
}

/// What a strict server answers to a request with such fields.
///
/// # Errors
/// There are some; the message names each with its reason.
pub fn refuse(found: &[Found]) -> Result<(), Error> {
    if found.is_empty() {
        return Ok(());
    }
    let fields: Vec<String> = found.iter().map(|field| format!("{} ({})", field.path, field.reason)).collect();
    Err(Error::validation(format!(
        "This server is strict, and these fields have no effect here: {}. Leave them out, or start the server without \
         --strict.",
        fields.join("; ")
    )))
}

fn rows_in(service: Service, operation: &str, input: &Value, path: &str) -> Vec<Found> {
    TABLE
        .iter()
        .filter(|row| row.service == service && row.operations.contains(&operation) && row.values != Values::Required)
        .filter(|row| row.is_in(input))
        .map(|row| Found { path: format!("{path}{}", row.field), reason: row.reason })
        .collect()
}

impl FieldWithoutEffect {
    fn is_in(&self, input: &Value) -> bool {
        values_at(input, self.field).into_iter().any(|value| self.has_no_effect(value))
    }

    /// Whether a client that gives this value gets less than it asked for.
    #[must_use]
    pub fn has_no_effect(&self, value: &Value) -> bool {
        let asks_for_nothing = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Bool(true) | Value::Number(_) => false,
        };
        !asks_for_nothing
            && match self.values {
                Values::Any | Values::Required => true,
                Values::AllBut(neutral) => value != neutral,
            }
    }

    /// Whether the service's model has the field in each of the row's operations.
    #[must_use]
    pub fn is_in_model(&self) -> bool {
        let has = |operation: &&str| input(self.service, operation).is_some_and(|shape| has_member(shape, self.field));
        self.operations.iter().all(has)
    }
}

/// All values at a path; `[]` stands for each item of a list.
fn values_at<'a>(input: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut values = vec![input];
    for segment in path.split('.') {
        let (name, is_list) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
        values = values.into_iter().filter_map(|value| value.get(name)).collect();
        if is_list {
            values = values.into_iter().filter_map(Value::as_array).flatten().collect();
        }
    }
    values
}

fn has_member(shape: &Shape, path: &str) -> bool {
    let (segment, rest) = path.split_once('.').map_or((path, None), |(segment, rest)| (segment, Some(rest)));
    let (name, is_list) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
    let Shape::Structure(members) = shape else { return false };
    let Some(member) = members.iter().find(|member| member.name == name) else { return false };
    let below = match member.shape {
        Shape::List { member, .. } if is_list => member,
        _ if is_list => return false,
        shape => shape,
    };
    rest.is_none_or(|rest| has_member(below, rest))
}

#[cfg(test)]
mod tests;
