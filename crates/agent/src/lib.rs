//! On the instance: the process beside the training program. It asks the server what to run, makes
//! the instance (directories and config files of the contract, network, sandbox), runs the program
//! in it, and ships what comes of it: log lines, metric points, the end, artifacts.
//!
//! It promises: what it reports arrives once and in order, also over a server that goes away and
//! comes back; its memory is bounded, and a program that says more than the server can take waits;
//! when the lease is over it stops the program, cleans up and ends; nothing is left when it has
//! ended, and when it is killed its instance dies with it. Where the server wants it, an agent
//! serves one attempt after the other (`warm`): nothing of one is left when the next begins.
//!
//! It decides nothing: what to run, when to stop and whether the training job has failed are the
//! server's affair.

mod artifacts;
mod asking;
mod attempt_error;
mod causes;
mod clock;
mod connection;
mod events;
mod fast_file;
mod fetched;
mod forward;
mod gpus;
mod hints;
mod image;
mod inputs;
mod inside;
mod instance;
mod judging;
mod leftovers;
mod lines;
mod machine_network;
mod mirror;
pub mod mpi;
mod node;
mod objects;
mod outbox;
mod outcome;
mod output;
mod own_log;
mod own_rules;
mod pack;
mod package;
mod packer;
pub mod parameter_server;
mod part_files;
mod parts;
mod passing;
mod pipes;
mod profiler_rules;
mod program;
mod proxy;
mod python;
pub mod ranks;
mod relay;
mod rules;
mod run;
mod sampling;
mod script;
mod server;
mod shared_disk;
mod shared_objects;
mod signalled;
mod source;
mod spool;
mod stack_samples;
mod stacks;
mod step_files;
mod support;
mod toolkit;
mod verdicts;
mod visit;
mod volume;
mod warm;
mod wishes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use objects::ObjectCache;
pub use packer::packer_entry;
pub use server::{Fingerprint, Server};
pub use shared_objects::SharedPlace;
use shoal_environments::{Cache, Images};
pub use stack_samples::sampled_stacks;
pub use stacks::stacks;
pub use support::support_variable;

/// Environment variable with the attempt's secret ([`Options::token`]).
pub const TOKEN_VARIABLE: &str = "SHOAL_AGENT_TOKEN";

/// Libraries of a built-in algorithm.
#[derive(Debug, Clone, Default)]
pub struct Libraries {
    /// Their directories.
    pub dirs: Vec<String>,
    /// Variables by which its program finds them.
    pub variables: BTreeMap<String, String>,
}

/// Finds the libraries of a built-in algorithm by its name; an error is for the user.
#[derive(Clone)]
pub struct LibraryFinder(pub Arc<FindLibraries>);

/// See [`LibraryFinder`].
pub type FindLibraries = dyn Fn(&str) -> Result<Libraries, String> + Send + Sync;

impl std::fmt::Debug for LibraryFinder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LibraryFinder")
    }
}

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server is.
    pub server: Server,
    /// The attempt that it serves; where instances are kept, the first.
    pub attempt: String,
    /// Its instance, from 1.
    pub host: u32,
    /// The attempt's secret, hexadecimal; from [`TOKEN_VARIABLE`].
    pub token: String,
    /// The attempt's directory, shared by its agents; `algo-K` in it is this one's own.
    pub run_dir: PathBuf,
    /// The data directory's id, by which leftovers are found.
    pub data_id: String,
    /// This executable, which runs built-in algorithms as `shoal algorithm NAME`.
    pub program: PathBuf,
    /// Where this machine keeps objects of servers on other machines.
    pub objects: ObjectCache,
    /// A directory of all nodes of the cluster, where objects are put once for all.
    pub shared: Option<SharedPlace>,
    /// Finds the libraries of a built-in algorithm on this machine; asked for servers on other
    /// machines.
    pub libraries: LibraryFinder,
    /// The Python environments of this machine.
    pub environments: Cache,
    /// The wheel of Shoal's Python package, for environments with PyTorch or TensorFlow; a server
    /// may have none.
    pub python_package: Option<PathBuf>,
    /// The trees of images of this machine.
    pub images: Images,
}

/// Serves one instance to its end; gives the exit code: 0 if the server has released it, 1 if it
/// was given up.
///
/// The caller's `main` must have called [`shoal_sandbox::reexec_entry`] first.
#[must_use]
pub fn main(options: Options) -> i32 {
    die_of_panics();
    run::run(&Arc::new(options))
}

/// A thread that panics would leave the others waiting for it. So the agent aborts: its instance
/// ends with it, and the server reports the loss.
fn die_of_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}
