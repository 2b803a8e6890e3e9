//! How many threads the libraries of a program start, and for how long those wait for work before
//! they sleep.
//!
//! OpenMP, OpenBLAS, MKL and TensorFlow start a thread for each core that they see. Several
//! instances on one machine see the same cores: their threads are then more than the cores, and
//! each of them spins for milliseconds while the thread that it waits for has no core.
//!
//! - Threads: the instance's share of the cores, divided by its processes. MKL, OpenBLAS, NumExpr
//!   and PyTorch follow `OMP_NUM_THREADS`, so it alone is set, and what a script itself sets before
//!   it imports them is in force. Where that is all that libraries would take, nothing is set: what
//!   a program starts by itself (torchrun in a shell script, joblib) divides the cores among its
//!   processes then.
//! - Waiting: the share is taken at the start, and neighbours that come later share cores all the
//!   same. So the time for which threads spin is bounded, whether or not there are neighbours now.
//!   libgomp's default, 300,000 rounds, is 5 to 17 ms; PASSIVE (0 rounds) costs a training of small
//!   layers that has the machine to itself half of its speed; 4,000 rounds cost it nothing that can
//!   be measured, and with a neighbour it takes a fifth less than with the default.
//!   (<https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html>)

use crate::hyperparameters::Hyperparameters;
use crate::mpi;
use crate::{Facts, LAUNCHER};

/// Rounds of libgomp's waiting loop: 70 to 200 microseconds.
const SPINS: &str = "4000";
/// Milliseconds that threads of Intel's and LLVM's OpenMP wait actively; their default is 200.
const BLOCK_TIME: &str = "1";
/// Binary logarithm of the cycles for which OpenBLAS' threads wait actively, about 0.4 ms; its
/// default is 26, 25 ms.
const BLAS_TIMEOUT: &str = "20";

/// Variables with a number of threads.
const COUNTS: [&str; 4] = ["OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", INTEROP, "LOKY_MAX_CPU_COUNT"];
/// TensorFlow's threads that run operations, some of which wait for another process: a single one
/// waits for itself (a parameter server's clients hang).
const INTEROP: &str = "TF_NUM_INTEROP_THREADS";
const LEAST_INTEROP: u32 = 2;

/// How long threads wait actively; not set where the job sets one of the others, each of which
/// decides the same.
const WAITS: [(&str, &str, &[&str]); 3] = [
    ("GOMP_SPINCOUNT", SPINS, &["OMP_WAIT_POLICY"]),
    ("KMP_BLOCKTIME", BLOCK_TIME, &["OMP_WAIT_POLICY", "KMP_LIBRARY"]),
    ("OPENBLAS_THREAD_TIMEOUT", BLAS_TIMEOUT, &[]),
];

/// What an instance's libraries are to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// Names and values; none that the job sets itself.
    pub variables: Vec<(&'static str, String)>,
    /// For the job's log, if the program gets fewer threads than the cores that it sees.
    pub note: Option<String>,
}

impl Threads {
    /// Of the instance whose program is `command`. Its libraries would by themselves take
    /// `visible_cpus` threads in each process.
    pub fn of(facts: &Facts, command: &[String], visible_cpus: u32) -> Self {
        let processes = processes(facts, command);
        let each = (facts.cpus / processes).max(1);
        let is_set = |name: &str| facts.environment.contains_key(name);
        let mut variables = Vec::new();
        if each < visible_cpus {
            let count = |name: &str| if name == INTEROP { each.max(LEAST_INTEROP) } else { each };
            variables.extend(COUNTS.iter().filter(|name| !is_set(name)).map(|name| (*name, count(name).to_string())));
        }
        let note = (!variables.is_empty()).then(|| {
            let of_processes = if processes == 1 {
                String::new()
            } else {
                format!(
                    " for each of {processes} \
                     processes"
                )
            };
            let plural = if each == 1 { "" } else { "s" };
            format!(
                "{each} thread{plural}{of_processes} (OMP_NUM_THREADS and others): this instance's share of \
                 {visible_cpus} cores when it started; \
                 Environment can set others"
            )
        });
        let is_decided = |others: &[&str]| others.iter().any(|name| is_set(name));
        let waits = WAITS.iter().filter(|(name, _, others)| !is_set(name) && !is_decided(others));
        variables.extend(waits.map(|(name, value, _)| (*name, (*value).to_owned())));
        Self { variables, note }
    }

    /// Whether a variable is one of these: an image that sets it means it.
    pub fn is_default(name: &str) -> bool {
        COUNTS.contains(&name) || WAITS.iter().any(|(of_ours, ..)| *of_ours == name)
    }
}

/// Training processes that the instance starts beside each other, as far as its command or its
/// distribution says; at least 1.
fn processes(facts: &Facts, command: &[String]) -> u32 {
    let of_torchrun = command.iter().enumerate().find_map(|(at, word)| {
        let (name, value) = word.split_once('=').unwrap_or((word, command.get(at + 1).map_or("", String::as_str)));
        let is_ours = command.first().is_some_and(|program| program == LAUNCHER) && name == "--per-host";
        (is_ours || matches!(name, "--nproc_per_node" | "--nproc-per-node")).then_some(value)
    });
    match of_torchrun {
        // `auto`, `gpu`: one for each GPU, or else for each core.
        Some(value) => value.parse().unwrap_or(if facts.gpus > 0 { facts.gpus } else { facts.cpus }).max(1),
        None => mpi::per_host(facts, &Hyperparameters::of(&facts.hyperparameters)),
    }
}
