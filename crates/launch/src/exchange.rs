//! A command's input and output within a time limit. A command may leave processes that keep its
//! output open (`ssh` with `ControlPersist`): its own end counts, not that of its output.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::end_with_caller;

/// Between two checks of the command.
const POLL: Duration = Duration::from_millis(5);

/// What a command has printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) is_success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command as a process group of its own; none: it took longer than `limit`, and its group
/// was killed. It is killed with its caller, too. One that has become another user's cannot be
/// killed, and ends by itself.
///
/// # Errors
/// It could not be started.
pub(crate) fn exchange(mut command: Command, input: &str, limit: Duration) -> io::Result<Option<Printed>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // A server that is killed and started again looks for its jobs by name, and must not find one
    // later that is being submitted then.
    end_with_caller(&mut command);
    let mut child = command.spawn()?;
    let printed = talk(&mut child, input.as_bytes(), Instant::now() + limit);
    if !matches!(printed, Ok(Some(_))) {
        // By the group while its leader is not waited for: its number is nobody else's.
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let is_killed = group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok());
        let mut reap = move || drop(child.wait());
        if is_killed {
            reap();
        } else {
            thread::spawn(reap);
        }
    }
    printed
}

fn talk(child: &mut Child, mut input: &[u8], until: Instant) -> io::Result<Option<Printed>> {
    let mut stdin = child.stdin.take();
    let (mut out, mut err) = (Pipe::of(child.stdout.take())?, Pipe::of(child.stderr.take())?);
    if let Some(stdin) = &stdin {
        ioctl_fionbio(stdin, true)?;
    }
    loop {
        // Asked before the pipes are read: once it has ended, all that it printed is in them.
        let status = child.try_wait()?;
        if stdin.as_mut().is_none_or(|stdin| is_written(stdin, &mut input)) {
            stdin = None;
        }
        out.read(until);
        err.read(until);
        if let Some(status) = status {
            return Ok(Some(Printed { is_success: status.success(), out: out.text(), err: err.text() }));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        wait(stdin.as_ref(), &out, &err);
    }
}

/// Writes as much as the pipe takes; returns whether writing is over. It is over, too, when the
/// command reads no more: what it prints has the reason.
fn is_written(stdin: &mut impl Write, input: &mut &[u8]) -> bool {
    while !input.is_empty() {
        match stdin.write(input) {
            Ok(count) => *input = &input[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    true
}

/// Until something can be read or written, or for a moment.
fn wait<O: AsFd, E: AsFd>(stdin: Option<&impl AsFd>, out: &Pipe<O>, err: &Pipe<E>) {
    let mut all = Vec::from_iter(stdin.map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
    all.extend(out.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    all.extend(err.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    if let Ok(moment) = Timespec::try_from(POLL) {
        // A signal only wakes it.
        let _ = poll(&mut all, Some(&moment));
    }
}

/// An output of the command's; no pipe: it is closed.
struct Pipe<P> {
    pipe: Option<P>,
    bytes: Vec<u8>,
}

impl<P: Read + AsFd> Pipe<P> {
    fn of(pipe: Option<P>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { pipe, bytes: Vec::new() })
    }

    /// Reads all that is there; of a pipe that is filled for ever, what comes until then.
    fn read(&mut self, until: Instant) {
        let mut part = [0; 65536];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut part) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.bytes.extend(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was read so far is used.
                Err(_) => self.pipe = None,
            }
            if Instant::now() >= until {
                return;
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str, input: &str, limit: Duration) -> Option<Printed> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        exchange(command, input, limit).expect("a shell")
    }

    #[test]
    fn what_a_command_leaves_running_is_not_waited_for() {
        let begun = Instant::now();
        let printed = shell("sleep 1000 & echo $!", "", LONG).expect("it ends");
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
        let pid = printed.out.trim().parse().ok().and_then(Pid::from_raw).expect("a process's number");
        rustix::process::kill_process(pid, Signal::KILL).expect("it is left alone");
    }

    #[test]
    fn a_command_that_is_late_is_killed_with_all_of_its_group() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("alive");
        let script = format!("(while :; do date >{}; sleep 0.05; done) & wait", file.display());
        let begun = Instant::now();
        assert!(shell(&script, "", Duration::from_secs(1)).is_none());
        assert!(begun.elapsed() < LONG);
        let _ = std::fs::remove_file(&file);
        thread::sleep(Duration::from_millis(500));
        assert!(!file.exists(), "the child of the shell lives");
    }

    #[test]
    fn input_that_is_not_read_does_not_hang() {
        let much = "x".repeat(1 << 20);
        assert!(shell("sleep 1000", &much, Duration::from_secs(1)).is_none());
        let printed = shell("cat; echo no >&2; exit 3", &much, LONG).expect("it ends");
        assert_eq!((printed.is_success, printed.out.len(), &*printed.err), (false, much.len(), "no\n"));
    }
}
