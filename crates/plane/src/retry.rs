//! One attempt after the other: what those that failed, paused or were interrupted leave to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    JobStatus, MetricValue, SecondaryStatus, Time,
    training_job::{Attempt, TrainingJob},
};

/// A job after an attempt that failed, paused or was interrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Retry {
    /// Attempts that failed and were or are followed by another.
    pub(crate) failed: u32,
    /// Attempts that were ended and released for a pause.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) paused: u32,
    /// Attempts whose instances were taken away.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) interrupted: u32,
    /// Attempts that were ended for want of memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) evicted: u32,
    /// Memory that the largest of those used, in bytes.
    #[serde(default, skip_serializing_if = "is_none_used")]
    pub(crate) used_bytes: u64,
    /// Last values of metrics when the last attempt was over that another goes on from: that may have no more to say of some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) measured: BTreeMap<String, MetricValue>,
    /// Why the last of those that failed did.
    pub(crate) reason: String,
    /// What they count of MaxRuntimeInSeconds, in milliseconds.
    pub(crate) spent_ms: u64,
    /// When the job came back to the queue; meaningful while it waits.
    pub(crate) waits_since: Time,
    /// When the first host of the present attempt entered Downloading.
    pub(crate) started: Option<Time>,
}

impl TrainingJob {
    /// Attempts that have failed and are followed by another.
    pub(crate) fn failed_attempts(&self) -> u32 {
        self.retry.as_ref().map_or(0, |retry| retry.failed)
    }

    /// Number of the present attempt: one that failed, or was ended otherwise, is counted already.
    pub(crate) fn number_of(&self, attempt: &Attempt) -> u32 {
        self.next_attempt() - u32::from(attempt.failed.is_some())
    }

    /// Number of the next attempt.
    pub(crate) fn next_attempt(&self) -> u32 {
        self.retry.as_ref().map_or(1, |retry| retry.failed + retry.paused + retry.interrupted + retry.evicted + 1)
    }

    /// Since when the present attempt counts towards MaxRuntimeInSeconds.
    pub(crate) fn attempt_start(&self) -> Option<Time> {
        match &self.retry {
            None => self.training_start,
            Some(retry) => retry.started,
        }
    }

    /// What is left of MaxRuntimeInSeconds at the present attempt's start, in milliseconds. AWS counts all attempts together; time in the queue
    /// between them is no run time, as it is none before the first.
    pub(crate) fn runtime_left_ms(&self) -> u64 {
        let spent = self.retry.as_ref().map_or(0, |retry| retry.spent_ms);
        self.spec.max_runtime_s.saturating_mul(1000).saturating_sub(spent)
    }

    /// Since when it waits, if it does.
    pub(crate) fn waits_since(&self) -> Time {
        self.retry.as_ref().map_or(self.created, |retry| retry.waits_since)
    }

    pub(crate) fn fail_attempt(&mut self, at: Time, attempt: &str, reason: &str, message: &str) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        let retry = self.spent(at);
        retry.failed += 1;
        reason.clone_into(&mut retry.reason);
        if let Some(trial) = &mut self.trial {
            trial.behind = trial.saved;
        }
        self.enter(SecondaryStatus::Starting, at, message)
    }

    /// Another attempt follows this one.
    pub(crate) fn abandon(&mut self, at: Time, attempt: &str) -> bool {
        let current = self.attempt.as_mut().filter(|current| current.id == attempt && current.failed.is_none());
        let Some(current) = current.filter(|_| self.status == JobStatus::InProgress) else { return false };
        current.failed = Some(at);
        true
    }

    /// The instances are taken away.
    pub(crate) fn interrupt_attempt(&mut self, at: Time, attempt: &str, message: &str) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        self.spent(at).interrupted += 1;
        if let Some(current) = &mut self.attempt {
            current.interrupted = true;
        }
        self.enter(SecondaryStatus::Interrupted, at, message)
    }

    /// Its memory is wanted by older attempts.
    pub(crate) fn evict_attempt(&mut self, at: Time, attempt: &str, used_bytes: u64, message: &str) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        let retry = self.spent(at);
        retry.evicted += 1;
        retry.used_bytes = retry.used_bytes.max(used_bytes);
        if let Some(current) = &mut self.attempt {
            current.interrupted = true;
            current.evicted = true;
        }
        self.enter(SecondaryStatus::Interrupted, at, message)
    }

    /// The attempt that another one follows is released: the job is in the queue again, or rests.
    pub(crate) fn comes_back(&mut self, at: Time, attempt: Option<&str>) -> bool {
        let is_it = |current: &mut Attempt| Some(&*current.id) == attempt && current.failed.is_some();
        let Some(before) = self.attempt.take_if(|current| self.ended.is_none() && is_it(current)) else { return false };
        if let Some(trial) = &mut self.trial {
            trial.is_released();
            if before.interrupted {
                // What it saved while it was being ended counts.
                trial.behind = trial.saved;
            }
        }
        let measured = if before.interrupted || before.parked { self.metrics() } else { BTreeMap::new() };
        if let Some(retry) = &mut self.retry {
            retry.waits_since = at;
            retry.measured = measured;
        }
        true
    }

    /// The clock of MaxRuntimeInSeconds stands until [`Retry::started`] is set again.
    pub(crate) fn spent(&mut self, at: Time) -> &mut Retry {
        let spent_ms = self.attempt_start().map_or(0, |start| at.ms_since(start));
        let retry = self.retry.get_or_insert_with(|| {
            Box::new(Retry {
                failed: 0,
                paused: 0,
                interrupted: 0,
                evicted: 0,
                used_bytes: 0,
                measured: BTreeMap::new(),
                reason: String::new(),
                spent_ms: 0,
                waits_since: at,
                started: None,
            })
        });
        retry.spent_ms = retry.spent_ms.saturating_add(spent_ms);
        retry.waits_since = at;
        retry.started = None;
        retry
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none_used(bytes: &u64) -> bool {
    *bytes == 0
}
