//! What the lanes handle and return.

use shoal_plane::{Action, AttemptId, Command};

use crate::{
    steps::{Outcome, Step},
    warm_pool::{self, Grant},
};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time is handled")]
pub enum Event {
    /// The core requests it.
    Requested(Action),
    /// Answer to [`Io::Perform`].
    Performed {
        /// Attempt id.
        attempt: AttemptId,
        /// How the steps ended.
        outcome: Outcome,
    },
    /// The core was notified of a launch's delay.
    DelayReported {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// The core has the command, or is stopping.
    Committed {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// The core's journal could not be written.
    CommitFailed {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// A warm instance serves the attempt.
    Granted {
        /// Attempt id.
        attempt: AttemptId,
        /// Which.
        grant: Grant,
    },
    /// The attempt needs a new instance.
    Declined {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// The attempt's instance is retained, and the attempt is cleared away.
    Retained {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// The attempt's instance is not retained.
    NotRetained {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// The process of an agent of the attempt, which was ordered to exit, has ended.
    AgentEnded {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Answer to [`Io::CheckExit`].
    ExitChecked {
        /// Attempt id.
        attempt: AttemptId,
        /// A process is left.
        is_running: bool,
        /// Agents are still sending files.
        is_mirroring: bool,
    },
    /// [`super::Lanes::deadline`] has passed.
    Timeout,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Io {
    /// Perform these on a thread; answered by [`Event::Performed`].
    Perform {
        /// Attempt id.
        attempt: AttemptId,
        /// In this order.
        steps: Vec<Step>,
    },
    /// Answered by [`Event::ExitChecked`].
    CheckExit {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// For the warm pool.
    Pool(warm_pool::Event),
    /// Send the orders to agents that are connected; not answered.
    Order(Action),
    /// Have the launch of this attempt that is performed end early; not answered.
    Cancel {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Log once that an action waits for disk space; not answered.
    LogDelay {
        /// What waits.
        action: Action,
        /// For people.
        reason: String,
    },
    /// Submit that a launch waits for disk space; answered by [`Event::DelayReported`] if the core
    /// takes it.
    ReportDelay {
        /// Attempt id.
        attempt: AttemptId,
        /// For people.
        reason: String,
    },
    /// Submit an outcome to the core; answered by [`Event::Committed`] or [`Event::CommitFailed`].
    Commit {
        /// Attempt id.
        attempt: AttemptId,
        /// What.
        command: Command,
    },
}
