//! A training job: a kind that a [`Gang`] realises. It translates the gang's steps into AWS's
//! statuses, secondary statuses and messages:
//!
//! | secondary status | entered when | leaves to |
//! |---|---|---|
//! | Starting | created; again when it leaves the queue | Pending, Downloading, Interrupted, Stopping, Failed, Stopped, MaxWaitTimeExceeded |
//! | Pending | capacity lacks | Starting, Failed, Stopped, MaxWaitTimeExceeded |
//! | Downloading | the first instance downloads; `TrainingStartTime` | Training, Interrupted, Stopping, Failed, Stopped; Starting in a retry |
//! | Training | the first instance trains | Uploading, Interrupted, Stopping, Failed, Stopped; Starting in a retry, Pending after a rest |
//! | Interrupted | instances of managed spot training are taken away, or memory runs short | Starting, Pending, Failed, Stopped, MaxWaitTimeExceeded |
//! | Stopping | StopTrainingJob, MaxRuntimeInSeconds or MaxWaitTimeInSeconds | Uploading, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded, Failed |
//! | Uploading | all programs are over, each with exit code 0 or stopped | Completed, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded, Failed; Starting in a retry |
//! | Completed, Failed, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded | once | - |
//!
//! `apply` is what each fact changes, `follow` what follows, `status` the table above, `messages`
//! what users read, `reason` a failure's reason, `actions` what the shell is to do, `view` what a
//! row shows, `trial` what a tuning job's training job knows beside this,
//! `rules` what rules have found.

mod actions;
mod apply;
pub(crate) mod follow;
pub(crate) mod messages;
pub(crate) mod reason;
pub(crate) mod rules;
pub(crate) mod status;
pub(crate) mod trial;
mod view;

use std::collections::BTreeMap;

use self::{rules::Evaluations, trial::Trial};
use crate::{GangSpec, JobName, MetricValue, SecondaryStatus, Time, Transition, TuningName, gang::Gang};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrainingJob {
    pub(crate) gang: Gang,
    /// Never empty; the last one is the secondary status.
    pub(crate) transitions: Vec<Transition>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) modified: Time,
    /// Of the present attempt.
    pub(crate) final_metrics: BTreeMap<String, MetricValue>,
    /// Last values of earlier attempts: the present one may report no value of some metrics.
    pub(crate) earlier_metrics: BTreeMap<String, MetricValue>,
    /// Whose trial it is.
    pub(crate) trial: Option<Box<Trial>>,
    /// Once a rule was evaluated.
    pub(crate) rules: Option<Box<Evaluations>>,
}

impl TrainingJob {
    pub(crate) fn new(name: &JobName, uid: &str, spec: GangSpec, order: u64, at: Time, message: &str) -> TrainingJob {
        let first = Transition { status: SecondaryStatus::Starting, start: at, end: None, message: message.to_owned() };
        TrainingJob {
            gang: Gang::new(name, uid, spec, order, at),
            transitions: vec![first],
            failure_reason: None,
            modified: at,
            final_metrics: BTreeMap::new(),
            earlier_metrics: BTreeMap::new(),
            trial: None,
            rules: None,
        }
    }

    /// The tuning job whose trial it is.
    pub(crate) fn tuning(&self) -> Option<&TuningName> {
        self.trial.as_ref().map(|trial| &trial.tuning)
    }
}
