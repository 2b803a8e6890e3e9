//! What follows for a training job, as facts: the gang's steps in AWS's words.

use super::{TrainingJob, messages, reason};
use crate::{
    Fact, JobStatus, SecondaryStatus, StopCause, Time,
    gang::{
        follow::{Limit, Step, Stopping},
        instances::Attempt,
        retry::AfterFailure,
    },
};

impl TrainingJob {
    /// The next fact that follows from what is known; asked again after it is applied, until none
    /// follows.
    pub(crate) fn consequence(&self, now: Time) -> Option<Fact> {
        if let Some(secondary) = self.next_secondary() {
            return Some(Fact::JobMoved { secondary, message: messages::moved(secondary).to_owned() });
        }
        let attempt = self.gang.attempt.as_ref();
        let id = || attempt.map(|attempt| attempt.id.clone()).unwrap_or_default();
        Some(match self.gang.step(now)? {
            Step::Stop(cause) => self.stop_for(cause, now),
            Step::Stopped(limit) => stopped(limit),
            Step::Failed(failure) => {
                let attempt = attempt?;
                self.attempt_failed(attempt, reason::of(attempt, &failure), now)
            }
            Step::Store => Fact::UploadsEnded { attempt: id() },
            Step::Release => Fact::ReleaseOrdered { attempt: id() },
            Step::Released => Fact::Released { attempt: None },
            Step::Vacate { hosts } => {
                let message = messages::lost_instances(attempt?, &hosts);
                Fact::InstancesVacated { attempt: id(), hosts, message }
            }
            Step::Replace { hosts } => Fact::ReplacementAllowed { attempt: id(), hosts },
        })
    }

    /// How a job in progress begins to stop.
    pub(crate) fn stop_for(&self, cause: StopCause, now: Time) -> Fact {
        match (self.gang.stopping(), &self.gang.attempt) {
            (Stopping::HasFailed(failure), Some(attempt)) => {
                let reason = reason::of(attempt, &failure);
                let next = self.gang.next_after_failure(reason::is_internal(&reason), now);
                if next == AfterFailure::End { failed(reason) } else { stopped(cause.into()) }
            }
            (Stopping::Begins, _) => Fact::StopRequested { cause, message: messages::stopping(cause).to_owned() },
            _ => stopped(cause.into()),
        }
    }

    /// What a failed attempt means for its job: another one, or the end.
    pub(crate) fn attempt_failed(&self, attempt: &Attempt, reason: String, now: Time) -> Fact {
        let id = attempt.id.clone();
        match self.gang.after_failure(reason::is_internal(&reason), now) {
            // It resumes from its checkpoint when it is requested again.
            AfterFailure::Rest => Fact::TrialParked {
                attempt: id,
                message: messages::lost_while_paused(&reason),
                stores: false,
                rested: true,
            },
            AfterFailure::Retry(retry) => {
                let message = messages::retried(retry, self.gang.spec.retries, &reason);
                Fact::AttemptFailed { attempt: id, reason, message, replaced: false }
            }
            AfterFailure::Replace => {
                let message = messages::replaced(&reason);
                Fact::AttemptFailed { attempt: id, reason, message, replaced: true }
            }
            AfterFailure::End => failed(reason),
        }
    }

    /// What a job that is being stopped ends as.
    pub(crate) fn stopped(&self) -> Fact {
        stopped(self.gang.stop.as_ref().map_or(Limit::Asked, |stop| stop.cause.into()))
    }
}

fn stopped(limit: Limit) -> Fact {
    let (secondary, message) = messages::stopped(limit);
    Fact::JobEnded { status: JobStatus::Stopped, secondary, message: message.to_owned(), failure_reason: None }
}

pub(crate) fn completed() -> Fact {
    let (status, secondary) = (JobStatus::Completed, SecondaryStatus::Completed);
    Fact::JobEnded { status, secondary, message: messages::COMPLETED.to_owned(), failure_reason: None }
}

pub(crate) fn failed(reason: String) -> Fact {
    let (status, secondary) = (JobStatus::Failed, SecondaryStatus::Failed);
    Fact::JobEnded { status, secondary, message: reason.clone(), failure_reason: Some(reason) }
}
