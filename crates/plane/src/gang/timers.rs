//! What a gang waits for besides reports, and for how long.

use super::{
    Gang,
    instances::{Attempt, Instance, Stage},
};
use crate::{
    Time,
    limits::{LAUNCH_LIMIT_S, PARK_UPLOAD_LIMIT_S, PEER_GRACE_S, SETTLE_MS, UNANSWERED_S, UPLOAD_LIMIT_S},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    MaxPending,
    MaxWait,
    Launch,
    MaxRuntime,
    Settle,
    StopUnanswered,
    StopUpload,
    Upload,
    PeersUnanswered,
    /// Instances that are taken away have not left.
    Leave,
    /// Instances may start in the places of lost ones.
    Replace,
}

type Deadline = Option<(Time, Timer)>;

impl Gang {
    /// Its next deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.timer().map(|(at, _)| at)
    }

    /// The timer that is due.
    pub(crate) fn due(&self, now: Time) -> Option<Timer> {
        self.timer().filter(|(at, _)| *at <= now).map(|(_, timer)| timer)
    }

    /// Its time is up, waiting and running together.
    pub(crate) fn is_past_max_wait(&self, now: Time) -> bool {
        self.max_wait().is_some_and(|(at, _)| at <= now)
    }

    /// At most one timer runs at a time.
    fn timer(&self) -> Deadline {
        let Some(attempt) = &self.attempt else {
            return if self.waits() { sooner(self.max_pending(), self.max_wait()) } else { None };
        };
        if attempt.stage != Stage::Running || self.is_frozen() {
            return None;
        }
        match (&self.end, &self.stop) {
            (Some(end), _) => end.failed.then(|| self.peers_end(attempt, end.at)).flatten(),
            (None, Some(stop)) if !attempt.all_over() => {
                Some((stop.at.plus_s(u64::from(self.spec.grace_s) + UNANSWERED_S), Timer::StopUnanswered))
            }
            (None, Some(_)) => attempt.last_awaited().map(|at| (at.plus_s(UPLOAD_LIMIT_S), Timer::StopUpload)),
            (None, None) => match attempt.failed {
                None => self.running_timer(attempt),
                Some(failed) => match attempt.last_awaited() {
                    Some(seen) if attempt.parked && !attempt.any(Instance::active) => {
                        Some((seen.plus_s(PARK_UPLOAD_LIMIT_S), Timer::StopUpload))
                    }
                    _ => self.peers_end(attempt, failed),
                },
            },
        }
    }

    fn max_pending(&self) -> Deadline {
        self.spec.max_pending_s.map(|limit| (self.waits_since().plus_s(limit), Timer::MaxPending))
    }

    fn running_timer(&self, attempt: &Attempt) -> Deadline {
        if let Some(first) = self.first_failure(attempt) {
            return Some((first.plus_ms(SETTLE_MS), Timer::Settle));
        }
        if attempt.all_over() {
            return attempt.last_awaited().map(|at| (at.plus_s(UPLOAD_LIMIT_S), Timer::Upload));
        }
        let limit = match (self.attempt_start(), self.runtime_left_ms()) {
            (None, _) if attempt.queued => self.max_pending(),
            (None, _) => Some((attempt.launched.plus_s(LAUNCH_LIMIT_S), Timer::Launch)),
            (Some(start), Some(left_ms)) => Some((start.plus_ms(left_ms), Timer::MaxRuntime)),
            (Some(_), None) => None,
        };
        sooner(sooner(limit, self.max_wait()), self.place_timer(attempt))
    }

    fn peers_end(&self, attempt: &Attempt, failed: Time) -> Deadline {
        let grace_s = if attempt.interrupted { self.spec.grace_s } else { PEER_GRACE_S };
        attempt
            .any(Instance::active)
            .then(|| (failed.plus_s(u64::from(grace_s) + UNANSWERED_S), Timer::PeersUnanswered))
    }

    fn max_wait(&self) -> Deadline {
        self.spec.max_wait_s.map(|limit| (self.created.plus_s(limit), Timer::MaxWait))
    }

    /// Until when it may hold its capacity, in the past if it should be over already; none if it
    /// may for ever.
    pub(crate) fn latest_end(&self, attempt: &Attempt) -> Option<Time> {
        let stop_s = u64::from(self.spec.grace_s) + UNANSWERED_S;
        if let Some(stop) = &self.stop {
            return Some(stop.at.plus_s(stop_s));
        }
        if self.is_frozen() || self.end.is_some() || attempt.is_leaving() || attempt.all_over() {
            return Some(Time::default());
        }
        let start = self.attempt_start().unwrap_or_else(|| attempt.launched.plus_s(LAUNCH_LIMIT_S));
        Some(start.plus_ms(self.runtime_left_ms()?).plus_s(stop_s))
    }

    /// The same if it starts now.
    pub(crate) fn latest_end_if_started(&self, now: Time) -> Option<Time> {
        let latest_start = now.plus_s(LAUNCH_LIMIT_S);
        Some(latest_start.plus_ms(self.runtime_left_ms()?).plus_s(u64::from(self.spec.grace_s) + UNANSWERED_S))
    }
}

fn sooner(one: Deadline, other: Deadline) -> Deadline {
    one.into_iter().chain(other).min_by_key(|(at, _)| *at)
}
