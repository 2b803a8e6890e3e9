//! The first process of an instance once the program runs: reaps, passes SIGTERM on, ends with its
//! owner.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::guest::Guests;
use crate::talk::{Mode, Order, Report, receive, send};
use crate::{SandboxError, plain};

/// How this process hears of its children's ends. To be made before the first one is started.
pub(crate) struct Reaper {
    signals: SignalFd,
}

impl Reaper {
    pub(crate) fn new() -> Result<Reaper, SandboxError> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).map_err(SandboxError::io("block SIGCHLD"))?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(SandboxError::io("make a signalfd"))?;
        Ok(Reaper { signals })
    }
}

/// Until the program ends, the owner says kill, or the owner is gone. Then nothing of the instance
/// is left.
pub(crate) fn supervise(stream: &UnixStream, reaper: &Reaper, program: Pid, mode: Mode) -> ! {
    let ended = watch(stream, reaper, program, mode);
    if let Some(report) = ended {
        // The owner may be gone: then nobody wants to know.
        let _ = send(stream, &report, &[]);
    }
    if !mode.has_namespaces() {
        kill_descendants();
    }
    // Else the kernel kills what is left in this PID namespace.
    std::process::exit(0)
}

fn watch(stream: &UnixStream, reaper: &Reaper, program: Pid, mode: Mode) -> Option<Report> {
    let mut guests = Guests::default();
    loop {
        let [owner, children] = [stream.as_fd(), reaper.signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut waited: Vec<_> = [owner, children].into_iter().collect();
        waited.extend(guests.lines().map(|line| PollFd::new(line.as_fd(), PollFlags::POLLIN)));
        match poll(&mut waited, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => return None,
        }
        let [spoken, children] = [0, 1].map(|at: usize| waited[at].any().unwrap_or(true));
        guests.let_go(&waited[2..]);
        if children {
            while let Ok(Some(_)) = reaper.signals.read_signal() {}
            if let Some(report) = reap(program, &mut guests) {
                return Some(report);
            }
        }
        if spoken {
            match receive(stream) {
                // It fails only when the program has just ended, which is what was wanted.
                Ok(Some((Order::Terminate, _))) => drop(kill(program, Signal::SIGTERM)),
                Ok(Some((Order::Freeze, _))) => signal_all(Signal::SIGSTOP, mode),
                Ok(Some((Order::Thaw, _))) => signal_all(Signal::SIGCONT, mode),
                Ok(Some((Order::Guest { spec, terminal }, fds))) => {
                    let spec = if mode.has_namespaces() { *spec } else { plain::find(*spec, mode) };
                    guests.start(&spec, terminal, fds);
                }
                Ok(Some((Order::Start { .. } | Order::Limited | Order::Mapped, _))) => {}
                Ok(Some((Order::Kill, _)) | None) | Err(_) => return None,
            }
        }
    }
}

/// Collects the dead; says how the program ended if it is among them.
fn reap(program: Pid, guests: &mut Guests) -> Option<Report> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => {
                return Some(Report::Ended { code: Some(code), signal: None });
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                return Some(Report::Ended { code: None, signal: Some(signal as i32) });
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(WaitStatus::Exited(pid, code)) => guests.ended(pid, Some(code), None),
            Ok(WaitStatus::Signaled(pid, signal, _)) => guests.ended(pid, None, Some(signal as i32)),
            Ok(_) => {}
        }
    }
}

/// To everything in the instance but this process.
fn signal_all(signal: Signal, mode: Mode) {
    if !mode.has_namespaces() {
        return signal_descendants(signal);
    }
    // In a PID namespace of its own -1 means everybody else in it, at one moment: who forks then
    // forks afterwards. Fails if there is nobody.
    let _ = kill(Pid::from_raw(-1), signal);
}

/// Without a PID namespace, again until nobody has come whom the signal has not reached: who was
/// just born may have missed it.
fn signal_descendants(signal: Signal) {
    let mut told = BTreeSet::new();
    loop {
        let (before, mut waiting) = (told.len(), vec![std::process::id()]);
        while let Some(parent) = waiting.pop() {
            let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
            for child in
                lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
            {
                if told.insert(child) {
                    // It may be dead already.
                    let _ = kill(Pid::from_raw(child.cast_signed()), signal);
                }
                waiting.push(child);
            }
        }
        if told.len() == before {
            return;
        }
    }
}

/// Without a PID namespace: orphans come to this process (a child subreaper), so killing its
/// children until it has none kills all.
fn kill_descendants() {
    let own = std::process::id();
    let children = format!("/proc/self/task/{own}/children");
    while !matches!(
        waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT),
        Err(nix::Error::ECHILD)
    ) {
        let list = std::fs::read_to_string(&children).unwrap_or_default();
        for pid in list.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // It may be dead already.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
        std::thread::sleep(Duration::from_millis(1));
    }
}
