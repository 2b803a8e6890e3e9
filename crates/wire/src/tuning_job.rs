//! Tuning jobs (hyperparameter tuning jobs) as the rest of the house sees them: what was asked for
//! and what is told.

mod autotune;
mod check;
mod child;
mod combinations;
mod describe;
mod ranges;
pub(crate) mod request;
mod warm_start;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{CreateTrainingJob, MetricDefinition, Resources, SortOrder, Tag};

pub(crate) use check::{MOST_PARALLEL, create_tuning_job};
pub use child::{Child, OBJECTIVE_HYPERPARAMETER};
pub use describe::tuning_search_record;
pub use request::NamedTuningJob;
pub use warm_start::check_warm_start;

/// The tag by which a tuning job asks for a strategy that AWS does not have.
pub const STRATEGY_TAG: &str = "shoal:strategy";

/// A `CreateHyperParameterTuningJob` that passed every check which needs no state.
/// [`crate::Stored`] is its stored form.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CreateTuningJob {
    /// 1 to 32 characters.
    pub name: String,
    /// How configurations are found.
    pub strategy: Strategy,
    /// `HyperbandStrategyConfig.MinResource`: no trial is stopped before it.
    pub min_resource: Option<u32>,
    /// How much.
    pub limits: ResourceLimits,
    /// `TrainingJobEarlyStoppingType` is `Auto`; never with [`Strategy::Hyperband`].
    pub early_stopping: bool,
    /// When it is good enough.
    pub completion: CompletionCriteria,
    /// `RandomSeed`, if the client wants to choose it.
    pub seed: Option<u32>,
    /// 1 to 10, in the request's order.
    pub definitions: Vec<TuningDefinition>,
    /// What earlier tuning jobs learnt.
    pub warm_start: Option<WarmStart>,
    /// `Autotune.Mode` is `Enabled`.
    pub autotune: bool,
    /// Not echoed by Describe.
    pub tags: Vec<Tag>,
    /// The whole request without null and unknown members, for the echo of Describe.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub raw: Map<String, Value>,
}

/// `Strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Strategy {
    /// A model of the objective.
    Bayesian,
    /// Independent draws.
    Random,
    /// Many short trials, few long ones.
    Hyperband,
    /// All combinations of categorical values.
    Grid,
}

impl Strategy {
    /// As SageMaker writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bayesian => "Bayesian",
            Self::Random => "Random",
            Self::Hyperband => "Hyperband",
            Self::Grid => "Grid",
        }
    }
}

/// `ResourceLimits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResourceLimits {
    /// `MaxNumberOfTrainingJobs`, or the number of combinations of a grid; `None`: until a
    /// completion criterion or the run time ends the job.
    pub max_jobs: Option<u32>,
    /// `MaxParallelTrainingJobs`, from 1.
    pub max_parallel: u32,
    /// `MaxRuntimeInSeconds`.
    pub max_runtime_s: Option<u64>,
}

/// `TuningJobCompletionCriteria`: any that is set ends the job.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct CompletionCriteria {
    /// `TargetObjectiveMetricValue`; finite.
    pub target: Option<f64>,
    /// `MaxNumberOfTrainingJobsNotImproving`, from 3.
    pub not_improving: Option<u32>,
    /// `CompleteOnConvergence` is `Enabled`.
    pub convergence: bool,
}

/// What the trials of a tuning job are: one of its `TrainingJobDefinitions`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TuningDefinition {
    /// `DefinitionName`; unique, and there if the request has a list of definitions.
    pub name: Option<String>,
    /// What is to be optimised.
    pub objective: Objective,
    /// What is tuned: integer, then continuous, then categorical parameters, in the request's
    /// order. Names are unique.
    pub ranges: Vec<ParameterRange>,
    /// `AutoParameters`: their ranges are still to be found, by
    /// [`TuningDefinition::with_auto_ranges`].
    pub auto_parameters: Vec<AutoParameter>,
    /// `StaticHyperParameters`.
    pub static_hyperparameters: BTreeMap<String, String>,
    /// `HyperbandStrategyConfig.MaxResource`, or what the static hyperparameters say, if they do; 1
    /// to 20,000. Always there with [`Strategy::Hyperband`].
    pub max_resource: Option<u32>,
    /// What a trial may run on, best first; the first is in [`Self::training`].
    pub alternatives: Vec<Resources>,
    /// A trial as an ordinary training job, with the static hyperparameters only and a name of its
    /// own still to come. Its `raw` is what trials' requests are composed of.
    pub training: Box<CreateTrainingJob>,
    /// The path of the definition in the request, for messages: `trainingJobDefinition`.
    pub path: String,
}

/// `HyperParameterTuningJobObjective`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Objective {
    /// Which way it is better.
    pub goal: Goal,
    /// `MetricName`.
    pub metric: String,
}

/// `HyperParameterTuningJobObjectiveType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Goal {
    /// More is better.
    Maximize,
    /// Less is better.
    Minimize,
}

impl Goal {
    /// As SageMaker writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Maximize => "Maximize",
            Self::Minimize => "Minimize",
        }
    }
}

/// What is tuned.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ParameterRange {
    /// Hyperparameter's name.
    pub name: String,
    /// Its values.
    pub values: RangeValues,
}

/// The values of a [`ParameterRange`]; ends are inclusive and ordered.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum RangeValues {
    /// Whole numbers.
    Integer {
        /// Least.
        min: i64,
        /// Greatest.
        max: i64,
        /// `ScalingType`; not `ReverseLogarithmic`.
        scaling: ScalingType,
    },
    /// Numbers; both ends finite.
    Continuous {
        /// Least.
        min: f64,
        /// Greatest.
        max: f64,
        /// `ScalingType`.
        scaling: ScalingType,
    },
    /// Texts, 1 to 30, all different.
    Categorical(Vec<String>),
}

/// `ScalingType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum ScalingType {
    /// The tuner chooses.
    #[default]
    Auto,
    /// Evenly.
    Linear,
    /// Evenly in the logarithm; all values > 0.
    Logarithmic,
    /// Evenly in log(1 - x); 0 <= x < 1.
    ReverseLogarithmic,
}

/// A hyperparameter whose range the service is to find.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AutoParameter {
    /// Hyperparameter's name.
    pub name: String,
    /// A value that works.
    pub hint: String,
}

/// `WarmStartConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WarmStart {
    /// Names of 1 to 5 tuning jobs; all different.
    pub parents: Vec<String>,
    /// `IdenticalDataAndAlgorithm`, not `TransferLearning`.
    pub identical: bool,
}

/// A `ListTrainingJobsForHyperParameterTuningJob`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListTrials {
    /// Whose.
    pub tuning_job: String,
    /// From the page before.
    pub next_token: Option<String>,
    /// 1 to 100, 10 by default.
    pub max_results: u32,
    /// `TrainingJobStatus`.
    pub status_equals: Option<String>,
    /// Key of the order; the name by default. Without a final value a training job is not in a list
    /// by it.
    pub sort_by: TrialSortBy,
    /// Ascending by default.
    pub sort_order: SortOrder,
}

/// `TrainingJobSortByOptions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize)]
pub enum TrialSortBy {
    /// By name.
    #[default]
    Name,
    /// By creation.
    CreationTime,
    /// By status.
    Status,
    /// By the objective's last value; only trials that have one.
    FinalObjectiveMetricValue,
}

/// What Describe tells beyond the request. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TuningJobDescription {
    /// `HyperParameterTuningJobArn`.
    pub arn: String,
    /// `HyperParameterTuningJobStatus`.
    pub status: String,
    /// `CreationTime`.
    pub created_ms: u64,
    /// `LastModifiedTime`.
    pub modified_ms: u64,
    /// `HyperParameterTuningEndTime`.
    pub ended_ms: Option<u64>,
    /// `TrainingJobStatusCounters`.
    pub jobs: TrainingJobCounters,
    /// `ObjectiveStatusCounters`.
    pub objectives: ObjectiveCounters,
    /// `BestTrainingJob`.
    pub best: Option<TrialSummary>,
    /// `OverallBestTrainingJob`.
    pub overall_best: Option<TrialSummary>,
    /// `FailureReason`, cut at 1024 characters here.
    pub failure_reason: Option<String>,
    /// `NumberOfTrainingJobsObjectiveNotImproving`.
    pub not_improving: Option<u32>,
    /// `ConvergenceDetectedTime`.
    pub converged_ms: Option<u64>,
    /// `ConsumedResources.RuntimeInSeconds`.
    pub runtime_s: Option<u64>,
    /// Metric definitions of a built-in algorithm, by definition; shown where the request has none.
    pub metric_definitions: Vec<Vec<MetricDefinition>>,
}

/// `TrainingJobStatusCounters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrainingJobCounters {
    /// `Completed`.
    pub completed: u64,
    /// `InProgress`, stopping ones with them.
    pub in_progress: u64,
    /// `RetryableError`.
    pub retryable_error: u64,
    /// `NonRetryableError`.
    pub non_retryable_error: u64,
    /// `Stopped`.
    pub stopped: u64,
}

/// `ObjectiveStatusCounters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectiveCounters {
    /// `Succeeded`.
    pub succeeded: u64,
    /// `Pending`.
    pub pending: u64,
    /// `Failed`.
    pub failed: u64,
}

/// A line of `ListTrainingJobsForHyperParameterTuningJob`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrialSummary {
    /// `TrainingJobName`.
    pub name: String,
    /// `TrainingJobArn`.
    pub arn: String,
    /// `TrainingJobDefinitionName`.
    pub definition: Option<String>,
    /// `TuningJobName`; of an overall best.
    pub tuning_job: Option<String>,
    /// `CreationTime`.
    pub created_ms: u64,
    /// `TrainingStartTime`.
    pub training_start_ms: Option<u64>,
    /// `TrainingEndTime`.
    pub training_end_ms: Option<u64>,
    /// `TrainingJobStatus`.
    pub status: String,
    /// `TunedHyperParameters`, in the order of the ranges.
    pub tuned: Vec<(String, String)>,
    /// `FailureReason`.
    pub failure_reason: Option<String>,
    /// `FinalHyperParameterTuningJobObjectiveMetric`: the objective and its value; left out if JSON
    /// cannot carry it.
    pub objective: Option<(Objective, f64)>,
    /// `Succeeded`, `Pending` or `Failed`.
    pub objective_status: String,
}

/// A line of `ListHyperParameterTuningJobs`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningJobSummary {
    /// `HyperParameterTuningJobName`.
    pub name: String,
    /// `HyperParameterTuningJobArn`.
    pub arn: String,
    /// `HyperParameterTuningJobStatus`.
    pub status: String,
    /// `Strategy`.
    pub strategy: Strategy,
    /// `CreationTime`.
    pub created_ms: u64,
    /// `LastModifiedTime`.
    pub modified_ms: u64,
    /// `HyperParameterTuningEndTime`.
    pub ended_ms: Option<u64>,
    /// `TrainingJobStatusCounters`.
    pub jobs: TrainingJobCounters,
    /// `ObjectiveStatusCounters`.
    pub objectives: ObjectiveCounters,
    /// `ResourceLimits`.
    pub limits: ResourceLimits,
}
