//! Nouns of a training job.

use serde::{Deserialize, Serialize};

use crate::Time;

/// `TrainingJobStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobStatus {
    /// Queued or running.
    InProgress,
    /// Done, artifacts stored.
    Completed,
    /// See its failure reason.
    Failed,
    /// A stop is under way.
    Stopping,
    /// Stopped, artifacts stored.
    Stopped,
}

impl JobStatus {
    /// As AWS spells it.
    pub fn name(self) -> &'static str {
        match self {
            JobStatus::InProgress => "InProgress",
            JobStatus::Completed => "Completed",
            JobStatus::Failed => "Failed",
            JobStatus::Stopping => "Stopping",
            JobStatus::Stopped => "Stopped",
        }
    }
}

/// `SecondaryStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SecondaryStatus {
    /// Accepted; instances being made.
    Starting,
    /// Waits for capacity.
    Pending,
    /// Channels.
    Downloading,
    /// Program runs.
    Training,
    /// Managed spot training lost its instances; it goes on when it has others.
    Interrupted,
    /// Artifacts.
    Uploading,
    /// Stop under way.
    Stopping,
    /// Stopped by the user.
    Stopped,
    /// Stopped by MaxRuntimeInSeconds.
    MaxRuntimeExceeded,
    /// Stopped by MaxPendingTimeInSeconds or MaxWaitTimeInSeconds.
    MaxWaitTimeExceeded,
    /// Done.
    Completed,
    /// Failed.
    Failed,
}

impl SecondaryStatus {
    /// As AWS spells it.
    pub fn name(self) -> &'static str {
        match self {
            SecondaryStatus::Starting => "Starting",
            SecondaryStatus::Pending => "Pending",
            SecondaryStatus::Downloading => "Downloading",
            SecondaryStatus::Training => "Training",
            SecondaryStatus::Interrupted => "Interrupted",
            SecondaryStatus::Uploading => "Uploading",
            SecondaryStatus::Stopping => "Stopping",
            SecondaryStatus::Stopped => "Stopped",
            SecondaryStatus::MaxRuntimeExceeded => "MaxRuntimeExceeded",
            SecondaryStatus::MaxWaitTimeExceeded => "MaxWaitTimeExceeded",
            SecondaryStatus::Completed => "Completed",
            SecondaryStatus::Failed => "Failed",
        }
    }
}

/// One entry of `SecondaryStatusTransitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Entered.
    pub status: SecondaryStatus,
    /// When.
    pub start: Time,
    /// Left.
    pub end: Option<Time>,
    /// Always set; the SDK prints it.
    pub message: String,
}

/// Last value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricValue {
    /// Metric definition's name.
    pub name: String,
    /// Finite.
    pub value: f64,
    /// When it was printed.
    pub at: Time,
}

/// How the training program on an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if it was killed.
    pub signal: Option<i32>,
    /// Killed for memory, as it had reached its own limit.
    pub out_of_memory: bool,
    /// Killed for memory, as all instances together had none left: bytes that this one held at
    /// most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded_out: Option<u64>,
    /// First 1024 characters of the failure file.
    pub failure_file: Option<String>,
    /// End of stderr.
    pub stderr_tail: String,
    /// When, by the agent's clock.
    pub at: Time,
}

/// Where an instance is, before its program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstancePhase {
    /// Channels are being mounted.
    Downloading,
    /// The training program runs.
    Training,
}

/// Why a running job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// `StopTrainingJob`.
    User,
    /// `MaxRuntimeInSeconds`.
    MaxRuntime,
    /// `MaxWaitTimeInSeconds`.
    MaxWait,
    /// Its tuning job's scheduler: others are more promising.
    Early,
    /// Its tuning job's `MaxResource`: it has used all that a trial may.
    MaxResource,
    /// Its tuning job comes to its end.
    Tuning,
    /// The action `StopTraining` of a rule whose condition was met.
    Rule,
    /// A budget that stops what it counts is spent.
    Budget,
}

/// What an instance found when it evaluated a rule, in ascending precedence among instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    /// It saw none of what the rule is about.
    Unobserved,
    /// To the end of the program the condition was not met.
    NoIssuesFound,
    /// The rule cannot be evaluated.
    Error,
    /// The condition was met.
    IssuesFound,
}
