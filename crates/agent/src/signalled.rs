//! Children that one thread waits for and another signals.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// A child by its number. Signals go only to one that has not been waited for: after that its
/// number may be another process's.
#[derive(Debug)]
pub(crate) struct Signalled {
    pid: Pid,
    is_reaped: Mutex<bool>,
}

impl Signalled {
    pub(crate) fn of(child: &Child) -> Self {
        Self { pid: Pid::from_child(child), is_reaped: Mutex::new(false) }
    }

    /// Signals it, unless it has been waited for.
    pub(crate) fn signal(&self, signal: Signal) {
        self.unless_reaped(|pid| kill_process(pid, signal));
    }

    /// Signals the group that it leads, unless it has been waited for.
    pub(crate) fn signal_group(&self, signal: Signal) {
        self.unless_reaped(|pid| kill_process_group(pid, signal));
    }

    fn unless_reaped(&self, kill: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_reaped {
            // One that has just ended hears it no more.
            let _ = kill(self.pid);
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        // Without the lock until it has ended; it keeps its number until it is waited for, which is
        // done with the lock.
        while matches!(
            waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT),
            Err(rustix::io::Errno::INTR)
        ) {}
        let mut is_reaped = self.is_reaped.lock().unwrap_or_else(PoisonError::into_inner);
        *is_reaped = true;
        child.wait()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn one_that_was_waited_for_is_not_signalled() {
        let mut ended = Command::new("true").spawn().unwrap();
        let signalled = Signalled::of(&ended);
        assert!(signalled.wait(&mut ended).unwrap().success());
        // As if another process had got its number since.
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let reused = Signalled { pid: Pid::from_child(&other), ..signalled };
        reused.signal(Signal::KILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(other.try_wait().unwrap().is_none(), "it lives");
        Signalled::of(&other).signal(Signal::KILL);
        assert!(!other.wait().unwrap().success());
    }
}
