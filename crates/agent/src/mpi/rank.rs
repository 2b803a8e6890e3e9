//! `shoal mpi rank PROGRAM`: what `mpirun` starts as each rank. It runs the program and leaves on
//! its instance how the program ended.
//!
//! `mpirun` names the rank whose end is reported first. Where one rank dies, those that talk to it
//! by TCP notice at once and abort, so it is often another; by what is left here they are told
//! apart.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_contract::{FAILURE, LAUNCHER, Places};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::low_level::emulate_default_handler;

use super::{failure, say};
use crate::outcome::code;

/// The process name by which `shoal mpi` finds this program.
pub(super) const NAME: &str = "shoal-rank";

/// Where Open MPI 4 and 5 tell a rank its number.
const NUMBER: &str = "OMPI_COMM_WORLD_RANK";

/// By these `mpirun` ends its ranks: the end of one after that is no cause.
const STOPS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];
/// `mpirun` sends these to the whole process group of a rank; they are meant for the program.
const OF_PROGRAM: [i32; 5] = [SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP];

/// How a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) rank: u32,
    pub(crate) status: ExitStatus,
}

impl Failed {
    /// For the job's reason.
    pub(crate) fn how(&self, places: &Places) -> String {
        let Self { rank, status } = *self;
        let host = places.host(rank);
        match status.signal() {
            Some(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                format!("rank {rank} on {host} was ended by signal {signal} ({name})")
            }
            None => format!("rank {rank} on {host} has ended with exit code {}", code(status)),
        }
    }
}

/// `RANK STATUS`, the status as wait(2) gives it.
impl std::fmt::Display for Failed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.rank, self.status.into_raw())
    }
}

impl FromStr for Failed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (rank, status) = text.split_once(' ').ok_or(())?;
        let (rank, status) = (rank.parse().map_err(drop)?, status.parse().map_err(drop)?);
        Ok(Self { rank, status: ExitStatus::from_raw(status) })
    }
}

/// The command of a rank of these places: this program before its own.
pub(super) fn command(places: &Places, program: &[String]) -> Result<Vec<String>, String> {
    let itself = match places.hosts.len() {
        // A plain process does not have it where sandboxes do.
        0 | 1 => std::env::current_exe().map_err(|error| format!("{LAUNCHER} is gone: {error}"))?,
        _ => LAUNCHER.into(),
    };
    let itself = [&itself.display().to_string(), "mpi", "rank", "--"].map(str::to_owned);
    Ok(itself.into_iter().chain(program.iter().cloned()).collect())
}

/// Runs the program of a rank; gives its exit code, or ends by the signal that ended it.
pub fn rank(program: &[String]) -> i32 {
    // So `shoal mpi` takes its child for the rank. Without /proc it does not search.
    let _ = fs::write("/proc/self/comm", NAME);
    run(program).unwrap_or_else(|text| {
        say(&text);
        // The line above is in the log all the same.
        let _ = failure::leave(&text);
        FAILURE
    })
}

fn run(program: &[String]) -> Result<i32, String> {
    let (name, arguments) = program.split_first().ok_or("no program is named behind --")?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let ignored = Arc::new(AtomicBool::new(false));
    let flags = STOPS.map(|signal| (signal, &is_stopped)).into_iter().chain(OF_PROGRAM.map(|it| (it, &ignored)));
    for (signal, flag) in flags {
        // A program that is started has the signal's default action again.
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|error| format!("signal {signal} cannot be waited for: {error}"))?;
    }
    let mut child =
        Command::new(name).args(arguments).spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
    let status = child.wait().map_err(|error| format!("the end of {name} is not known: {error}"))?;
    if !status.success() && !is_stopped.load(Ordering::Acquire) {
        let number = std::env::var(NUMBER).ok().and_then(|number| number.parse().ok());
        // Without it the job's reason is mpirun's.
        let _ = number.map(|rank| leave(&file(), Failed { rank, status }));
    }
    if let Some(signal) = status.signal() {
        // So that mpirun reports the signal; if this fails it reports the exit code.
        let _ = emulate_default_handler(signal);
    }
    Ok(code(status))
}

/// Beside the failure file of the instance.
fn file() -> PathBuf {
    failure::file().with_file_name("failed-ranks")
}

/// In one write, so that ranks that end together leave whole lines.
fn leave(file: &Path, failed: Failed) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{failed}\n").as_bytes())
}

/// The ranks of this instance that have failed, in the order of their ends.
pub(super) fn failed() -> Vec<Failed> {
    read(&file())
}

fn read(file: &Path) -> Vec<Failed> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_leave_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("failed-ranks");
        assert_eq!(read(&file), []);
        let ends = [(3, 9), (0, 14 << 8)].map(|(rank, raw)| Failed { rank, status: ExitStatus::from_raw(raw) });
        ends.iter().for_each(|failed| leave(&file, *failed).unwrap());
        assert_eq!(read(&file), ends);
        assert_eq!((ends[0].status.signal(), ends[1].status.code()), (Some(9), Some(14)));
        fs::write(&file, "1 9\n2\nx 9\n").unwrap();
        assert_eq!(read(&file).len(), 1);
    }
}
