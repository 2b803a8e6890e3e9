//! Another command in a running instance, for whoever looks after it from outside: its first
//! process starts it, so that it is where the program is and may do what the program may.
#![allow(unsafe_code, reason = "a terminal's size and owner are set by ioctl, which has no safe wrapper")]

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::PollFd;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use serde::{Deserialize, Serialize};

use crate::program::{self, NotStarted};
use crate::talk::{receive, send};
use crate::{Exit, SandboxError, SandboxSpec};

/// A terminal's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

impl From<Terminal> for Winsize {
    fn from(terminal: Terminal) -> Self {
        Self { ws_row: terminal.rows, ws_col: terminal.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// From the instance's first process, on the guest's own line.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    /// It runs. With a terminal, the descriptor is the terminal's other side.
    Running,
    /// It could not be started.
    NotStarted { message: String, code: i32 },
    /// It has ended.
    Ended { code: Option<i32>, signal: Option<i32> },
}

/// A command that runs beside an instance's program. When this is dropped it is killed, with the
/// processes of its group.
#[derive(Debug)]
pub struct Guest {
    line: UnixStream,
    /// What the command reads; with a terminal, what is typed.
    pub stdin: Option<File>,
    /// What it writes; with a terminal, all of it.
    pub stdout: Option<File>,
    /// What it writes to standard error, without a terminal.
    pub stderr: Option<File>,
    terminal: Option<OwnedFd>,
}

impl Guest {
    /// `tell` hands the guest's descriptors to the instance's first process: its line, and without
    /// a terminal its standard input, output and error.
    pub(crate) fn start(
        with_terminal: bool,
        tell: impl FnOnce(&[OwnedFd]) -> Result<(), SandboxError>,
    ) -> Result<Self, SandboxError> {
        let (line, theirs) = UnixStream::pair().map_err(SandboxError::io("make a socket pair"))?;
        let mut guest = Guest { line, stdin: None, stdout: None, stderr: None, terminal: None };
        let mut given = vec![OwnedFd::from(theirs)];
        if !with_terminal {
            let pipe = || io::pipe().map_err(SandboxError::io("make a pipe"));
            let ((stdin, to_it), (stdout, its_stdout), (stderr, its_stderr)) = (pipe()?, pipe()?, pipe()?);
            given.extend([stdin.into(), its_stdout.into(), its_stderr.into()]);
            let file = |fd: OwnedFd| Some(File::from(fd));
            (guest.stdin, guest.stdout, guest.stderr) = (file(to_it.into()), file(stdout.into()), file(stderr.into()));
        }
        tell(&given)?;
        drop(given);
        match receive(&guest.line).map_err(SandboxError::io("hear of a command"))? {
            Some((Report::Running, fds)) => {
                if let Some(terminal) = fds.into_iter().next() {
                    let copy = || {
                        terminal
                            .try_clone()
                            .map(|fd| Some(File::from(fd)))
                            .map_err(SandboxError::io("copy a terminal's descriptor"))
                    };
                    (guest.stdin, guest.stdout) = (copy()?, copy()?);
                    guest.terminal = Some(terminal);
                }
                Ok(guest)
            }
            Some((Report::NotStarted { message, code }, _)) => Err(SandboxError::Program { message, code }),
            Some((Report::Ended { .. }, _)) | None => {
                Err(SandboxError::Program { message: "the instance has just ended".to_owned(), code: 126 })
            }
        }
    }

    /// Another way to its end: waiting must not keep others from resizing.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn end(&self) -> io::Result<GuestEnd> {
        Ok(GuestEnd(self.line.try_clone()?))
    }

    /// Tells its terminal how large it is now; nothing happens without one.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn resize(&self, size: Terminal) -> io::Result<()> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        let size = Winsize::from(size);
        // SAFETY: this ioctl reads one struct winsize, which outlives the call.
        let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Copies of this line may be waited on. It fails when the instance is gone.
        let _ = self.line.shutdown(Shutdown::Both);
    }
}

/// A guest's end, to be waited for.
#[derive(Debug)]
pub struct GuestEnd(UnixStream);

impl GuestEnd {
    /// Blocks until it has ended; `None` when the whole instance has, or the guest was dropped.
    #[must_use]
    pub fn wait(self) -> Option<Exit> {
        match receive(&self.0) {
            Ok(Some((Report::Ended { code, signal }, _))) => Some(Exit { code, signal, out_of_memory: None }),
            _ => None,
        }
    }
}

/// The guests of an instance, as its first process has them.
#[derive(Debug, Default)]
pub(crate) struct Guests(Vec<(Pid, UnixStream)>);

impl Guests {
    /// Starts one: `fds` as in [`Guest::start`].
    pub(crate) fn start(&mut self, spec: &SandboxSpec, terminal: Option<Terminal>, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let Some(line) = fds.next().map(UnixStream::from) else { return };
        let (message, code) = match begin(spec, terminal, &fds.collect::<Vec<_>>()) {
            Ok(Ok((pid, other_side))) => {
                let shown: Vec<_> = other_side.iter().map(AsFd::as_fd).collect();
                // Whoever wanted it may be gone: then its line is at its end, and it is killed.
                let _ = send(&line, &Report::Running, &shown);
                return self.0.push((pid, line));
            }
            Ok(Err(NotStarted { message, code })) => (message, code),
            Err(error) => (error.chain(), 126),
        };
        let _ = send(&line, &Report::NotStarted { message, code }, &[]);
    }

    /// Something happens on a line only when whoever has the other end lets go.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &UnixStream> {
        self.0.iter().map(|(_, line)| line)
    }

    /// Kills those whose lines say that nobody wants them: in the order of [`Self::lines`].
    pub(crate) fn let_go(&self, polled: &[PollFd<'_>]) {
        for ((pid, _), _) in self.0.iter().zip(polled).filter(|(_, fd)| fd.any().unwrap_or(true)) {
            // It leads a group. Fails if all of that is gone; until it is reaped the number is its
            // own.
            let _ = kill(Pid::from_raw(-pid.as_raw()), Signal::SIGKILL);
        }
    }

    /// A child has ended; if it is a guest, whoever waits for it hears of it.
    pub(crate) fn ended(&mut self, pid: Pid, code: Option<i32>, signal: Option<i32>) {
        if let Some(at) = self.0.iter().position(|(guest, _)| *guest == pid) {
            let (_, line) = self.0.swap_remove(at);
            let _ = send(&line, &Report::Ended { code, signal }, &[]);
        }
    }
}

type Begun = Result<(Pid, Option<OwnedFd>), NotStarted>;

fn begin(spec: &SandboxSpec, terminal: Option<Terminal>, streams: &[OwnedFd]) -> Result<Begun, SandboxError> {
    if let Some(size) = terminal {
        let pair = openpty(&Winsize::from(size), None).map_err(SandboxError::io("open a terminal in the instance"))?;
        for side in [&pair.master, &pair.slave] {
            fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
                .map_err(SandboxError::io("keep a terminal to its command"))?;
        }
        let side = &pair.slave;
        return Ok(program::start_at(spec, || sit_at(side))?.map(|pid| (pid, Some(pair.master))));
    }
    let [stdin, stdout, stderr] = streams else {
        return Ok(Err(NotStarted {
            message: "a command without a terminal needs three streams".to_owned(),
            code: 126,
        }));
    };
    let started = program::start_at(spec, || {
        dup2_stdin(stdin)?;
        dup2_stdout(stdout)?;
        Ok(dup2_stderr(stderr)?)
    })?;
    Ok(started.map(|pid| (pid, None)))
}

/// In the child, which leads a session of its own: the terminal becomes the session's.
fn sit_at(side: &OwnedFd) -> io::Result<()> {
    // SAFETY: this ioctl takes a number only.
    if unsafe { libc::ioctl(side.as_raw_fd(), libc::TIOCSCTTY, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    dup2_stdin(side)?;
    dup2_stdout(side)?;
    Ok(dup2_stderr(side)?)
}
