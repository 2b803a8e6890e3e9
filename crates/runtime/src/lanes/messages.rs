//! What the lanes handle and return.

use shoal_plane::{Action, AttemptId, Command};

use crate::warm_pool::{self, Grant, Retention};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The core requests it.
    Requested(Action),
    /// An action was performed for an attempt.
    Performed {
        /// Attempt id.
        attempt: AttemptId,
        /// How it ended.
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
    /// No agent of the attempt is connected any more.
    Disconnected {
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

/// How an action, or a step of it, ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Nothing follows.
    Done,
    /// The core waits for this.
    Commit(Command),
    /// The disk lacks space for it.
    NoSpace {
        /// For people.
        reason: String,
        /// It was found out by writing.
        has_written: bool,
    },
    /// A launch has its channels, and no agents.
    Prepared {
        /// Of warm instances that it could use.
        reuse_key: Option<String>,
    },
    /// A released attempt's instance could be retained.
    Retain(Retention),
    /// Agents were ordered to exit.
    Leaving,
}

/// A later part of an action.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Of a launch: start a new instance, unless a warm one serves it.
    Start(Option<Grant>),
    /// Of a release: order the agents to exit; answered by [`Outcome::Leaving`].
    Leave,
    /// Of a release: stop and remove what is left of the attempt and its instance.
    Clear,
    /// Of a release whose instance is retained: forget how far its reports came.
    Forget,
}

/// When artifacts are written although there may be no space for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    /// Only if the job is being stopped: the last write failed recently.
    IfStopping,
    /// If there seems to be space, or the job is being stopped.
    IfSpace,
    /// Whatever comes of it: there is no other try.
    Always,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Io {
    /// Perform it on a thread; answered by [`Event::Performed`].
    Perform {
        /// What.
        action: Action,
        /// For artifacts.
        write: WritePolicy,
    },
    /// Go on with the attempt's action; answered by [`Event::Performed`].
    Continue {
        /// Attempt id.
        attempt: AttemptId,
        /// How.
        step: Step,
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
