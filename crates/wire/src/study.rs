//! What a tuning job's study knows: operations of ours beside SageMaker's, as AWS has none that
//! tell learning curves, rungs, what mattered, or that change how many trials run.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Call, Error, Input, Reply,
    call::{plain_inputs, read},
    tuning_job::MOST_PARALLEL,
};

/// What `X-Amz-Target` says.
pub const DESCRIBE_STUDY: &str = "Shoal.DescribeStudy";
/// What `X-Amz-Target` says.
pub const UPDATE_TUNING_JOB: &str = "Shoal.UpdateHyperParameterTuningJob";

/// Which study is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DescribeStudy {
    /// Tuning job's name.
    pub hyper_parameter_tuning_job_name: String,
    /// Only trials that are not over.
    #[serde(default)]
    pub live_only: bool,
    /// From the page before.
    #[serde(default)]
    pub next_token: Option<String>,
}

/// What is to be different while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UpdateTuningJob {
    /// Tuning job's name.
    pub hyper_parameter_tuning_job_name: String,
    /// How many trials may run at once, at least 1.
    pub max_parallel_training_jobs: u32,
}

plain_inputs!(DescribeStudy);

impl Input for UpdateTuningJob {
    fn read(call: Call) -> Result<Self, Error> {
        let update: Self = read(call.input)?;
        if (1..=MOST_PARALLEL).contains(&update.max_parallel_training_jobs) {
            return Ok(update);
        }
        Err(Error::validation(format!(
            "Invalid value at 'maxParallelTrainingJobs': {} is not from 1 to {MOST_PARALLEL}.",
            update.max_parallel_training_jobs
        )))
    }
}

impl Reply {
    /// `DescribeStudy`.
    pub fn describe_study(study: &StudyDescription) -> Self {
        Self::of(json!(study))
    }
}

/// A study, and one page of its trials.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyDescription {
    /// Tuning job's name.
    pub hyper_parameter_tuning_job_name: String,
    /// AWS's status.
    pub hyper_parameter_tuning_job_status: String,
    /// Why it failed, or what its user should know.
    pub message: Option<String>,
    /// Seconds since the epoch.
    pub creation_time: f64,
    /// Seconds since the epoch; none while it goes on.
    pub end_time: Option<f64>,
    /// No more trials than this.
    pub max_trials: Option<u32>,
    /// No more at once.
    pub max_parallel: u32,
    /// Trials that run.
    pub running: u32,
    /// Trials that wait for instances.
    pub waiting: u32,
    /// Trials that are paused; with the two above, `TrainingJobStatusCounters.InProgress`.
    pub paused: u32,
    /// Number of the best trial.
    pub best_trial: Option<u32>,
    /// One, or one for each training job definition.
    pub definitions: Vec<StudyDefinition>,
    /// In the order of their starts.
    pub trials: Vec<StudyTrial>,
    /// More trials follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// One search: what may be tried and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyDefinition {
    /// `DefinitionName`, if it has one.
    pub name: Option<String>,
    /// The first one is what schedulers look at.
    pub objectives: Vec<StudyObjective>,
    /// In the order of the search space.
    pub parameters: Vec<StudyParameter>,
    /// `bayesian`, `random`, ...
    pub searcher: String,
    /// `none`, `hyperband`, ...
    pub scheduler: String,
    /// Units of resource at which trials are compared, rising; the last one is a whole trial. Empty
    /// without such a scheduler.
    pub levels: Vec<u32>,
    /// What mattered, the most important first; weights add up to 1. Empty while too little is
    /// known.
    pub importance: Vec<StudyImportance>,
}

/// What is optimised.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyObjective {
    /// Its metric.
    pub metric_name: String,
    /// Whether more is better.
    pub maximize: bool,
}

/// A parameter of the search space.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyParameter {
    /// Its name.
    pub name: String,
    /// Least, of a number.
    pub min: Option<f64>,
    /// Greatest, of a number.
    pub max: Option<f64>,
    /// Spread over logarithms.
    pub log: bool,
    /// Its values, if it is categorical.
    pub values: Option<Vec<String>>,
}

/// How much a parameter mattered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyImportance {
    /// Parameter's name.
    pub name: String,
    /// From 0 to 1.
    pub weight: f64,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StudyTrial {
    /// From 1, in the tuning job.
    pub number: u32,
    /// Its training job.
    pub training_job_name: String,
    /// Index of its definition.
    pub definition: u32,
    /// Names and texts of its tuned hyperparameters, in the order of the search space.
    pub values: Vec<(String, String)>,
    /// `Waiting` for capacity, `Running`, `Paused` (all three are `InProgress` in the API's
    /// counters), `Completed`, `Failed`; and what the API counts as `Stopped`: `Stopped` early,
    /// `MaxResource` (it reached it and had more to do), `Cancelled` (by a user, by its tuning
    /// job's end, by its time limit).
    pub state: String,
    /// Why it failed, or who cancelled it.
    pub reason: Option<String>,
    /// The scheduler's bracket.
    pub bracket: u32,
    /// It pauses there.
    pub to: Option<u32>,
    /// Units of resource and the objective after them; not finite ones are left out.
    pub curve: Vec<(u32, f64)>,
    /// Units of resource after which the program printed the objective as `nan` or infinite.
    pub not_numbers: Vec<u32>,
    /// Final values of all objectives; empty while there are none.
    pub objectives: Vec<f64>,
    /// Seconds since the epoch.
    pub start_time: Option<f64>,
    /// Seconds since the epoch.
    pub end_time: Option<f64>,
    /// Seconds since the epoch: when it reported its objective last, which is long before the end
    /// of a trial that was paused.
    pub value_time: Option<f64>,
    /// Of several objectives: no other trial is better in one and as good in all.
    pub front: bool,
    /// Seconds in which its instances worked, once it is over.
    pub billable_seconds: Option<f64>,
}

impl StudyTrial {
    /// Units of resource that it has behind it.
    #[must_use]
    pub fn resource(&self) -> u32 {
        let last = self.curve.last().map_or(0, |point| point.0);
        last.max(self.not_numbers.last().copied().unwrap_or(0))
    }

    /// Its result: the final value, or the last that it said. None: there is none, or it [went
    /// astray](Self::is_astray).
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        let last = || self.curve.last().map(|point| point.1).filter(|_| !self.is_astray());
        self.objectives.first().copied().or_else(last)
    }

    /// The last that it said of its objective was `nan` or infinite: it is worse than all that said
    /// a number.
    #[must_use]
    pub fn is_astray(&self) -> bool {
        let last = self.curve.last().map_or(0, |point| point.0);
        self.not_numbers.last().is_some_and(|&at| at > last)
    }

    /// It will not go on.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "Completed" | "Failed") || self.is_stopped()
    }

    /// The API says that its training job is `Stopped`.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.state.as_str(), "Stopped" | "MaxResource" | "Cancelled")
    }
}
