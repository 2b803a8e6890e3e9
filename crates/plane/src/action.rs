//! Effects that the core asks for. All are idempotent: the shell's are named by the attempt, the
//! tuner's by the tuning job and a number.

use serde::{Deserialize, Serialize};
use shoal_tuner::Outcome;

use crate::{AttemptId, Host, JobName, TrialLaunch, TuningName};

/// Something for the shell to do, after the events are durable.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "few are held at a time, and a launch is most of them")]
pub enum Action {
    /// Prepare the channels and start the agents; answered by reports or
    /// [`crate::Command::LaunchFailed`].
    Launch {
        /// Training job's name.
        job: JobName,
        /// Which.
        attempt: AttemptId,
        /// Its number among the job's, from 1.
        number: u32,
        /// What each instance may use, as placed.
        placement: crate::Placement,
        /// How many there are.
        instances: u32,
        /// Host numbers, from 1, of those to start: all at first, later those that are added to an
        /// attempt that runs.
        hosts: Vec<Host>,
        /// They are added to an attempt whose others run.
        joins: bool,
        /// The agents' lease: remaining MaxRuntime plus an hour.
        lease_s: u64,
        /// For a trial of a tuning job.
        trial: Option<TrialLaunch>,
    },
    /// Order these hosts to stop their program.
    StopInstances {
        /// Which.
        attempt: AttemptId,
        /// Host numbers: those that still run, and in a stop also those whose artifacts are
        /// awaited.
        hosts: Vec<Host>,
        /// Seconds between SIGTERM and SIGKILL.
        grace_s: u32,
        /// For the log.
        reason: String,
    },
    /// Order these hosts to leave an attempt whose others continue: their programs have a notice,
    /// then SIGTERM and the grace. Answered by reports of their ends.
    InterruptInstances {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers.
        hosts: Vec<Host>,
        /// Seconds before SIGTERM.
        notice_s: u32,
        /// Seconds between SIGTERM and SIGKILL.
        grace_s: u32,
        /// For the log.
        reason: String,
    },
    /// Remove what is left of these instances; the others continue. Answered by
    /// [`crate::Command::InstancesCleared`].
    ClearInstances {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers.
        hosts: Vec<Host>,
    },
    /// Report to each of these hosts that they are the attempt's present ones.
    SetMembers {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers.
        hosts: Vec<Host>,
    },
    /// Join the hosts' artifacts and store them; answered by [`crate::Command::ArtifactsStored`] or
    /// `ArtifactsFailed`.
    StoreArtifacts {
        /// Training job's name.
        job: JobName,
        /// Which.
        attempt: AttemptId,
        /// Its number among the job's, from 1.
        number: u32,
        /// Hosts whose artifacts are complete; what others sent (hosts lost while they were
        /// stopped) must not be used.
        hosts: Vec<Host>,
    },
    /// The attempt is over: release the agents, end what is left of them, remove their directory;
    /// answered by [`crate::Command::Released`].
    Release {
        /// Training job's name.
        job: JobName,
        /// Which.
        attempt: AttemptId,
    },
    /// Let the attempt's programs stand still: they keep their memory. It stands until
    /// [`Action::Resume`] or the release.
    Freeze {
        /// Which.
        attempt: AttemptId,
    },
    /// Let the attempt's programs run up to so many units of resource, in all attempts together;
    /// wake them if they stand still. It stands until the next one, or [`Action::Freeze`].
    Resume {
        /// Which.
        attempt: AttemptId,
        /// Where they pause; none: to their end.
        until: Option<u32>,
    },
}

impl Action {
    /// Of which attempt.
    pub fn attempt(&self) -> &AttemptId {
        match self {
            Action::Launch { attempt, .. }
            | Action::StopInstances { attempt, .. }
            | Action::InterruptInstances { attempt, .. }
            | Action::ClearInstances { attempt, .. }
            | Action::SetMembers { attempt, .. }
            | Action::StoreArtifacts { attempt, .. }
            | Action::Release { attempt, .. }
            | Action::Freeze { attempt }
            | Action::Resume { attempt, .. } => attempt,
        }
    }
}

/// What the tuner is asked and told, after the events are durable. Requests of one tuning job are
/// answered in the order of their numbers, so that the same order of events gives the same study.
#[derive(Debug, Clone, PartialEq)]
pub enum TunerRequest {
    /// Suggest trials; answered by [`crate::Command::Suggested`].
    Ask {
        /// Tuning job's name.
        tuning: TuningName,
        /// Its number.
        seq: u64,
        /// How many may run beside those that do.
        wanted: u32,
        /// How many of them may be new; the others are paused ones that go on.
        starts: u32,
    },
    /// This happened to a trial; answered by [`crate::Command::Judged`].
    Tell {
        /// Tuning job's name.
        tuning: TuningName,
        /// Its number.
        seq: u64,
        /// Index of the trial's definition.
        definition: u32,
        /// Number in the definition's study.
        trial: u32,
        /// What happened.
        what: Observation,
    },
}

impl TunerRequest {
    /// Tuning job's name.
    pub fn tuning(&self) -> &TuningName {
        match self {
            TunerRequest::Ask { tuning, .. } | TunerRequest::Tell { tuning, .. } => tuning,
        }
    }

    /// Its number.
    pub fn seq(&self) -> u64 {
        match self {
            TunerRequest::Ask { seq, .. } | TunerRequest::Tell { seq, .. } => *seq,
        }
    }
}

/// What follows from events: for the shell, and for the tuner. The two are independent of each
/// other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    /// In order.
    pub actions: Vec<Action>,
    /// In order.
    pub requests: Vec<TunerRequest>,
}

impl Effects {
    /// Nothing follows.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.requests.is_empty()
    }

    /// What follows from later events.
    pub fn append(&mut self, mut later: Effects) {
        self.actions.append(&mut later.actions);
        self.requests.append(&mut later.requests);
    }
}

/// What happened to a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// It reported its first objective.
    Reported {
        /// Units of resource behind it, from 1.
        resource: u32,
        /// None: not a finite number.
        value: Option<f64>,
    },
    /// Its training job has ended.
    Ended {
        /// How.
        outcome: Outcome,
    },
}
