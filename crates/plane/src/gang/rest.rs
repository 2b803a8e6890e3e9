//! How a gang makes room for others, and comes back.

use serde::{Deserialize, Serialize};

use super::{
    Gang,
    instances::{Attempt, Instance},
};
use crate::{AttemptId, Time};

/// A gang that makes room for others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) since: Time,
    /// Its programs are frozen and hold memory only; otherwise they are ended, and the attempt is
    /// released.
    pub(crate) frozen: bool,
    /// It is to resume.
    pub(crate) wanted: bool,
    /// It has not been frozen, and counts as active until its attempt is released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stays: bool,
}

impl Gang {
    /// It is in the queue: for instances, or for the permission to use those it holds.
    pub(crate) fn waits(&self) -> bool {
        let has_turn = match (&self.rest, &self.attempt) {
            (None, attempt) => attempt.is_none(),
            (Some(rest), None) => rest.wanted,
            (Some(rest), Some(attempt)) => rest.wanted && rest.frozen && attempt.failed.is_none(),
        };
        has_turn && self.end.is_none()
    }

    /// Its programs are frozen, and its attempt is complete.
    pub(crate) fn is_frozen(&self) -> bool {
        self.rests_frozen() && self.in_progress() && self.may_be_frozen()
    }

    /// It was frozen when it began to rest, and has not left its instances.
    pub(crate) fn rests_frozen(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.frozen)
    }

    /// It rests until it is requested again.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.wanted)
    }

    /// Since when it rests.
    pub(crate) fn rests_since(&self) -> Option<Time> {
        self.rest.as_ref().map(|rest| rest.since)
    }

    /// It is queued or runs, or has not left its instances yet.
    pub(crate) fn is_active(&self) -> bool {
        let has_left = |rest: &Rest| !rest.wanted && !rest.stays;
        self.end.is_none() && !self.rest.as_ref().is_some_and(has_left)
    }

    /// All its programs run, so that they can be frozen.
    pub(crate) fn may_be_frozen(&self) -> bool {
        let all_run = |attempt: &Attempt| attempt.all(|instance| *instance == Instance::Running);
        self.stop.is_none() && self.running().is_some_and(|attempt| attempt.failed.is_none() && all_run(attempt))
    }

    /// It begins to rest: frozen, or to leave its instances next. Returns whether this attempt was
    /// under way.
    pub(crate) fn pause(&mut self, at: Time, attempt: Option<&AttemptId>, frozen: bool) -> bool {
        let is_stale =
            attempt.is_some_and(|attempt| self.attempt.as_ref().is_none_or(|current| current.id != *attempt));
        if !self.in_progress() || is_stale {
            return false;
        }
        self.rest = Some(Rest { since: at, frozen, wanted: false, stays: !frozen && self.attempt.is_some() });
        if attempt.is_some() && frozen {
            self.count(at);
        }
        true
    }

    /// The attempt is ended and released, and the gang rests without instances. `stores`: what its
    /// hosts upload is stored first. Returns whether the attempt was under way.
    pub(crate) fn leave(&mut self, at: Time, attempt: &AttemptId, stores: bool) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        self.count(at).paused += 1;
        if let Some(attempt) = &mut self.attempt {
            attempt.parked = stores;
        }
        if let Some(rest) = &mut self.rest {
            rest.frozen = false;
        }
        true
    }

    /// It is to resume. Returns whether it rested.
    pub(crate) fn resume(&mut self, at: Time) -> bool {
        let Some(rest) = &mut self.rest else { return false };
        rest.wanted = true;
        if let Some(retry) = &mut self.retry {
            retry.waits_since = at;
        }
        true
    }

    /// Its programs run again.
    pub(crate) fn thaw(&mut self, at: Time) {
        self.rest = None;
        if let Some(retry) = &mut self.retry {
            retry.started = Some(at);
        }
    }
}
