//! Nouns of a hyperparameter tuning job.

use serde::{Deserialize, Serialize};
use shoal_tuner::{Direction, Record};

use crate::{GangSpec, JobName, Time};

/// What the core decides on; the rest of the request is opaque to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningSpec {
    /// `MaxNumberOfTrainingJobs`; none: until there is nothing left to try.
    pub max_jobs: Option<u32>,
    /// `MaxParallelTrainingJobs`, at least 1: trials that are queued or run at once. Paused ones do
    /// not count.
    pub max_parallel: u32,
    /// `MaxRuntimeInSeconds`, counted from the creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_s: Option<u64>,
    /// `TargetObjectiveMetricValue`: a trial that ends with this value or a better one ends the
    /// tuning job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// `MaxNumberOfTrainingJobsNotImproving`: so many trials in a row that did not improve the best
    /// by 1 % end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_improving: Option<u32>,
    /// `CompleteOnConvergence`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete_on_convergence: bool,
    /// At least one; each has a study of its own.
    pub definitions: Vec<DefinitionSpec>,
}

/// What the trials of one training job definition have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinitionSpec {
    /// At least one. The first is the one that is reported, and that the best trial is best by.
    pub objectives: Vec<Objective>,
    /// Of each trial's training job.
    pub training: GangSpec,
    /// The program keeps checkpoints: a trial that was paused and released goes on where it was.
    /// One that does not starts anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpoints: bool,
    /// What becomes of a trial that is paused.
    #[serde(default, skip_serializing_if = "Pause::is_freeze")]
    pub pause: Pause,
    /// Units of resource after which a trial is whole: it comes to its end by itself, and is
    /// stopped only if it goes on for longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_resource: Option<u32>,
}

/// How a trial makes room for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Its programs stand still, where they can, and hold their memory: it goes on at once.
    #[default]
    Freeze,
    /// Its attempt is ended, and another one goes on from its checkpoint: for programs that begin
    /// on the instances of the one before in less time than a new instance takes.
    Park,
}

impl Pause {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_freeze(&self) -> bool {
        *self == Pause::Freeze
    }
}

/// A metric, and which way it is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Metric definition's name.
    pub metric: String,
    /// Which way.
    pub direction: Direction,
}

/// A record of one definition's study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRecord {
    /// Index into [`TuningSpec::definitions`].
    pub definition: u32,
    /// What happened to its study.
    pub record: Record,
}

/// `HyperParameterTuningJobStatus`; `Deleting` and `DeleteFailed` are none of the core's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TuningStatus {
    /// Trials are suggested and run.
    InProgress,
    /// No more trials are started; those that live are being stopped.
    Stopping,
    /// It came to its end: all trials, or a completion criterion.
    Completed,
    /// See its failure reason.
    Failed,
    /// By its user.
    Stopped,
}

impl TuningStatus {
    /// As AWS spells it.
    pub fn name(self) -> &'static str {
        match self {
            TuningStatus::InProgress => "InProgress",
            TuningStatus::Stopping => "Stopping",
            TuningStatus::Completed => "Completed",
            TuningStatus::Failed => "Failed",
            TuningStatus::Stopped => "Stopped",
        }
    }
}

/// Why a tuning job comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningEnd {
    /// `StopHyperParameterTuningJob`.
    User,
    /// All trials have ended, or there is nothing left to try.
    Finished,
    /// `MaxRuntimeInSeconds`.
    MaxRuntime,
    /// `TargetObjectiveMetricValue`.
    Target,
    /// `BestObjectiveNotImproving`.
    NotImproving,
    /// `ConvergenceDetected`.
    Converged,
    /// A trial completed and its objective metric never appeared.
    NoObjective,
    /// The first trials all failed, or all trials did.
    Failures,
    /// The search cannot go on.
    Search,
}

impl TuningEnd {
    /// The status that it ends in.
    pub(crate) fn status(self) -> TuningStatus {
        match self {
            TuningEnd::User => TuningStatus::Stopped,
            TuningEnd::NoObjective | TuningEnd::Failures | TuningEnd::Search => TuningStatus::Failed,
            TuningEnd::Finished
            | TuningEnd::MaxRuntime
            | TuningEnd::Target
            | TuningEnd::NotImproving
            | TuningEnd::Converged => TuningStatus::Completed,
        }
    }
}

/// How a trial's training job ended, as `TrainingJobStatusCounters` tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialEnd {
    /// `Completed`.
    Completed,
    /// `Stopped`.
    Stopped,
    /// `Failed` through our own side.
    RetryableError,
    /// `Failed` by itself.
    NonRetryableError,
}

/// `TrainingJobStatusCounters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrainingCounters {
    /// `Completed`.
    pub completed: u32,
    /// `InProgress`: not over, paused ones included.
    pub in_progress: u32,
    /// `RetryableError`.
    pub retryable_error: u32,
    /// `NonRetryableError`.
    pub non_retryable_error: u32,
    /// `Stopped`.
    pub stopped: u32,
}

/// `ObjectiveStatusCounters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectiveCounters {
    /// `Succeeded`: ended with a value.
    pub succeeded: u32,
    /// `Pending`: not over.
    pub pending: u32,
    /// `Failed`: ended without a value, or failed.
    pub failed: u32,
}

/// `BestTrainingJob`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestTrial {
    /// Training job's name.
    pub job: JobName,
    /// Its definition.
    pub definition: u32,
    /// Final value of the first objective, as its user sees it.
    pub value: f64,
}

/// What the world is shown of a tuning job: the part of Describe that the core knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningView {
    /// `HyperParameterTuningJobStatus`.
    pub status: TuningStatus,
    /// `CreationTime`.
    pub created: Time,
    /// `LastModifiedTime`.
    pub modified: Time,
    /// `HyperParameterTuningEndTime`.
    pub ended: Option<Time>,
    /// Why it ends or ended.
    pub end: Option<TuningEnd>,
    /// `FailureReason`, at most 1024 characters.
    pub failure_reason: Option<String>,
    /// As it is now: it may be changed while the tuning job runs.
    pub max_parallel: u32,
    /// Trials that were started.
    pub started: u32,
    /// Trials that are queued or run; those of `in_progress` that are not paused.
    pub active: u32,
    /// Trials that are queued; those of `active` that do not run.
    #[serde(default)]
    pub waiting: u32,
    /// `TrainingJobStatusCounters`.
    pub training: TrainingCounters,
    /// `ObjectiveStatusCounters`.
    pub objective: ObjectiveCounters,
    /// `BestTrainingJob`; of trials that ended.
    pub best: Option<BestTrial>,
    /// `NumberOfTrainingJobsObjectiveNotImproving`: in a row, up to the last trial that ended with
    /// a value.
    pub not_improving: u32,
    /// `ConvergenceDetectedTime`.
    pub converged: Option<Time>,
    /// Sum of `TrainingTimeInSeconds` of the trials that ended.
    pub training_s: u64,
}
