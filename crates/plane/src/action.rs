//! Effects that the core asks for. All are idempotent and named by the attempt.

/// Something for the shell to do, after the events are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}
