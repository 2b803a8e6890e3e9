//! What follows for a gang from what is known, one step at a time; asked again after each is
//! applied, until nothing follows.

use super::{
    Gang,
    failure::Failure,
    instances::{Attempt, Instance, Stage},
    timers::Timer,
};
use crate::{Host, StopCause, Time};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step<'a> {
    /// It begins to stop, since its time is up.
    Stop(StopCause),
    /// It is over, stopped for this limit or as it was asked to.
    Stopped(Limit),
    /// The attempt has failed: [`Gang::after_failure`] says what that means.
    Failed(Failure<'a>),
    /// All artifacts that are awaited are here: they are to be stored.
    Store,
    /// Nothing is awaited from the instances any more.
    Release,
    /// It was in the queue, and is gone from there.
    Released,
    /// What is left of these instances is to be removed; the others continue.
    Vacate { hosts: Vec<Host> },
    /// Instances may start in these places.
    Replace { hosts: Vec<Host> },
}

/// What ended a gang that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// None: a client, or whatever else owns the gang.
    Asked,
    MaxRuntime,
    MaxPending,
    MaxWait,
}

impl From<StopCause> for Limit {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::MaxRuntime => Limit::MaxRuntime,
            StopCause::MaxWait => Limit::MaxWait,
            _ => Limit::Asked,
        }
    }
}

/// How a gang in progress begins to stop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stopping<'a> {
    /// Its programs are stopped, or what they left is stored first.
    Begins,
    /// Nothing runs that could be stopped: it is over.
    IsOver,
    /// It has failed already, and only the verdict was awaited.
    HasFailed(Failure<'a>),
}

impl Gang {
    pub(crate) fn step(&self, now: Time) -> Option<Step<'_>> {
        let due = self.due(now);
        let Some(attempt) = &self.attempt else {
            return match due {
                Some(Timer::MaxPending) => Some(Step::Stopped(Limit::MaxPending)),
                Some(Timer::MaxWait) => Some(Step::Stopped(Limit::MaxWait)),
                _ => self.end.map(|_| Step::Released),
            };
        };
        if attempt.stage != Stage::Running {
            let is_over = self.end.is_some() || attempt.failed.is_some() && !attempt.parked;
            return (is_over && attempt.stage == Stage::Storing).then_some(Step::Release);
        }
        if self.is_stopping() {
            return self.step_while_stopping(attempt, due);
        }
        if self.in_progress() && attempt.failed.is_none() {
            return self.step_while_running(attempt, due, now);
        }
        // Its instances are only waited for.
        let is_awaited = self.in_progress() || self.end.is_some_and(|end| end.failed);
        if is_awaited && due.is_none() && attempt.any(Instance::active) {
            return None;
        }
        if self.in_progress() && attempt.parked {
            return step_while_parked(attempt, due);
        }
        // Another attempt would have no time.
        if self.in_progress() && attempt.interrupted && self.is_past_max_wait(now) {
            return Some(Step::Stopped(Limit::MaxWait));
        }
        Some(Step::Release)
    }

    fn step_while_running<'a>(&'a self, attempt: &'a Attempt, due: Option<Timer>, now: Time) -> Option<Step<'a>> {
        if let Some(failure) = self.failure(attempt) {
            return (attempt.all_over() || due == Some(Timer::Settle)).then_some(Step::Failed(failure));
        }
        let mut gone = [self.losses(attempt), self.latecomers(attempt)].concat();
        gone.sort_unstable();
        gone.dedup();
        if !gone.is_empty() {
            return Some(Step::Vacate { hosts: gone });
        }
        match due {
            Some(Timer::Launch) => return Some(Step::Failed(Failure::NotLaunched)),
            Some(Timer::MaxPending) => return Some(Step::Stopped(Limit::MaxPending)),
            Some(Timer::MaxRuntime) => return Some(Step::Stop(StopCause::MaxRuntime)),
            Some(Timer::MaxWait) => return Some(Step::Stop(StopCause::MaxWait)),
            Some(Timer::Upload) => {
                let hosts = attempt.hosts(|instance| matches!(instance, Instance::Ended { .. }));
                return Some(Step::Failed(Failure::NotUploaded { hosts }));
            }
            Some(Timer::Leave) => return Some(Step::Vacate { hosts: self.overdue(attempt, now) }),
            Some(Timer::Replace) => return Some(Step::Replace { hosts: attempt.rested_places(now) }),
            _ => {}
        }
        attempt.all(|instance| *instance == Instance::Uploaded || !instance.is_member()).then_some(Step::Store)
    }

    fn step_while_stopping(&self, attempt: &Attempt, due: Option<Timer>) -> Option<Step<'_>> {
        let stopped = || Step::Stopped(self.stop.as_ref().map_or(Limit::Asked, |stop| stop.cause.into()));
        let joining = attempt.joining();
        if !joining.is_empty() {
            // They may never be started, and have nothing to store.
            return Some(Step::Vacate { hosts: joining });
        }
        if !attempt.all_over() {
            return (due == Some(Timer::StopUnanswered)).then(stopped);
        }
        if self.awaits_uploads(attempt) && due.is_none() {
            return None;
        }
        let is_stored = attempt.any(|instance| *instance == Instance::Uploaded) && !self.spec.serves();
        Some(if is_stored { Step::Store } else { stopped() })
    }

    /// Programs are over whose artifacts are awaited.
    fn awaits_uploads(&self, attempt: &Attempt) -> bool {
        !self.spec.serves() && attempt.last_awaited().is_some()
    }

    /// All programs are over, well or stopped, and what they left is being uploaded.
    pub(crate) fn is_uploading(&self, attempt: &Attempt) -> bool {
        let leaves_any = self.awaits_uploads(attempt) || attempt.any(|instance| *instance == Instance::Uploaded);
        let is_it =
            if self.is_stopping() { leaves_any } else { self.in_progress() && self.first_failure(attempt).is_none() };
        attempt.all_over() && is_it && !self.spec.serves()
    }

    /// How it begins to stop if it is asked to now.
    pub(crate) fn stopping(&self) -> Stopping<'_> {
        let Some(attempt) = &self.attempt else { return Stopping::IsOver };
        if attempt.parked {
            // Once it is stored, what it left is its model.
            return if attempt.stage == Stage::Releasing { Stopping::IsOver } else { Stopping::Begins };
        }
        if attempt.failed.is_some() {
            return Stopping::IsOver;
        }
        if attempt.stage != Stage::Running {
            return Stopping::Begins;
        }
        if let Some(failure) = self.failure(attempt) {
            return Stopping::HasFailed(failure);
        }
        let is_silent = attempt.all(|instance| *instance == Instance::Starting);
        if is_silent { Stopping::IsOver } else { Stopping::Begins }
    }
}

/// What is ended to make room leaves its model first: it may be the best one, and never be resumed.
fn step_while_parked(attempt: &Attempt, due: Option<Timer>) -> Option<Step<'_>> {
    if attempt.last_awaited().is_some() && due.is_none() {
        return None;
    }
    let is_stored = attempt.any(|instance| *instance == Instance::Uploaded) && attempt.all_over();
    Some(if is_stored { Step::Store } else { Step::Release })
}
