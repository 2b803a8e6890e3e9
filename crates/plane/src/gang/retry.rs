//! Sequential attempts: what those that failed, paused or were interrupted leave to the next.

use serde::{Deserialize, Serialize};

use super::{Gang, instances::Attempt};
use crate::{
    AttemptId, Form, Time,
    limits::{LEASE_MARGIN_S, SERVED_S},
};

/// A gang after an attempt that failed, paused or was interrupted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Retry {
    /// Attempts that failed and were or are followed by another, within the limit of retries.
    pub(crate) failed: u32,
    /// Attempts that were ended and released for a pause.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) paused: u32,
    /// Attempts whose instances were taken away.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) interrupted: u32,
    /// Attempts that were ended for want of memory.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) evicted: u32,
    /// Attempts that had served and failed.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) replaced: u32,
    /// Memory that the largest of those that were evicted used, in bytes.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) used_bytes: u64,
    /// Why the last of those that failed did.
    pub(crate) reason: String,
    /// Run time of earlier attempts, in milliseconds.
    pub(crate) spent_ms: u64,
    /// When the gang came back to the queue; meaningful while it waits.
    pub(crate) waits_since: Time,
    /// When the first host of the present attempt began to work.
    pub(crate) started: Option<Time>,
}

/// What a failed attempt means for its gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// Nothing of it ran: it rests without instances until it is needed.
    Rest,
    /// Another attempt follows, with this number among the retries.
    Retry(u32),
    /// It has served, and another attempt follows.
    Replace,
    /// The gang has failed.
    End,
}

impl Gang {
    /// Attempts that have failed and are followed by another.
    pub(crate) fn failed_attempts(&self) -> u32 {
        self.retry.as_ref().map_or(0, |retry| retry.failed)
    }

    /// Number of the present attempt: one that failed, or was ended otherwise, is counted already.
    pub(crate) fn number_of(&self, attempt: &Attempt) -> u32 {
        self.next_number() - u32::from(attempt.failed.is_some())
    }

    fn next_number(&self) -> u32 {
        let before = |retry: &Retry| retry.failed + retry.paused + retry.interrupted + retry.evicted + retry.replaced;
        self.retry.as_deref().map_or(0, before) + 1
    }

    /// The attempt with this number.
    pub(crate) fn attempt_id(&self, number: u32) -> AttemptId {
        AttemptId::of(&self.uid, number)
    }

    pub(crate) fn next_attempt(&self) -> AttemptId {
        self.attempt_id(self.next_number())
    }

    /// Since when the present attempt counts as run time.
    pub(crate) fn attempt_start(&self) -> Option<Time> {
        match &self.retry {
            None => self.started,
            Some(retry) => retry.started,
        }
    }

    /// What is left of the run time at the present attempt's start, in milliseconds; none if it has
    /// no limit. All attempts count together; time in the queue between them is no run time, as it
    /// is none before the first.
    pub(crate) fn runtime_left_ms(&self) -> Option<u64> {
        let spent = self.retry.as_ref().map_or(0, |retry| retry.spent_ms);
        match self.spec.form {
            Form::Ends { max_runtime_s } => Some(max_runtime_s.saturating_mul(1000).saturating_sub(spent)),
            Form::Serves => None,
        }
    }

    /// For how long agents that lose the server keep their programs running, in seconds: each
    /// contact with a server begins it again.
    pub(crate) fn lease_s(&self) -> u64 {
        self.runtime_left_ms().unwrap_or(0).div_ceil(1000).saturating_add(LEASE_MARGIN_S)
    }

    /// Since when it waits, if it does.
    pub(crate) fn waits_since(&self) -> Time {
        self.retry.as_ref().map_or(self.created, |retry| retry.waits_since)
    }

    /// What a failure of the present attempt means. `is_ours`: our own side failed, not the
    /// program.
    pub(crate) fn after_failure(&self, is_ours: bool, now: Time) -> AfterFailure {
        let rests = self.stop.is_none() && self.rests_frozen() && self.is_unwanted();
        if rests && is_ours { AfterFailure::Rest } else { self.next_after_failure(is_ours, now) }
    }

    /// The same for a gang that does not rest.
    pub(crate) fn next_after_failure(&self, is_ours: bool, now: Time) -> AfterFailure {
        let ran_ms = self.attempt_start().map_or(0, |start| now.ms_since(start));
        let has_time = self.runtime_left_ms().is_none_or(|left_ms| ran_ms < left_ms);
        let may_retry = (is_ours || self.spec.serves()) && has_time && self.failed_attempts() < self.spec.retries;
        match () {
            () if self.stop.is_some() => AfterFailure::End,
            () if self.spec.serves() && ran_ms >= SERVED_S * 1000 => AfterFailure::Replace,
            () if may_retry => AfterFailure::Retry(self.failed_attempts() + 1),
            () => AfterFailure::End,
        }
    }

    /// The attempt has failed, and another follows. Returns whether it was under way.
    pub(crate) fn fail(&mut self, at: Time, attempt: &AttemptId, reason: &str, is_replaced: bool) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        let retry = self.count(at);
        if is_replaced {
            retry.replaced += 1;
        } else {
            retry.failed += 1;
        }
        reason.clone_into(&mut retry.reason);
        true
    }

    /// The instances are taken away. Returns whether the attempt was under way.
    pub(crate) fn interrupt(&mut self, at: Time, attempt: &AttemptId) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        self.count(at).interrupted += 1;
        if let Some(current) = &mut self.attempt {
            current.interrupted = true;
        }
        true
    }

    /// Its memory is needed by older attempts. Returns whether the attempt was under way.
    pub(crate) fn evict(&mut self, at: Time, attempt: &AttemptId, used_bytes: u64) -> bool {
        if !self.abandon(at, attempt) {
            return false;
        }
        let retry = self.count(at);
        retry.evicted += 1;
        retry.used_bytes = retry.used_bytes.max(used_bytes);
        if let Some(current) = &mut self.attempt {
            current.interrupted = true;
            current.evicted = true;
        }
        true
    }

    /// Another attempt follows this one. Returns whether it was under way.
    pub(crate) fn abandon(&mut self, at: Time, attempt: &AttemptId) -> bool {
        let in_progress = self.in_progress();
        let Some(current) = self.current(attempt).filter(|current| in_progress && current.failed.is_none()) else {
            return false;
        };
        current.failed = Some(at);
        true
    }

    /// The attempt that another one follows is released: the gang is in the queue again, or rests.
    /// Returns that attempt.
    pub(crate) fn come_back(&mut self, at: Time, attempt: Option<&str>) -> Option<Attempt> {
        let is_over = self.end.is_some();
        let is_it = |current: &mut Attempt| !is_over && Some(&*current.id) == attempt && current.failed.is_some();
        let before = self.attempt.take_if(is_it)?;
        if let Some(rest) = &mut self.rest {
            rest.frozen = false;
            rest.stays = false;
        }
        if let Some(retry) = &mut self.retry {
            retry.waits_since = at;
        }
        Some(before)
    }

    /// Adds the attempt's run time to the sum; no time is counted until [`Retry::started`] is set
    /// again.
    pub(crate) fn count(&mut self, at: Time) -> &mut Retry {
        let ran_ms = self.attempt_start().map_or(0, |start| at.ms_since(start));
        let retry = self.retry.get_or_insert_default();
        retry.spent_ms = retry.spent_ms.saturating_add(ran_ms);
        retry.waits_since = at;
        retry.started = None;
        retry
    }
}
