//! A gang: instances that are acquired, started and released together, and replaced together when
//! they fail.
//!
//! It knows placements, attempts, stops and rests, and neither what its programs do nor how AWS
//! names what happens to it: kinds of jobs ([`crate::training`]) translate its steps into facts,
//! statuses and messages.
//!
//! - A gang *ends* or *serves* ([`Form`](crate::Form)). One that ends has a longest run time, and
//!   what its programs leave is stored. One that serves runs until it is stopped: nothing counts on
//!   when it gives its capacity back, a program that ends by itself has failed, and nothing of it
//!   is stored.
//! - Success is exit code 0 everywhere, all artifacts uploaded and stored.
//! - A failing host does not decide at once: a rank that is killed makes its peers exit within
//!   milliseconds, and their reports may come first. The attempt fails when all hosts are over or
//!   [`SETTLE_MS`](crate::limits::SETTLE_MS) after the first failure arrived; which host is to
//!   blame is [`failure`]'s. Peers that still run are then stopped. A failed attempt stores
//!   nothing.
//! - A stop sends SIGTERM, then SIGKILL after the grace; whatever the exit codes, what the hosts
//!   then upload is stored. Hosts that do not answer within the grace and
//!   [`UNANSWERED_S`](crate::limits::UNANSWERED_S) end it without artifacts; artifacts are awaited
//!   for [`UPLOAD_LIMIT_S`](crate::limits::UPLOAD_LIMIT_S).
//! - Artifacts of programs that ended well are awaited for as long; then the attempt has failed by
//!   the hosts that did not send them.
//! - Nothing waits forever for a launcher that is silent: see
//!   [`LAUNCH_LIMIT_S`](crate::limits::LAUNCH_LIMIT_S).
//! - An attempt that failed through our own side (an instance lost, a launch that failed, artifacts
//!   that could not be stored) is followed by another while retries are left: its instances end as
//!   a failed gang's do, and only when it is released does the gang stand in the queue again, at
//!   the place that its creation gave it. The run time is for all attempts together. A stop ends
//!   the retries.
//! - An attempt that has served for [`SERVED_S`](crate::limits::SERVED_S) is followed by another
//!   whatever ended it, and however often.
//! - An interruption ends the programs as a stop does, SIGTERM and the grace, but stores nothing:
//!   what counts are the checkpoints that are saved until the release. Then the gang stands in the
//!   queue again, as after a retry. An eviction, when the machine's memory runs short, is an
//!   interruption with a grace of [`EVICTION_GRACE_S`](crate::limits::EVICTION_GRACE_S) at most.
//! - A gang that rests makes room for others: frozen on its instances, or without any.
//! - A gang that declares how few instances it can live with loses and gains some while it runs
//!   ([`elastic`]).
//!
//! Deadlines that passed while the server was down are due at once, so after a restart the shell
//! lets agents report before its first Tick.

pub(crate) mod elastic;
pub(crate) mod failure;
pub(crate) mod follow;
pub(crate) mod instances;
pub(crate) mod orders;
pub(crate) mod rest;
pub(crate) mod retry;
pub(crate) mod timers;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use self::{
    instances::{Attempt, Instance, Stage},
    rest::Rest,
    retry::Retry,
};
use crate::{AttemptId, GangSpec, JobName, Placement, StopCause, Time, capacity::Resources, quotas::Amounts};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gang {
    /// The job's.
    pub(crate) name: JobName,
    /// Attempts are named `<uid>-<number>`.
    pub(crate) uid: String,
    /// Place in the order of creation; of a gang that rested, in that of its return to the queue.
    pub(crate) order: u64,
    pub(crate) spec: GangSpec,
    pub(crate) created: Time,
    /// When its first attempt began to count as run time.
    pub(crate) started: Option<Time>,
    pub(crate) stop: Option<Stop>,
    pub(crate) end: Option<End>,
    /// None while it waits.
    pub(crate) attempt: Option<Attempt>,
    /// What earlier attempts leave behind; none in the first.
    pub(crate) retry: Option<Box<Retry>>,
    /// It makes room for others.
    pub(crate) rest: Option<Rest>,
}

/// It is being stopped, or was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    pub(crate) at: Time,
}

/// It is over; its attempt may still be being released.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct End {
    pub(crate) at: Time,
    /// The peers of the host that failed are still to be stopped.
    pub(crate) failed: bool,
}

impl Gang {
    pub(crate) fn new(name: &JobName, uid: &str, spec: GangSpec, order: u64, at: Time) -> Gang {
        Gang {
            name: name.to_owned(),
            uid: uid.to_owned(),
            order,
            spec,
            created: at,
            started: None,
            stop: None,
            end: None,
            attempt: None,
            retry: None,
            rest: None,
        }
    }

    /// It is neither over nor being stopped.
    pub(crate) fn in_progress(&self) -> bool {
        self.end.is_none() && self.stop.is_none()
    }

    /// It is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.end.is_none() && self.stop.is_some()
    }

    /// The attempt, if reports of its instances still matter.
    pub(crate) fn running(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|attempt| attempt.stage == Stage::Running)
    }

    /// The attempt of this id.
    pub(crate) fn current(&mut self, attempt: &AttemptId) -> Option<&mut Attempt> {
        self.attempt.as_mut().filter(|current| current.id == *attempt)
    }

    /// What it holds on instances, by node. One that rests frozen holds its memory.
    pub(crate) fn holds<'a>(&self, attempt: &'a Attempt) -> Vec<(&'a str, Resources)> {
        let mut holds = attempt.held();
        if self.is_frozen() {
            holds.iter_mut().for_each(|(_, amount)| amount.instances = 0);
        }
        holds
    }

    /// The same in all, for quotas.
    pub(crate) fn claims(&self, attempt: &Attempt) -> Amounts {
        let all = self.holds(attempt).into_iter().fold(Resources::default(), |all, (_, amount)| all.plus(&amount));
        Amounts::of(&all, u64::from(!self.is_frozen()))
    }

    /// It leaves the queue with these instances. Returns whether it was in the queue.
    pub(crate) fn launch(&mut self, at: Time, attempt: &AttemptId, placement: &Placement, lease_s: u64) -> bool {
        if !self.waits() {
            return false;
        }
        self.rest = None;
        self.attempt = Some(Attempt {
            id: attempt.clone(),
            placement: placement.clone(),
            lease_s,
            launched: at,
            stage: Stage::Running,
            instances: vec![Instance::Starting; placement.gpus.len()],
            failed: None,
            interrupted: false,
            evicted: false,
            parked: false,
            queued: false,
            complete: false,
            losses: 0,
            joined: BTreeSet::new(),
        });
        true
    }

    /// The time to report counts from now on.
    pub(crate) fn delay_launch(&mut self, at: Time) {
        if let Some(attempt) = &mut self.attempt {
            attempt.launched = at;
            attempt.queued = false;
        }
    }

    /// The launch waits elsewhere, until it is delayed or reported.
    pub(crate) fn queue_launch(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.queued = true;
        }
    }

    /// Run time counts from now on, unless it does already.
    pub(crate) fn begin(&mut self, at: Time) {
        self.started.get_or_insert(at);
        if let Some(retry) = &mut self.retry {
            retry.started.get_or_insert(at);
        }
    }
}
