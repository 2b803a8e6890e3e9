//! What starts agents on capacity. A launcher knows nothing of training jobs: it is given an
//! [`AllocationSpec`] (so many processes, this command line) and says whether they live. Here:
//! [`Local`], child processes of this machine, which may be those of a command that starts agents
//! somewhere else and lives as long as they do.
//!
//! Promises: an instance is started at most once per allocation directory, so a caller that crashed
//! at any point may repeat `submit`; what was started outlives the caller; after `stop` nothing of
//! the allocation is left; ends are reported. The conformance suite (feature `conformance`) holds
//! every launcher to them.

#[cfg(feature = "conformance")]
pub mod conformance;
mod error_chain;
mod exchange;
mod kubernetes;
mod local;
mod memory;
mod process;
mod record;
mod registry;
mod scheduled;
mod slurm;
mod targets;
mod tls;
mod verdicts;
mod watch;

pub use kubernetes::{CacheVolume, Claim, KubernetesOptions, PodOptions, kubernetes, volume_path};
pub use local::Local;
pub use slurm::{Nodes, RestAddress, RestOptions, RestToken, RestVersion, SlurmOptions, SlurmType, SlurmUsers, slurm};
pub use targets::ByTarget;
pub use watch::{OnEnd, Watch};

use std::collections::BTreeSet;
use std::path::PathBuf;

/// What to start: `instances` processes, each `program args.. --host K` (K from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationSpec {
    /// Unique: the id of the data directory and of the attempt that it is started for. Leftovers
    /// are found by it.
    pub id: String,
    /// How many processes.
    pub instances: u32,
    /// Executable, absolute.
    pub program: PathBuf,
    /// Arguments before `--host K`.
    pub args: Vec<String>,
    /// Variables that the processes get, nothing else but `PATH`.
    pub env: Vec<(String, String)>,
    /// The node of each process, by host number - 1, where the launcher is to choose among several;
    /// none: it has one.
    pub nodes: Vec<String>,
    /// What each process is to get, for launchers that reserve it elsewhere.
    pub wants: Wants,
    /// An existing directory that belongs to this allocation: pid files and the processes' own
    /// stderr (`agent-K.log`) go there.
    pub dir: PathBuf,
}

/// What a scheduler reserves for each process of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// A name for the kind of machine that it is to be on: an instance type.
    pub kind: String,
    /// Cores; 0: as the scheduler has it.
    pub cpus: u32,
    /// Memory; 0: as the scheduler has it.
    pub memory_bytes: u64,
    /// GPUs.
    pub gpus: u32,
    /// The longest time that it runs.
    pub seconds: Option<u64>,
    /// For people who look at the scheduler's queue.
    pub label: String,
    /// The name of whom it is for, which may decide as whom a scheduler runs it; none: the caller.
    pub creator: Option<String>,
    /// The image that it runs in, for launchers that run containers; none: the launcher's own.
    pub image: Option<String>,
    /// That image's own program is started in it, so its launcher finds out which one that is.
    pub starts_image: bool,
    /// File systems that its programs read or write, by where they are on the machine.
    pub directories: BTreeSet<PathBuf>,
}

impl AllocationSpec {
    /// The node on which a process is to run, by its host number, where nodes are listed.
    pub fn node(&self, host: u32) -> Option<&str> {
        self.nodes.get((host as usize).checked_sub(1)?).map(String::as_str)
    }
}

/// How an allocation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationStatus {
    /// This launcher never started it, or has forgotten it.
    Unknown,
    /// Waiting for capacity elsewhere; never the status of [`Local`]'s allocations.
    Queued {
        /// What the scheduler says.
        reason: String,
    },
    /// Started; `lost` names the instances (from 1) whose process is gone.
    Running {
        /// Host numbers.
        lost: Vec<u32>,
    },
    /// Started, and its scheduler has stopped its processes for a while: their silence means
    /// nothing. Never the status of [`Local`]'s allocations.
    Paused,
    /// No process is left.
    Ended,
}

/// How a scheduler ended a process, or the process itself did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It ended by itself.
    Itself,
    /// Its node was lost.
    NodeFailed,
    /// Its node was taken for something of a higher priority.
    Preempted,
    /// The scheduler's time limit.
    TimeLimit,
    /// The scheduler's memory limit.
    OutOfMemory,
    /// By the scheduler's own commands.
    Cancelled,
    /// It could not be started, and never will: its image cannot be had.
    NeverStarted,
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEnd {
    /// How.
    pub ending: Ending,
    /// For people: the scheduler's reason, or the process's last line; may be empty.
    pub text: String,
}

/// How a compute target stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub kind: String,
    /// The state of its nodes and its queue, in sentences; or what is wrong.
    pub details: Result<Vec<String>, String>,
}

/// Why a launcher could not do as told.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A scheduler does not answer, or takes nothing now: the same may succeed later.
    #[error("the compute target {target} does not answer: {what}")]
    Unavailable {
        /// The compute target.
        target: String,
        /// What its commands say.
        what: String,
    },
    /// A scheduler takes no more now, as its quota is used up: the same may succeed later.
    #[error("the compute target {target} takes no more now: {what}")]
    Full {
        /// The compute target.
        target: String,
        /// Which limit is reached.
        what: String,
    },
    /// A scheduler refused what it was asked for.
    #[error("{scheduler} refused the job on compute target {target}: {what}")]
    Refused {
        /// `Slurm`
        scheduler: &'static str,
        /// The compute target.
        target: String,
        /// Why.
        what: String,
    },
    /// A scheduler has no user for whom something is asked for.
    #[error("the compute target {target} takes no jobs of {creator}: {what}")]
    NoUser {
        /// The compute target.
        target: String,
        /// Who asks.
        creator: String,
        /// Why.
        what: String,
    },
    /// Killed processes do not go away (they hang in the kernel), or a starting one does not get
    /// on.
    #[error("a process of instance {host} of {id} {what}; see {log}")]
    Stuck {
        /// The allocation.
        id: String,
        /// Which of its instances.
        host: u32,
        /// What it does not do.
        what: &'static str,
        /// The instance's own output.
        log: PathBuf,
    },
}

/// Memory of the processes of allocations, by their ids.
pub type MemoryUse = std::collections::BTreeMap<String, u64>;

/// What follows from a [`Launcher`]'s operations.
pub trait LauncherExt: Launcher {
    /// The status of one allocation.
    ///
    /// # Errors
    /// The launcher cannot tell.
    fn status_of(&self, spec: &AllocationSpec) -> Result<AllocationStatus, LaunchError> {
        self.status(&[spec]).pop().unwrap_or(Ok(AllocationStatus::Unknown))
    }
}

impl<L: Launcher + ?Sized> LauncherExt for L {}

/// Starts, watches and ends allocations.
pub trait Launcher: Send + Sync {
    /// Whether what it starts on these nodes may have another file system and another network than
    /// its caller.
    fn is_remote(&self, _nodes: &[String]) -> bool {
        false
    }

    /// Whether [`Launcher::watch`] reports ends.
    fn reports_ends(&self) -> bool {
        false
    }

    /// Whether it has started this allocation, by the allocation's directory: for launchers beside
    /// others.
    fn has_submitted(&self, _spec: &AllocationSpec) -> bool {
        false
    }

    /// Whether a scheduler would refuse such instances on these nodes whenever they are asked for,
    /// as they name what it does not have. Where it does not answer, nothing is refused. May take
    /// seconds; what is not refused is not asked again for a minute.
    ///
    /// # Errors
    /// [`LaunchError::Refused`] with the scheduler's words, or [`LaunchError::NoUser`].
    fn check(&self, _nodes: &[String], _wants: &Wants) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Starts all processes or none. Idempotent: what was started once, be it over by now, is not
    /// started again.
    ///
    /// # Errors
    /// Nothing is left running.
    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError>;

    /// Starts these processes of an allocation that runs, all or none. Idempotent as
    /// [`Launcher::submit`] is.
    ///
    /// # Errors
    /// None of them is left running.
    fn add(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError>;

    /// Ends these processes of an allocation at once (SIGKILL) and forgets them, so that
    /// [`Launcher::add`] starts new ones; returns when none is left.
    ///
    /// # Errors
    /// Something may be left.
    fn remove(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError>;

    /// The status of each of these allocations, in their order; works after a restart of the
    /// caller. One question however many there are: a caller asks for all that it has every few
    /// hundred milliseconds at most, and uses [`Launcher::watch`] for ends.
    ///
    /// An error is that of one allocation: its status is not known.
    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>>;

    /// Reports the end of each process of a submitted allocation, once, until the [`Watch`] is
    /// dropped; of a process that has ended already at once. Works after a restart of the caller. A
    /// launcher that is not notified of ends itself reports none, so callers ask for the status,
    /// too.
    ///
    /// # Errors
    /// The system has no resources to watch; ends are to be found by the status.
    fn watch(&self, _spec: &AllocationSpec, _on_end: OnEnd) -> Result<Watch, LaunchError> {
        Ok(Watch::default())
    }

    /// How compute targets stand, also for these creators; asks their schedulers.
    fn reports(&self, _creators: &[String]) -> Vec<TargetReport> {
        Vec::new()
    }

    /// How an instance that is lost ended, where its launcher knows more than its log.
    fn end_of(&self, _spec: &AllocationSpec, _host: u32) -> Option<HostEnd> {
        None
    }

    /// Whether a scheduler finds out by itself which of the machines that this runs on are lost.
    fn finds_lost_machines(&self, _spec: &AllocationSpec) -> bool {
        false
    }

    /// The machine that an instance is or was on, by the name that its scheduler has for it.
    fn machine_of(&self, _spec: &AllocationSpec, _host: u32) -> Option<String> {
        None
    }

    /// Memory that the processes of each allocation and all their descendants use now, in bytes:
    /// what cannot be had back by writing files out. Memory that processes of one instance share
    /// counts once. Allocations of which the launcher cannot tell are left out.
    fn memory(&self, specs: &[&AllocationSpec]) -> MemoryUse;

    /// Tells the machine which of these to end first if it has no memory left: the first one first,
    /// and the last one only when no other is left. A launcher that cannot does nothing.
    fn end_first(&self, _specs: &[&AllocationSpec]) {}

    /// Ends allocations whose ids begin so and are not known when they have been found: what is
    /// left where even their directories are gone. A launcher that finds its processes by
    /// directories alone does nothing.
    ///
    /// # Errors
    /// Something may be left.
    fn end_others(&self, _id_prefix: &str, _is_known: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Ends every process at once (SIGKILL); returns when none is left. Unknown ids are fine.
    ///
    /// # Errors
    /// Something may be left.
    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError>;
}
