//! How a trial stands, in the words of `StudyTrial::state`: completed, stopped early by the
//! scheduler, stopped at `MaxResource`, cancelled by somebody, failed, or still under way. A trial
//! is `Completed` here where its training job is `Completed` in the API, and so for `Failed`; the
//! three kinds of stops are `Stopped` there.

use crate::{JobStatus, JobView, SecondaryStatus, StopCause, TrialView, TuningEnd, TuningView};

/// How a trial stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialState {
    /// Its instances work, or are about to.
    Running,
    /// In the queue.
    Waiting,
    /// It makes room for others and may be resumed.
    Paused,
    /// As its training job.
    Completed,
    /// As its training job.
    Failed,
    /// By the scheduler, early.
    Stopped,
    /// By the scheduler, at the greatest resource.
    MaxResource,
    /// By its user, a limit, or the end of its tuning job.
    Cancelled,
}

impl TrialState {
    /// As `StudyTrial::state` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Paused => "Paused",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
            Self::MaxResource => "MaxResource",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// How a trial stands, and why it failed or was cancelled. `most`: the greatest resource, if the
/// scheduler has one.
#[must_use]
pub fn trial_state(
    trial: &TrialView,
    view: &JobView,
    tuning: &TuningView,
    most: Option<u32>,
) -> (TrialState, Option<String>) {
    match view.status {
        JobStatus::Completed => (TrialState::Completed, None),
        JobStatus::Failed => (TrialState::Failed, view.failure_reason.clone()),
        // Jobs of earlier versions have no cause `MaxResource`: they were stopped early, after
        // their last unit.
        JobStatus::Stopped | JobStatus::Stopping
            if view.stop == Some(StopCause::MaxResource)
                || view.stop == Some(StopCause::Early) && most.is_some_and(|most| trial.resource > most) =>
        {
            (TrialState::MaxResource, None)
        }
        JobStatus::Stopped | JobStatus::Stopping => stopped(trial, view, tuning),
        JobStatus::InProgress if trial.paused => (TrialState::Paused, None),
        JobStatus::InProgress
            if trial.waits || matches!(view.secondary, SecondaryStatus::Pending | SecondaryStatus::Interrupted) =>
        {
            (TrialState::Waiting, None)
        }
        JobStatus::InProgress => (TrialState::Running, None),
    }
}

/// The scheduler stops trials early, as others are more promising; whoever else ends one cancels
/// it.
fn stopped(trial: &TrialView, view: &JobView, tuning: &TuningView) -> (TrialState, Option<String>) {
    let is_whole = !matches!(
        tuning.end,
        Some(
            TuningEnd::User | TuningEnd::MaxRuntime | TuningEnd::Search | TuningEnd::Failures | TuningEnd::NoObjective
        )
    );
    let by = match view.stop {
        Some(StopCause::Early | StopCause::MaxResource) => return (TrialState::Stopped, None),
        Some(StopCause::User) => "it was stopped by its user (StopTrainingJob)",
        Some(StopCause::MaxRuntime) => "it reached its MaxRuntimeInSeconds",
        Some(StopCause::Rule) => "the condition of a rule was met, whose action stops it",
        Some(StopCause::Budget) => "a budget that it counts for is spent",
        Some(StopCause::MaxWait) => "it reached its MaxWaitTimeInSeconds",
        // It had made room for better ones, and the search came to its end without it.
        _ if trial.passed_over && is_whole => return (TrialState::Stopped, None),
        // What was stored before causes were: it ran, and nobody knows more.
        None if view.ended && trial.resource > 0 && tuning.end.is_none_or(|_| is_whole) => {
            return (TrialState::Stopped, None);
        }
        Some(StopCause::Tuning) | None => match tuning.end {
            Some(TuningEnd::User) => "its tuning job was stopped by its user",
            Some(TuningEnd::MaxRuntime) => "its tuning job reached its MaxRuntimeInSeconds",
            Some(TuningEnd::Target) => "its tuning job had reached its target",
            Some(TuningEnd::NotImproving | TuningEnd::Converged) => "its tuning job ended: results no longer improved",
            Some(_) => "its tuning job ended",
            None if trial.resource == 0 => "it was stopped before it ran",
            None => "it was stopped while it rested",
        },
    };
    (TrialState::Cancelled, Some(by.to_owned()))
}
