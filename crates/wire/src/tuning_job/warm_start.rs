//! Rules between a tuning job and the parents that it starts from, in AWS's words where they are
//! known.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
};

use serde_json::Value;

use crate::{Channel, Error, refusal::refuse};

use super::{CreateTuningJob, ParameterRange, TuningDefinition};

/// Most changes from tuned to static and of static values.
const MOST_CHANGES: usize = 10;
/// What may differ in any warm start, under AWS's names, and in one over identical data and
/// algorithm.
const MAY_CHANGE: [(&str, &str); 10] = [
    ("algorithmSpecification", "AlgorithmSpecification"),
    ("inputDataConfig", "InputDataConfig"),
    ("outputDataConfig", "OutputDataConfig"),
    ("staticHyperParameters", "HyperParameters"),
    ("roleArn", "RoleArn"),
    ("resourceConfig", "ResourceConfig"),
    ("stoppingCondition", "StoppingCondition"),
    ("vpcConfig", "VpcConfig"),
    ("enableManagedSpotTraining", "EnableManagedSpotTraining"),
    ("checkpointConfig", "CheckpointConfig"),
];
/// How many of these, from the first, are the data and the algorithm.
const DATA_AND_ALGORITHM: usize = 2;

/// Checks a tuning job against a parent of it. Both have the ranges of Autotune filled in.
///
/// # Errors
/// The first rule that is broken.
pub fn check_warm_start(job: &CreateTuningJob, parent: &CreateTuningJob) -> Result<(), Error> {
    let identical = job.warm_start.as_ref().is_some_and(|it| it.identical);
    let place = "warmStartConfig.parentHyperParameterTuningJobs";
    if job.definitions.len() != parent.definitions.len() {
        return refuse(
            place,
            &format!(
                "'{}' has {} training job definitions and this tuning job has {}; the numbers must be the same",
                parent.name,
                parent.definitions.len(),
                job.definitions.len()
            ),
        );
    }
    for (at, definition) in job.definitions.iter().enumerate() {
        let counterpart = match &definition.name {
            Some(name) => parent.definitions.iter().find(|it| it.name.as_ref() == Some(name)),
            None => parent.definitions.get(at),
        };
        let Some(counterpart) = counterpart else {
            return refuse(
                place,
                &format!(
                    "'{}' has no training job definition '{}'",
                    parent.name,
                    definition.name.as_deref().unwrap_or("")
                ),
            );
        };
        definitions(definition, counterpart, &parent.name, identical)?;
    }
    Ok(())
}

fn definitions(
    job: &TuningDefinition,
    parent: &TuningDefinition,
    parent_name: &str,
    identical: bool,
) -> Result<(), Error> {
    let place = "warmStartConfig.parentHyperParameterTuningJobs";
    if job.objective != parent.objective {
        let told = |it: &TuningDefinition| format!("{} {}", it.objective.goal.as_str(), it.objective.metric);
        return refuse(
            place,
            &format!(
                "the objective metric must be the same as in the parent tuning jobs; it is '{}', and in \
                 '{parent_name}' it was '{}'",
                told(job),
                told(parent)
            ),
        );
    }
    let names = |it: &TuningDefinition| -> BTreeSet<String> {
        it.ranges.iter().map(|range| range.name.clone()).chain(it.static_hyperparameters.keys().cloned()).collect()
    };
    let (ours, theirs) = (names(job), names(parent));
    if ours != theirs {
        let differ: Vec<&str> = ours.symmetric_difference(&theirs).map(String::as_str).collect();
        return Err(Error::validation(format!(
            "The set of tunable plus static HyperParameter names is not the same across current and parent tuning \
             jobs. Please ensure this set is \
             constant when warm starting. Note that previously static HyperParameters can be tuned in warm start jobs \
             and vice versa. \
             Only one of this tuning job and '{parent_name}' has: {}.",
            differ.join(", ")
        )));
    }
    let ranges = |it: &TuningDefinition| -> BTreeMap<String, ParameterRange> {
        it.ranges.iter().map(|range| (range.name.clone(), range.clone())).collect()
    };
    let (ours, theirs) = (ranges(job), ranges(parent));
    for (name, range) in &ours {
        if theirs.get(name).is_some_and(|theirs| discriminant(&theirs.values) != discriminant(&range.values)) {
            return refuse(
                place,
                &format!(
                    "the type (integer, continuous, categorical) of the hyperparameter '{name}' is not the same as in \
                     '{parent_name}'"
                ),
            );
        }
    }
    let became_static = theirs.keys().filter(|name| !ours.contains_key(*name)).count();
    let changed = job
        .static_hyperparameters
        .iter()
        .filter(|(name, value)| parent.static_hyperparameters.get(*name).is_some_and(|theirs| theirs != *value));
    let changes = became_static + changed.count();
    if changes > MOST_CHANGES {
        return refuse(
            place,
            &format!(
                "{changes} hyperparameters became static or have another static value than in '{parent_name}'; \
                 {MOST_CHANGES} are allowed"
            ),
        );
    }
    unchanged(job, parent, identical)
}

/// What is neither free nor, for identical data and algorithm, data or algorithm must be as it was.
fn unchanged(job: &TuningDefinition, parent: &TuningDefinition, identical: bool) -> Result<(), Error> {
    let free = if identical { &MAY_CHANGE[DATA_AND_ALGORITHM..] } else { &MAY_CHANGE[..] };
    let members: BTreeSet<&String> = job.training.raw.keys().chain(parent.training.raw.keys()).collect();
    for name in members {
        let is_free =
            name == "TrainingJobName" || name == "HyperParameters" || free.iter().any(|(_, member)| member == name);
        if !is_free && settled(name, job) != settled(name, parent) {
            let names: Vec<&str> = free.iter().map(|(name, _)| *name).collect();
            return Err(Error::validation(format!(
                "Only the following fields in TrainingJobDefinition are allowed to change: [{}].",
                names.join(", ")
            )));
        }
    }
    Ok(())
}

/// A member as it is compared.
#[derive(PartialEq)]
enum Settled<'a> {
    Channels(&'a [Channel]),
    Member(Value),
}

/// A member, with defaults for what is absent and without what does not matter.
fn settled<'a>(name: &str, definition: &'a TuningDefinition) -> Settled<'a> {
    Settled::Member(match (name, definition.training.raw.get(name)) {
        // The SDK fills in what Describe told it: the definitions of a built-in algorithm.
        ("AlgorithmSpecification", Some(Value::Object(algorithm))) => {
            let mut algorithm = algorithm.clone();
            algorithm.remove("MetricDefinitions");
            algorithm.remove("EnableSageMakerMetricsTimeSeries");
            Value::Object(algorithm)
        }
        ("InputDataConfig", Some(Value::Array(_))) => return Settled::Channels(&definition.training.channels),
        (_, Some(Value::Bool(false))) => Value::Null,
        (_, Some(Value::Object(members))) if members.is_empty() => Value::Null,
        (_, Some(value)) => value.clone(),
        (_, None) => Value::Null,
    })
}
