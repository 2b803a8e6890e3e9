//! Effects that the core asks for. All are idempotent and named by the attempt, or by the tuning job and a number.

use serde::{Deserialize, Serialize};
use shoal_tuner::Outcome;

use crate::TrialLaunch;

/// Something for the shell to do, after the events are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Prepare the channels and start the agents; answered by reports or [`crate::Command::LaunchFailed`].
    Launch {
        /// Training job's name.
        job: String,
        /// Which.
        attempt: String,
        /// What each instance may use, as placed.
        placement: crate::Placement,
        /// How many.
        instances: u32,
        /// The agents' lease: remaining MaxRuntime plus an hour.
        lease_s: u64,
        /// For a trial of a tuning job.
        trial: Option<TrialLaunch>,
    },
    /// Order these hosts to stop their program.
    StopInstances {
        /// Which.
        attempt: String,
        /// Host numbers: those that still run, and in a stop also those whose artifacts are awaited.
        hosts: Vec<u32>,
        /// Seconds between SIGTERM and SIGKILL.
        grace_s: u32,
        /// For the log.
        reason: String,
    },
    /// Join the hosts' artifacts and store them; answered by [`crate::Command::ArtifactsStored`] or `ArtifactsFailed`.
    StoreArtifacts {
        /// Training job's name.
        job: String,
        /// Which.
        attempt: String,
        /// Hosts whose artifacts are complete; what others sent (hosts lost while they were stopped) must not be used.
        hosts: Vec<u32>,
    },
    /// The attempt is over: release the agents, end what is left of them, remove their directory; answered by
    /// [`crate::Command::Released`].
    Release {
        /// Training job's name.
        job: String,
        /// Which.
        attempt: String,
    },
    /// Let the attempt's programs stand still: they keep their memory. It stands until [`Action::GoOn`] or the release.
    Freeze {
        /// Which.
        attempt: String,
    },
    /// Let the attempt's programs run up to so many units of resource, in all attempts together; wake them if they stand still. It stands
    /// until the next one, or [`Action::Freeze`].
    GoOn {
        /// Which.
        attempt: String,
        /// Where they pause; none: to their end.
        to: Option<u32>,
    },
    /// Ask the tuner for trials; answered by [`crate::Command::Suggested`]. Everything of a tuning job is asked and told in the order of its
    /// numbers, so that the same order of events gives the same study.
    Suggest {
        /// Tuning job's name.
        tuning: String,
        /// Which wish.
        seq: u64,
        /// How many may run beside those that do.
        wanted: u32,
        /// How many of them may be new; the others are paused ones that go on.
        starts: u32,
    },
    /// Tell the tuner what happened to a trial; answered by [`crate::Command::Judged`].
    Observe {
        /// Tuning job's name.
        tuning: String,
        /// Which wish.
        seq: u64,
        /// Index of the trial's definition.
        definition: u32,
        /// Number in the definition's study.
        trial: u32,
        /// What happened.
        what: Observation,
    },
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
