//! How a trial's training job makes room for others, and comes back.

use crate::{
    JobStatus, SecondaryStatus, Time,
    training_job::{Attempt, Instance, TrainingJob},
    tuning::trial::Rest,
};

/// How a trial that makes room leaves its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// What its hosts upload is stored first.
    pub(crate) stores: bool,
    /// Its secondary status stays.
    pub(crate) unseen: bool,
}

impl TrainingJob {
    /// It is in the queue: for instances, or for the leave to use those it holds.
    pub(crate) fn waits(&self) -> bool {
        let rest = self.trial.as_ref().and_then(|trial| trial.rest.as_ref());
        let has_turn = match (rest, &self.attempt) {
            (None, attempt) => attempt.is_none(),
            (Some(rest), None) => rest.wanted,
            (Some(rest), Some(attempt)) => rest.wanted && rest.frozen && attempt.failed.is_none(),
        };
        has_turn && self.ended.is_none()
    }

    /// Its programs stand still, and its attempt is whole.
    pub(crate) fn is_frozen(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.is_frozen()) && self.ended.is_none() && self.stop.is_none() && self.may_be_frozen()
    }

    /// It takes a place among its tuning job's trials: it is queued or runs, or has not left its instances yet.
    pub(crate) fn is_active(&self) -> bool {
        let has_left = |rest: &Rest| !rest.wanted && !rest.stays;
        self.ended.is_none() && !self.trial.as_ref().is_some_and(|trial| trial.rest.as_ref().is_some_and(has_left))
    }

    /// All its programs run, so that they can stand still.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let all_train = |attempt: &Attempt| attempt.instances.iter().all(|instance| *instance == Instance::Training);
        self.stop.is_none() && self.running().is_some_and(|attempt| attempt.failed.is_none() && all_train(attempt))
    }

    pub(crate) fn pause(&mut self, at: Time, attempt: Option<&str>, frozen: bool, message: &str, leaving: Leaving) -> bool {
        let is_stale = attempt.is_some_and(|attempt| self.attempt.as_ref().is_none_or(|current| current.id != attempt));
        if self.status != JobStatus::InProgress || is_stale {
            return false;
        }
        let Some(trial) = &mut self.trial else { return false };
        let stays = !frozen && self.attempt.is_some();
        trial.rest = Some(Rest { since: at, frozen, wanted: false, stays });
        match attempt {
            Some(_) if frozen => {
                self.spent(at);
                self.enter(self.secondary(), at, message)
            }
            Some(attempt) => self.leave(at, attempt, message, leaving),
            None => self.enter(SecondaryStatus::Starting, at, message),
        }
    }

    /// The attempt is ended and released, and the job rests without instances.
    pub(crate) fn leave(&mut self, at: Time, attempt: &str, message: &str, leaving: Leaving) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        self.spent(at).paused += 1;
        if let Some(attempt) = &mut self.attempt {
            attempt.parked = leaving.stores;
        }
        if let Some(trial) = &mut self.trial {
            trial.behind = if trial.checkpoints { trial.resource } else { 0 };
            if let Some(rest) = &mut trial.rest {
                rest.frozen = false;
            }
        }
        if leaving.unseen { self.say(message) } else { self.enter(SecondaryStatus::Starting, at, message) }
    }

    pub(crate) fn resume(&mut self, at: Time, to: Option<u32>, message: &str) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        trial.to = to;
        let Some(rest) = &mut trial.rest else { return false };
        rest.wanted = true;
        if let Some(retry) = &mut self.retry {
            retry.waits_since = at;
        }
        self.say(message)
    }

    pub(crate) fn thaw(&mut self, at: Time, attempt: &str, message: &str) -> bool {
        let is_current = self.attempt.as_ref().is_some_and(|current| current.id == attempt);
        let Some(trial) = self.trial.as_mut().filter(|_| is_current) else { return false };
        trial.rest = None;
        trial.raised = true;
        if let Some(retry) = &mut self.retry {
            retry.started = Some(at);
        }
        self.enter(self.secondary(), at, message)
    }
}
