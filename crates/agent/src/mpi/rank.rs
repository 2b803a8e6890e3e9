//! `shoal mpi rank PROGRAM`: what `mpirun` starts as each rank. It runs the program and leaves on
//! its instance how the program failed.
//!
//! `mpirun` names the rank whose end is reported first. Where one rank dies, those that talk to it
//! by TCP notice at once and abort, so it is often another; [`super::blame`] decides.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, getpgid, getpgrp};
use shoal_contract::{FAILURE, LAUNCHER, Places};
use signal_hook::consts::{SIGALRM, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::blame::{Failed, STOPS};
use super::{failure, say};
use crate::clock::now_us;
use crate::outcome::code;
use crate::signalled::Signalled;

/// The process name by which `shoal mpi` finds this program.
pub(super) const NAME: &str = "shoal-rank";

/// Where Open MPI 4 and 5 tell a rank its number.
const NUMBER: &str = "OMPI_COMM_WORLD_RANK";

/// Besides [`STOPS`], what `mpirun` sends to the process group of a rank. They are meant for the
/// program.
const OF_PROGRAM: [i32; 5] = [SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP];

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
    // A program has the default actions again.
    let lacks = |error| format!("signals cannot be waited for: {error}");
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in STOPS {
        // Set before the end of a program that got the same signal can be noticed.
        flag::register(signal, Arc::clone(&is_stopped)).map_err(lacks)?;
    }
    let signals = Signals::new(STOPS.into_iter().chain(OF_PROGRAM)).map_err(lacks)?;
    let mut child =
        Command::new(name).args(arguments).spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
    let process = Arc::new(Signalled::of(&child));
    pass_on(signals, &child, &process);
    let status = process.wait(&mut child).map_err(|error| format!("the end of {name} is not known: {error}"))?;
    if !status.success() {
        let (at, is_stopped) = (now_us(), is_stopped.load(Ordering::Acquire));
        let number = std::env::var(NUMBER).ok().and_then(|number| number.parse().ok());
        // Without it the job's reason is mpirun's.
        let _ = number.map(|rank| leave(&file(), Failed { rank, host: 0, status, at, is_stopped }));
    }
    if let Some(signal) = status.signal() {
        // So that mpirun reports the signal; if this fails it reports the exit code.
        let _ = emulate_default_handler(signal);
    }
    Ok(code(status))
}

/// Passes signals on to a program that has left the process group, which has them already
/// otherwise.
fn pass_on(mut signals: Signals, child: &Child, process: &Arc<Signalled>) {
    let (pid, process) = (Pid::from_child(child), Arc::clone(process));
    let pass = move |number: i32, is_needed: bool| {
        if let Some(signal) = Signal::from_named_raw(number).filter(|_| is_needed) {
            process.signal(signal);
        }
    };
    // These may have come before the program was there.
    signals.pending().for_each(|number| pass(number, true));
    thread::spawn(move || {
        for number in signals.forever() {
            pass(number, getpgid(Some(pid)).is_ok_and(|group| group != getpgrp()));
        }
    });
}

/// Beside the failure file of the instance.
fn file() -> PathBuf {
    failure::file().with_file_name("failed-ranks")
}

/// In one write, so that ranks that end together leave whole lines.
fn leave(file: &Path, failed: Failed) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{failed}\n").as_bytes())
}

/// The ranks of this instance that have failed.
pub(super) fn failed() -> Vec<Failed> {
    read(&file())
}

fn read(file: &Path) -> Vec<Failed> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn what_ranks_leave_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("failed-ranks");
        assert_eq!(read(&file), []);
        let ends = [(3, 9), (0, 14 << 8)].map(|(rank, raw)| Failed {
            rank,
            host: 0,
            status: ExitStatus::from_raw(raw),
            at: now_us(),
            is_stopped: false,
        });
        ends.iter().for_each(|failed| leave(&file, *failed).unwrap());
        assert_eq!(read(&file), ends);
        fs::write(&file, "1 9 5 0\n2\nx 9\n").unwrap();
        assert_eq!(read(&file).len(), 1);
    }
}
