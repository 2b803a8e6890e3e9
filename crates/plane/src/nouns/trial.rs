//! Nouns of a trial: the training job that realises it.

use serde::{Deserialize, Serialize};

use crate::{JobName, TuningName};

/// Whose trial a new training job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialStart {
    /// Tuning job's name.
    pub tuning: TuningName,
    /// Index of its definition.
    pub definition: u32,
    /// Number in the definition's study.
    pub trial: u32,
    /// It pauses there, having reported so many units of resource; none: to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Training job whose checkpoint it begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<JobName>,
    /// Units of resource that the checkpoint which it begins with has behind it.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub from: u32,
    /// Its program keeps checkpoints.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpoints: bool,
    /// Units of resource after which it is complete ([`crate::DefinitionSpec::max_resource`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// What a launch of a trial has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialLaunch {
    /// Tuning job's name.
    pub tuning: TuningName,
    /// Index of its definition.
    pub definition: u32,
    /// Units of resource that are behind it, if its checkpoint is what it was: the attempt's first
    /// value is that of the next unit.
    pub from: u32,
    /// It pauses there.
    pub to: Option<u32>,
    /// Units of resource after which it is complete.
    pub max: Option<u32>,
    /// Training job whose checkpoint the first attempt begins with.
    pub origin: Option<JobName>,
}

/// The part of a training job's view that says which trial it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialView {
    /// Tuning job's name.
    pub tuning: TuningName,
    /// Index of its definition.
    pub definition: u32,
    /// Number in the definition's study.
    pub trial: u32,
    /// Units of resource that it has behind it: objective values reported.
    pub resource: u32,
    /// It pauses there.
    pub to: Option<u32>,
    /// Last value of the first objective; of a job that is over, its final one. None: no number was
    /// reported.
    pub objective: Option<f64>,
    /// It makes room for others and may go on later.
    pub paused: bool,
    /// It is in the queue: for instances, or to be resumed on those that it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// It ended while it was paused: it was not promoted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_over: bool,
}
