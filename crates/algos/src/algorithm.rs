//! What Shoal knows of a built-in algorithm: one [`Algorithm`] each, declared beside its program
//! and read by everything else.

use thiserror::Error;

use crate::{images::Repository, library::Library};

/// A built-in algorithm, declared.
#[derive(Debug)]
pub struct Algorithm {
    /// The argument of `shoal algorithm`; also what messages call it.
    pub name: &'static str,
    /// Its name in prose: `XGBoost`.
    pub title: &'static str,
    /// The repositories of its images. The first is its main one.
    pub repositories: &'static [Repository],
    /// What it takes.
    pub hyperparameters: Hyperparameters,
    /// What it reads.
    pub channels: Channels,
    /// The metrics that hold where a request for its image brings no metric definitions.
    pub metrics: fn() -> Vec<Metric>,
    /// It writes checkpoints and resumes from them, so that trials can be paused wherever they run.
    pub resumes: bool,
    /// What it loads when it starts.
    pub libraries: &'static [&'static Library],
    /// Does what `run` would begin with and what is the same for many trainings on this instance's
    /// channels. Starts no thread and reports nothing: a `run` of this process, or of one that is
    /// forked from it, finds it done, or fails in the same way.
    pub prepare: fn(),
    /// Trains, as the process's only job, and returns the process's exit code. Called from the main
    /// thread before others are started.
    pub run: fn() -> i32,
}

/// The hyperparameters of an algorithm.
#[derive(Debug)]
pub struct Hyperparameters {
    /// The names of all of them, synonyms included. Those that begin with an underscore are for
    /// services and are never suggested.
    pub names: fn() -> Vec<&'static str>,
    /// Those that every training job must have, each with a value for examples.
    pub required: &'static [(&'static str, &'static str)],
    /// Checks one without the others: its name, and its value as the request has it.
    pub check: fn(&str, &str) -> Result<(), HyperparameterError>,
    /// Those that are recommended to be tuned, for requests that leave it to the service.
    pub tunable: &'static [Tunable],
    /// The one that bounds a training's length.
    pub resource: Option<Resource>,
}

/// A hyperparameter that is wrong, in the words of the algorithm's image.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct HyperparameterError(pub String);

/// The hyperparameter that bounds a training's length: the resource of multi-fidelity strategies
/// (Hyperband, ASHA).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Its name.
    pub name: &'static str,
    /// What it counts, in the plural: `boosting rounds`. Each of them reports every metric once.
    pub unit: &'static str,
}

/// A hyperparameter and the range that is recommended for it, linear; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tunable {
    /// Its name.
    pub name: &'static str,
    /// Whole numbers only.
    pub is_whole: bool,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

impl Tunable {
    /// A range of whole numbers.
    pub const fn whole(name: &'static str, min: u32, max: u32) -> Self {
        Self { name, is_whole: true, min: min as f64, max: max as f64 }
    }

    /// A range of real numbers.
    pub const fn real(name: &'static str, min: f64, max: f64) -> Self {
        Self { name, is_whole: false, min, max }
    }
}

/// The channels of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// Every training job must have it.
    pub required: &'static str,
    /// Those that it may have.
    pub optional: &'static [&'static str],
}

/// A metric that an algorithm prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// `validation:auc`
    pub name: String,
    /// What finds it in an escaped log line; its first group is the value.
    pub regex: String,
    /// How tuning jobs can optimise it, if they can.
    pub objective: Option<Objective>,
}

/// A metric as a tuning job's objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objective {
    /// A greater value is better.
    pub is_maximized: bool,
    /// What a training job must have so that the metric is measured.
    pub measured_on: Option<MeasuredOn>,
}

/// What a metric is measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredOn {
    /// An optional channel.
    pub channel: &'static str,
    /// A hyperparameter with which the algorithm needs no such channel.
    pub unless: Option<&'static str>,
}

impl Algorithm {
    /// The metrics that tuning jobs can optimise.
    pub fn objectives(&self) -> impl Iterator<Item = (String, Objective)> + use<> {
        (self.metrics)().into_iter().filter_map(|metric| Some((metric.name, metric.objective?)))
    }

    /// How the names of the environment variables begin that only this algorithm reads.
    pub fn variable_prefix(&self) -> String {
        format!("SHOAL_{}_", self.name.replace('-', "_").to_uppercase())
    }
}
