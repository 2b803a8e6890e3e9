//! How released agents exit: by themselves, unless that takes too long.

use std::time::Duration;

use crate::{
    Mono,
    steps::{FoundPlan, Instance},
};

/// How long released agents have to exit by themselves.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two checks whether they have, for launchers that report no ends.
const EXIT_CHECK: Duration = Duration::from_millis(250);

/// What a release ends and removes.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) plan: Option<FoundPlan>,
    pub(super) is_shared: bool,
}

impl From<Instance> for Left {
    fn from(Instance { plan, is_shared, .. }: Instance) -> Self {
        Self { plan, is_shared }
    }
}

/// Agents that were ordered to exit.
#[derive(Debug)]
pub(super) struct Exit {
    /// Agents that still run then are stopped.
    until: Mono,
    /// Next check; none while an answer is awaited.
    check: Option<Mono>,
    /// An agent has ended since the check that is under way was requested.
    is_stale: bool,
}

/// What follows from a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    CheckAgain,
    Clear,
}

impl Exit {
    /// The first check is under way: agents may have exited before this is noted.
    pub(super) fn begun(now: Mono) -> Self {
        Self { until: now + EXIT_TIMEOUT, check: None, is_stale: false }
    }

    /// Whether a check is due now.
    pub(super) fn on_agent_ended(&mut self) -> bool {
        self.is_stale = self.check.is_none();
        self.check.take().is_some()
    }

    pub(super) fn on_checked(&mut self, is_running: bool, is_mirroring: bool, now: Mono) -> Next {
        if self.check.is_some() {
            return Next::Wait;
        }
        if !is_running || now >= self.until && !is_mirroring {
            return Next::Clear;
        }
        if std::mem::take(&mut self.is_stale) {
            return Next::CheckAgain;
        }
        let next = now + EXIT_CHECK;
        self.check = Some(if now < self.until { next.min(self.until) } else { next });
        Next::Wait
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.check
    }

    pub(super) fn on_timeout(&mut self) {
        self.check = None;
    }
}
