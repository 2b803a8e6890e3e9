//! Processes by identity: a process id means a process only together with the moment when it
//! started.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};

/// A process for all times: its id, its start in clock ticks since boot, and which boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    started: u64,
    boot: String,
}

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    state: u8,
    group: i32,
    started: u64,
}

impl Process {
    /// The process that has this id now; `None` if there is none or only its zombie.
    pub(crate) fn with_pid(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!matches!(stat.state, b'Z' | b'X')).then(|| Self { pid, started: stat.started, boot: boot_id() })
    }

    /// It has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        Self::with_pid(self.pid).as_ref() == Some(self)
    }

    /// What its end can be waited for by; `None` if it has ended.
    pub(crate) fn handle(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // From here on the handle cannot pass to another process; that it is ours is what this
        // checks.
        Ok(self.is_alive().then_some(handle))
    }

    /// SIGKILL, and waits at most `patience` for the end.
    pub(crate) fn kill(&self, patience: Duration) -> io::Result<()> {
        let Some(handle) = self.handle()? else { return Ok(()) };
        match pidfd_send_signal(&handle, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            other => other?,
        }
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout))?;
        Ok(())
    }
}

/// As a pid file holds it.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.started, self.boot)
    }
}

impl FromStr for Process {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let mut fields = text.split_ascii_whitespace();
        let mut next = || fields.next().ok_or_else(|| io::Error::other("not `pid start boot`"));
        let (pid, started, boot) = (next()?, next()?, next()?);
        let pid = pid.parse().map_err(io::Error::other)?;
        Ok(Self { pid, started: started.parse().map_err(io::Error::other)?, boot: boot.to_owned() })
    }
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; field 3 follows the last one.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// The command is killed when the thread that starts it ends, be it with its whole process: that
/// thread is to wait for it.
pub(crate) fn end_with_caller(command: &mut Command) {
    let caller = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended just before.
        if getppid() == Some(caller) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: two system calls, between fork and exec; nothing is allocated and no lock is taken.
    #[expect(unsafe_code, reason = "std has no safe way to run something between fork and exec")]
    unsafe {
        command.pre_exec(ask);
    }
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_else(|_| "unknown".into())
}

/// Every living process of ours whose standard output or error is this file.
pub(crate) fn writing_to(file: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let writes = |pid: &i32| {
        [1, 2].iter().any(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|target| target == file))
    };
    pids.filter(writes).filter_map(Process::with_pid).collect()
}

/// The first started of those, if it leads a process group as everything does that [`crate::Local`]
/// starts.
pub(crate) fn leader(processes: Vec<Process>) -> Option<Process> {
    let leads = |process: &Process| Stat::read(process.pid).is_some_and(|stat| stat.group == process.pid);
    processes.into_iter().filter(leads).min_by_key(|process| process.started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_the_thread_that_has_started_it() {
        let started = std::thread::spawn(|| {
            let mut command = Command::new("/bin/sleep");
            end_with_caller(command.arg("1000"));
            command.spawn().unwrap()
        });
        let mut child = started.join().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
    }

    #[test]
    fn a_reused_id_is_another_process() {
        let me = Process::with_pid(std::process::id().cast_signed()).expect("this process lives");
        assert!(me.is_alive());
        assert_eq!(me.to_string().parse::<Process>().unwrap(), me);
        let later = Process { started: me.started + 1, ..me.clone() };
        for other in [later, Process { boot: "another".into(), ..me }] {
            assert!(!other.is_alive(), "{other:?}");
            // If it took the id alone for the process, this test would end here.
            other.kill(Duration::from_secs(1)).unwrap();
        }
        for text in ["", "1", "1 2", "x 2 b", "1 x b"] {
            assert!(text.parse::<Process>().is_err(), "{text}");
        }
    }
}
