//! An action that lacks disk space: when it is tried again, and when the core is notified.

use std::time::Duration;

use crate::{Mono, steps::WritePolicy};

/// Between two checks for disk space.
pub(super) const SPACE_CHECK: Duration = Duration::from_secs(1);
/// Between two reports to the core of a launch that waits; much less than the core waits for a
/// report.
const DELAY_REPORT: Duration = Duration::from_secs(60);
/// How long artifacts wait for disk space; as long as the core waits for their upload.
const ARTIFACTS_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest pause between two writes of artifacts that the disk had no room for.
const MAX_WRITE_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct SpaceWait {
    since: Mono,
    /// When the core was last notified.
    reported: Option<Mono>,
    write_pause: Duration,
    next_write: Mono,
}

impl SpaceWait {
    pub(super) fn begun(now: Mono) -> Self {
        Self { since: now, reported: None, write_pause: SPACE_CHECK, next_write: now }
    }

    /// It needed more space than there seemed to be, and others may have lacked what it took
    /// meanwhile.
    pub(super) fn on_written(&mut self, now: Mono) {
        self.next_write = now + self.write_pause;
        self.write_pause = (2 * self.write_pause).min(MAX_WRITE_PAUSE);
    }

    pub(super) fn on_reported(&mut self, now: Mono) {
        self.reported = Some(now);
    }

    pub(super) fn is_report_due(&self, now: Mono) -> bool {
        self.reported.is_none_or(|at| now.since(at) >= DELAY_REPORT)
    }

    pub(super) fn policy(&self, now: Mono) -> WritePolicy {
        if now.since(self.since) >= ARTIFACTS_TIMEOUT {
            WritePolicy::Always
        } else if now >= self.next_write {
            WritePolicy::IfSpace
        } else {
            WritePolicy::IfStopping
        }
    }
}
