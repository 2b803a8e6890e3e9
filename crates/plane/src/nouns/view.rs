//! What the world is shown of a job: the part of Describe that the core knows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, JobStatus, MetricValue, RuleVerdict, SecondaryStatus, StopCause, Time, Transition, TrialView, text::gib,
};

/// A job as of now. Kept in a row beside the request; a row's view is rewritten in the transaction
/// of the event that changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// `TrainingJobStatus`.
    pub status: JobStatus,
    /// `SecondaryStatus`.
    pub secondary: SecondaryStatus,
    /// `SecondaryStatusTransitions`.
    pub transitions: Vec<Transition>,
    /// `FailureReason`, at most 1024 characters.
    pub failure_reason: Option<String>,
    /// `CreationTime`.
    pub created: Time,
    /// `LastModifiedTime`.
    pub modified: Time,
    /// `TrainingStartTime`: when the first host entered Downloading, as AWS starts to bill;
    /// MaxRuntimeInSeconds counts from here. Of a trial that is over it is so long before
    /// `training_end` as the trial ran: clients count the time between the two.
    pub training_start: Option<Time>,
    /// `TrainingEndTime`: after the upload; for failures at detection; of a trial that rested when
    /// it ended, when it was paused.
    pub training_end: Option<Time>,
    /// `TrainingTimeInSeconds`, at least 1 once started. Pauses of a trial are not counted.
    pub training_s: Option<u64>,
    /// `BillableTimeInSeconds` (of one instance, as AWS counts), at least 1 once started.
    pub billable_s: Option<u64>,
    /// The time that both count, in milliseconds: without pauses. Of a trial alone; none while it
    /// is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// `FinalMetricDataList`: the last value of each metric over all hosts, at most 40, by name.
    pub final_metrics: Vec<MetricValue>,
    /// Why it waits, machine-readable.
    pub pending: Option<PendingReason>,
    /// Current or last attempt.
    pub attempt: Option<AttemptId>,
    /// The job is over (its attempt may still be being released).
    pub ended: bool,
    /// Whose trial it is, and how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialView>,
    /// Why it was told to stop, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopCause>,
    /// Rules whose evaluation is over, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleEvaluation>,
}

impl JobView {
    /// The `RuleEvaluationStatus` of a rule, its details, and when it was reached.
    pub fn rule_status(&self, rule: &str) -> (&'static str, Option<&str>, Time) {
        let Some(found) = self.rules.iter().find(|it| it.rule == rule) else {
            return match self.ended {
                true => {
                    ("Stopped", Some("The training job ended before the rule was evaluated to its end."), self.modified)
                }
                false => ("InProgress", None, self.created),
            };
        };
        let details = Some(found.details.as_str()).filter(|text| !text.is_empty());
        match found.verdict {
            RuleVerdict::IssuesFound => ("IssuesFound", details, found.at),
            RuleVerdict::NoIssuesFound => ("NoIssuesFound", None, found.at),
            RuleVerdict::Error | RuleVerdict::Unobserved => ("Error", details, found.at),
        }
    }
}

/// How the evaluation of a rule has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleEvaluation {
    /// `RuleConfigurationName`.
    pub rule: String,
    /// Of all instances together.
    pub verdict: RuleVerdict,
    /// For people: which tensor, step and value.
    pub details: String,
    /// When.
    pub at: Time,
}

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReason {
    /// 1 is next.
    pub place: u32,
    /// What lacks: `memory`, `gpus`, `instances`, of a quota also `jobs`; or `turn` when it would
    /// fit, but must not delay the head of the queue.
    pub lacking: String,
    /// How much it needs in all, in the unit of `lacking` (bytes, GPUs, instances; bytes for
    /// `turn`).
    pub needs: u64,
    /// How much is free.
    pub free: u64,
    /// On which node that is, where there are several and it must be on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What the compute target says on which the launch is queued; `place` and what lacks are not
    /// known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<String>,
    /// The quota that lacks it; `free` is what is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaLimit>,
}

/// A quota, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimit {
    /// `user:anna`, `tag:team=vision`.
    pub name: String,
    /// At most so much at once, in the unit of what lacks.
    pub limit: u64,
}

/// A target's own words, or
/// `Waiting for capacity: needs 16.0 GiB of memory, 4.0 GiB free; 2nd in the queue`, or
/// `Waiting for the quota user:anna: needs 2 instances, 1 of 4 left; 2nd in the queue`.
impl fmt::Display for PendingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PendingReason { place, lacking, needs, free, node, queued, quota } = self;
        if let Some(queued) = queued {
            return f.write_str(queued);
        }
        let free_on = match (quota, node) {
            (Some(QuotaLimit { limit, .. }), _) => format!("of {limit} left"),
            (None, Some(node)) => format!("free on node {node}"),
            (None, None) => "free".to_owned(),
        };
        match quota {
            Some(QuotaLimit { name, .. }) => write!(f, "Waiting for the quota {name}: ")?,
            None => write!(f, "Waiting for capacity: ")?,
        }
        match lacking.as_str() {
            "memory" => write!(f, "needs {} of memory, {} {free_on}", gib(*needs), gib(*free))?,
            "turn" => write!(f, "what is free is kept for the training job at the head of the queue")?,
            "gpus" => write!(f, "needs {needs} GPU{}, {free} {free_on}", if *needs == 1 { "" } else { "s" })?,
            "jobs" => write!(f, "needs {needs} running job, {free} {free_on}")?,
            "instances" if *needs == 1 => write!(f, "needs 1 instance, {free} {free_on}")?,
            other => write!(f, "needs {needs} {other}, {free} {free_on}")?,
        }
        let ending = match (place % 10, place % 100) {
            (1, hundred) if hundred != 11 => "st",
            (2, hundred) if hundred != 12 => "nd",
            (3, hundred) if hundred != 13 => "rd",
            _ => "th",
        };
        write!(f, "; {place}{ending} in the queue")
    }
}
