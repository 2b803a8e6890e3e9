//! What the service models say of each operation that is served. The tables below this module are
//! generated; [`crate::Operation`] reads them.

mod budgets;
mod cloudtrail;
mod cloudwatch;
mod iam;
mod logs;
mod sagemaker;
mod sagemaker_metrics;
mod sns;
mod sts;

use crate::{Operation, Service, pattern::Pattern, shape::Shape};

/// What is served of each service model.
pub(crate) static TABLES: [&[Operation]; 9] = [
    budgets::OPERATIONS,
    cloudtrail::OPERATIONS,
    cloudwatch::OPERATIONS,
    iam::OPERATIONS,
    logs::OPERATIONS,
    sagemaker::OPERATIONS,
    sagemaker_metrics::OPERATIONS,
    sns::OPERATIONS,
    sts::OPERATIONS,
];

/// The input of an operation of AWS's; `None` if it is not served.
pub(crate) fn input(service: Service, name: &str) -> Option<&'static Shape> {
    let of = |operation: &&Operation| operation.service == service && operation.name == name;
    TABLES.iter().copied().flatten().find(of).and_then(|operation| operation.input)
}

/// A member that a structure of an operation's input does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The structure, as a path from the input: `AlgorithmSpecification.MetricDefinitions.1`; empty
    /// for the input itself.
    pub path: String,
    /// The member.
    pub name: String,
    /// What the structure has.
    pub known: Vec<&'static str>,
}

/// The first member of an operation's input, at any depth, that its structure does not have: AWS
/// drops it silently. None if the operation is not known.
#[must_use]
pub fn unknown_member(service: Service, operation: &str, value: &serde_json::Value) -> Option<Unknown> {
    unknown_in(input(service, operation)?, value, "")
}

fn unknown_in(shape: &Shape, value: &serde_json::Value, path: &str) -> Option<Unknown> {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match shape {
        Shape::Structure(members) => value.as_object()?.iter().find_map(|(name, value)| {
            let Some(member) = members.iter().find(|member| member.name == name) else {
                let known = members.iter().map(|member| member.name).collect();
                return Some(Unknown { path: path.to_owned(), name: name.clone(), known });
            };
            unknown_in(member.shape, value, &below(name))
        }),
        Shape::List { member, .. } => (1..)
            .zip(value.as_array()?)
            .find_map(|(place, value): (usize, _)| unknown_in(member, value, &below(&place.to_string()))),
        Shape::Map { value: shape, .. } => {
            value.as_object()?.iter().find_map(|(key, value)| unknown_in(shape, value, &below(key)))
        }
        _ => None,
    }
}

/// What an operation's table says of the texts in a list or a map.
#[derive(Debug, Clone, Copy)]
pub struct TextLimits {
    /// Most texts.
    pub most: u64,
    /// Most characters of one.
    pub longest: u64,
    pattern: Option<&'static Pattern>,
}

impl TextLimits {
    /// Whether a text has the form that the table wants; most forbid a newline and nothing else.
    #[must_use]
    pub fn allow_form_of(&self, text: &str) -> bool {
        self.pattern.is_none_or(|pattern| pattern.matches(text))
    }
}

/// The limits of the text, of the list or of the map of texts at this path from an operation's
/// input; `None` if there is none.
#[must_use]
pub fn text_limits(service: Service, operation: &str, path: &[&str]) -> Option<TextLimits> {
    let mut shape = input(service, operation)?;
    for name in path {
        // What a list's members are is below it without a name.
        if let Shape::List { member, .. } = shape {
            shape = member;
        }
        let Shape::Structure(members) = shape else { return None };
        shape = members.iter().find(|member| member.name == *name)?.shape;
    }
    let (most, text) = match shape {
        Shape::List { max, member, .. } => (*max, *member),
        Shape::Map { max, value, .. } => (*max, *value),
        Shape::String { .. } => (1, shape),
        _ => return None,
    };
    let Shape::String { max, pattern, .. } = text else { return None };
    Some(TextLimits { most, longest: *max, pattern: pattern.as_ref() })
}

/// What a training job is to `Search`.
pub(crate) fn training_job() -> &'static Shape {
    &sagemaker::TRAINING_JOB
}

/// What an experiment is to `Search`.
pub(crate) fn experiment() -> &'static Shape {
    &sagemaker::EXPERIMENT
}

/// What a trial is to `Search`.
pub(crate) fn trial() -> &'static Shape {
    &sagemaker::TRIAL
}

/// What a trial component is to `Search`.
pub(crate) fn trial_component() -> &'static Shape {
    &sagemaker::TRIAL_COMPONENT
}

/// What a tuning job is to `Search`.
pub(crate) fn tuning_job() -> &'static Shape {
    &sagemaker::HYPER_PARAMETER_TUNING_JOB_SEARCH_ENTITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{operations, pattern};

    fn patterns(shape: &'static Shape, seen: &mut Vec<*const Shape>, found: &mut Vec<&'static Pattern>) {
        if seen.contains(&std::ptr::from_ref(shape)) {
            return;
        }
        seen.push(shape);
        match shape {
            Shape::Structure(members) => members.iter().for_each(|member| patterns(member.shape, seen, found)),
            Shape::List { member, .. } => patterns(member, seen, found),
            Shape::Map { key, value, .. } => [key, value].into_iter().for_each(|part| patterns(part, seen, found)),
            Shape::String { pattern, .. } => found.extend(pattern),
            Shape::Enum(_) | Shape::Number { .. } | Shape::Boolean | Shape::Timestamp => {}
        }
    }

    #[test]
    fn limits_of_texts_are_those_of_the_table() {
        let limits = |path: &[&str]| text_limits(Service::SageMaker, "CreateTrainingJob", path);
        let words = limits(&["AlgorithmSpecification", "ContainerArguments"]).unwrap();
        assert_eq!((words.most, words.longest), (100, 256));
        assert!(words.allow_form_of("a word") && !words.allow_form_of("two\nlines"));
        assert_eq!(limits(&["HyperParameters"]).map(|limits| limits.longest), Some(2500));
        assert!(limits(&["ResourceConfig"]).is_none() && limits(&["Absent"]).is_none());
    }

    #[test]
    fn every_pattern_of_the_table_compiles() {
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        for shape in operations().filter_map(|operation| operation.input) {
            patterns(shape, &mut seen, &mut found);
        }
        assert!(found.len() > 30, "the table has patterns");
        for pattern in found {
            assert!(
                pattern::compile(pattern.source()).is_ok(),
                "{:?} needs a translation in pattern.rs",
                pattern.source()
            );
        }
    }
}
