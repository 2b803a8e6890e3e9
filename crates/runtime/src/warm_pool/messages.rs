//! What the warm pool handles and returns.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_plane::{AttemptId, Host, JobName, TuningName};

use crate::{ConnId, lanes, steps::Step};

/// Which attempts may get an instance after this one, and for how long it is retained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusePolicy {
    /// The tuning job of a trial; empty for other training jobs.
    pub owner: TuningName,
    /// Seconds for which an idle instance is retained.
    pub idle_s: u64,
    /// Digest of everything that two attempts must have in common.
    pub key: String,
    /// Its program stays in memory, with the data that it has read.
    #[serde(default)]
    pub is_loaded: bool,
}

/// An allocation, by the attempt that it was started for. It may serve others later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId(pub AttemptId);

/// An instance that an attempt leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Which.
    pub allocation: AllocationId,
    /// The attempt's training job.
    pub job: JobName,
    /// As things are at the attempt's end.
    pub policy: ReusePolicy,
    /// Number of its agents.
    pub hosts: u32,
}

/// An instance that is no longer retained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired {
    /// What it was.
    pub retention: Retention,
    /// How long it was idle.
    pub idle: Duration,
}

/// A warm instance that serves an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The allocation.
    pub allocation: AllocationId,
    /// The training job that had it before.
    pub from: JobName,
    /// How long it was idle.
    pub idle: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A launch is prepared and could use a warm instance with this key.
    Requested {
        /// Attempt id.
        attempt: AttemptId,
        /// See [`ReusePolicy::key`].
        key: String,
    },
    /// The core has requested an attempt's release: its instance may be idle soon.
    Releasing {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Its release has got so far that its instance may be retained: all agents are connected and
    /// none is lost.
    Retain {
        /// Attempt id.
        attempt: AttemptId,
        /// Its instance.
        retention: Retention,
    },
    /// Its instance is not retained.
    Left {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// An agent serves no attempt.
    AgentIdle {
        /// What it belongs to.
        allocation: AllocationId,
        /// Host number, from 1.
        host: Host,
        /// Its connection.
        conn: ConnId,
    },
    /// The connection of an idle agent has ended.
    AgentClosed {
        /// What it belongs to.
        allocation: AllocationId,
        /// Which.
        conn: ConnId,
    },
    /// Answer to [`Io::Check`].
    Checked {
        /// Which.
        allocation: AllocationId,
        /// All its processes run.
        is_running: bool,
        /// Its agents are still sending files of the attempt.
        is_mirroring: bool,
    },
    /// Answer to [`Io::Clear`].
    Cleared {
        /// Which.
        allocation: AllocationId,
    },
    /// Answer to [`Io::Assign`]: the agents may be admitted for the attempt.
    Assigned {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Answer to [`Io::Assign`]: the assignment could not be written.
    AssignFailed {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Answer to [`Io::Serve`] if an agent could not be notified.
    ServeFailed {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// An agent has connected for its attempt.
    AgentConnected {
        /// Attempt id.
        attempt: AttemptId,
        /// Host number, from 1.
        host: Host,
        /// Its connection.
        conn: ConnId,
    },
    /// That connection has ended.
    AgentDisconnected {
        /// Attempt id.
        attempt: AttemptId,
        /// Host number, from 1.
        host: Host,
        /// Which.
        conn: ConnId,
    },
    /// Answer to [`Io::Unassign`].
    Unassigned {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// A new instance is started, or memory is short.
    CapacityNeeded,
    /// A tuning job has ended: no more trials follow.
    OwnerEnded {
        /// Its name.
        owner: TuningName,
    },
    /// A training job's instances are to be retained for this long in all.
    KeepAlive {
        /// Its name.
        job: JobName,
        /// Not at all for 0.
        seconds: u32,
    },
    /// [`super::WarmPool::deadline`] has passed.
    Timeout,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Io {
    /// Order all hosts of the attempt to clear it away; each answers by [`Event::AgentIdle`].
    Park {
        /// Attempt id.
        attempt: AttemptId,
    },
    /// Look up for how long the ended job's instances are to be retained; answered by
    /// [`Event::KeepAlive`].
    ReadKeepAlive {
        /// Training job's name.
        job: JobName,
    },
    /// Answered by [`Event::OwnerEnded`] if it has ended.
    CheckOwner {
        /// Tuning job's name.
        owner: TuningName,
    },
    /// Answered by [`Event::Checked`].
    Check {
        /// Which.
        allocation: AllocationId,
        /// The attempt that is cleared away.
        attempt: AttemptId,
    },
    /// Remove what the server has of the attempt, and show the instance as available; answered by
    /// [`Event::Cleared`].
    Clear {
        /// Attempt id.
        attempt: AttemptId,
        /// Its instance.
        retention: Retention,
    },
    /// Write the attempt's assignment for this instance, and admit its agents; answered by
    /// [`Event::Assigned`] or [`Event::AssignFailed`].
    Assign {
        /// Attempt id.
        attempt: AttemptId,
        /// Which.
        allocation: AllocationId,
    },
    /// Have these agents serve the attempt; answered by [`Event::AgentConnected`] of each host.
    Serve {
        /// Attempt id.
        attempt: AttemptId,
        /// Connections of its agents.
        conns: Vec<ConnId>,
    },
    /// Refuse the attempt's agents from now on and stop the instance, so that it cannot connect
    /// late; answered by [`Event::Unassigned`].
    Unassign {
        /// Attempt id.
        attempt: AttemptId,
        /// The instance that did not connect.
        instance: Retention,
    },
    /// Refuse an agent that is not retained; not answered.
    Refuse(ConnId),
    /// Close the connections of its agents, which exit then, and show the instance as terminated;
    /// not answered.
    Retire {
        /// Connections of its agents.
        conns: Vec<ConnId>,
        /// What was retained.
        retired: Retired,
    },
    /// Stop what is left of these instances and remove it; not answered.
    End(Vec<Retention>),
    /// For the attempt's lane.
    Lane(lanes::Event),
}

impl Io {
    /// The steps that it consists of, for an attempt; none if it is an operation of its own.
    pub fn steps(&self) -> Option<(AttemptId, Vec<Step>)> {
        let (attempt, steps) = match self {
            Self::Park { attempt } => (attempt, vec![Step::Park]),
            Self::Clear { attempt, retention } => {
                let is_own = retention.allocation.0 == *attempt;
                let remove = if is_own { Step::RemovePlan(retention.hosts) } else { Step::RemoveRun };
                let offer = Step::Offer(Box::new(retention.clone()));
                (attempt, vec![Step::Withdraw, Step::ReleaseInputs, remove, offer])
            }
            Self::Assign { attempt, allocation } => {
                let allocation = Some(allocation.clone());
                (attempt, vec![Step::WritePlan(allocation.clone()), Step::Admit(allocation)])
            }
            Self::Unassign { attempt, instance } => {
                let end = Step::EndAllocation { allocation: instance.allocation.clone(), hosts: Some(instance.hosts) };
                (attempt, vec![Step::GiveUp, Step::Withdraw, end, Step::ForgetReports])
            }
            _ => return None,
        };
        Some((attempt.clone(), steps))
    }

    /// The answer once its steps are done.
    pub fn done(&self) -> Option<Event> {
        match self {
            Self::Clear { retention, .. } => Some(Event::Cleared { allocation: retention.allocation.clone() }),
            Self::Assign { attempt, .. } => Some(Event::Assigned { attempt: attempt.clone() }),
            Self::Unassign { attempt, .. } => Some(Event::Unassigned { attempt: attempt.clone() }),
            _ => None,
        }
    }

    /// The answer if it failed, or its thread panicked. [`Io::Clear`] has none: an instance that
    /// may not be clear is not offered again.
    pub fn failed(&self) -> Option<Event> {
        match self {
            Self::Check { allocation, .. } => {
                Some(Event::Checked { allocation: allocation.clone(), is_running: false, is_mirroring: false })
            }
            Self::Assign { attempt, .. } => Some(Event::AssignFailed { attempt: attempt.clone() }),
            Self::Serve { attempt, .. } => Some(Event::ServeFailed { attempt: attempt.clone() }),
            Self::Unassign { attempt, .. } => Some(Event::Unassigned { attempt: attempt.clone() }),
            _ => None,
        }
    }
}
