//! One instance, seen by the process that owns it.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::cgroup::{Cgroup, KillCount, Place};
use crate::guest::{Guest, Terminal};
use crate::spawn::{self, Helper};
use crate::talk::{Mode, Order, Report, receive, send};
use crate::zygote_talk::Run;
use crate::{Exit, Network, OutOfMemory, SandboxError, SandboxSpec, Support, sweep};

/// A running instance. It ends with its program, when it is dropped, and when the process that owns
/// it dies of whatever.
#[derive(Debug)]
pub struct Sandbox {
    id: String,
    control: Control,
    process: Process,
    stdout: Option<File>,
    stderr: Option<File>,
    listener: Option<TcpListener>,
    proxy_listener: Option<TcpListener>,
    notes: Vec<String>,
    read_only: bool,
    exit: Option<Exit>,
    /// Of the container whose limits it has.
    container: Option<Box<KillCount>>,
    /// Last, as it can only be removed when the processes are gone.
    cgroup: Option<Cgroup>,
}

/// Ends an instance from any thread, while its owner waits for it.
#[derive(Debug, Clone)]
pub struct Control(Arc<Line>, Option<Arc<Run>>);

#[derive(Debug)]
struct Line {
    helper: String,
    stream: UnixStream,
    first: u32,
    /// Of the instance's process 1. Without a PID namespace there is nothing that takes the whole
    /// tree along, so the helper is asked.
    process: Option<OwnedFd>,
}

/// Reaped once, and killed before that if need be.
#[derive(Debug)]
struct Process {
    pid: Pid,
    reaped: bool,
}

impl Process {
    /// Before it is reaped, as the pid is its own till then. Fails only if it is dead.
    fn kill(&self) {
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    fn reap(&mut self) -> Result<Option<WaitStatus>, SandboxError> {
        if self.reaped {
            return Ok(None);
        }
        loop {
            match waitpid(self.pid, None) {
                Err(nix::Error::EINTR) => {}
                // Somebody else has waited, or nobody needs to: SIGCHLD is ignored.
                Err(nix::Error::ECHILD) => {
                    self.reaped = true;
                    return Ok(None);
                }
                done => {
                    self.reaped = true;
                    return done.map(Some).map_err(SandboxError::io(format!("wait for process {}", self.pid)));
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.reap();
        }
    }
}

impl Control {
    pub(crate) fn with_run(mut self, run: Arc<Run>) -> Self {
        self.1 = Some(run);
        self
    }

    /// Asks the program to end: SIGTERM to it alone, as a container engine does. Nothing happens if
    /// it has ended. One that is frozen hears of it when it is thawed.
    ///
    /// # Errors
    /// The instance cannot be told.
    pub fn terminate(&self) -> Result<(), SandboxError> {
        match self.1.as_ref().filter(|run| run.began.load(Ordering::Acquire)) {
            Some(run) => run.terminate(),
            None => self.tell(&Order::Terminate, "terminate")?,
        }
        Ok(())
    }

    /// Stops everything in the instance where it is, until [`Self::thaw`] or the instance's end.
    /// Nothing happens if it is frozen or has ended.
    ///
    /// # Errors
    /// The instance cannot be told.
    pub fn freeze(&self) -> Result<(), SandboxError> {
        self.tell(&Order::Freeze, "freeze")
    }

    /// Lets everything in the instance go on.
    ///
    /// # Errors
    /// The instance cannot be told.
    pub fn thaw(&self) -> Result<(), SandboxError> {
        self.tell(&Order::Thaw, "thaw")
    }

    /// The instance's first process (not the program), as this machine numbers it. It is there
    /// while the instance is.
    #[must_use]
    pub fn first_process(&self) -> u32 {
        self.0.first
    }

    /// Starts another command where the program is: as its user, with its limits, in its
    /// namespaces. Of `spec` the command, the environment and the working directory count.
    ///
    /// # Errors
    /// [`SandboxError::Program`] if it cannot be started or the instance has ended, else what the
    /// machine refused.
    pub fn start_guest(&self, spec: &SandboxSpec, terminal: Option<Terminal>) -> Result<Guest, SandboxError> {
        let order = Order::Guest { spec: Box::new(spec.clone()), terminal };
        Guest::start(terminal.is_some(), |fds| self.tell_with(&order, fds, "start a command beside"))
    }

    fn tell(&self, order: &Order, what: &str) -> Result<(), SandboxError> {
        self.tell_with(order, &[], what)
    }

    /// Whom nobody hears any more needs to be told nothing.
    fn tell_with(&self, order: &Order, fds: &[OwnedFd], what: &str) -> Result<(), SandboxError> {
        match send(&self.0.stream, order, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>()) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Err(SandboxError::Io { what: format!("tell {} to {what} its program", self.0.helper), source: error })
            }
            _ => Ok(()),
        }
    }

    /// Kills everything in the instance at once.
    pub fn kill(&self) {
        match &self.0.process {
            Some(process) => send_kill(process),
            // It fails only when the helper is gone.
            None => drop(send(&self.0.stream, &Order::Kill, &[])),
        }
    }
}

impl Sandbox {
    /// Makes the instance and starts its program in it; returns when that runs.
    ///
    /// # Errors
    /// [`SandboxError::Program`] if the program cannot be started, else what the machine refused.
    /// Nothing is left then.
    pub fn start(spec: &SandboxSpec, network: &Network, support: &Support) -> Result<Sandbox, SandboxError> {
        Self::start_with(spec, network, support, None)
    }

    /// The same with a line to the program: a descriptor that it finds under the number in
    /// [`crate::program::LINE`]. Not for plain processes.
    pub(crate) fn start_with(
        spec: &SandboxSpec,
        network: &Network,
        support: &Support,
        line: Option<BorrowedFd<'_>>,
    ) -> Result<Sandbox, SandboxError> {
        let cgroup = match support.cgroup.and_then(Place::find) {
            Some(place) => Some(Cgroup::make(&place, spec)?),
            None => None,
        };
        // It has the container's limits.
        let container = (support.mode() == Mode::Container).then(KillCount::here).flatten().map(Box::new);
        let pipe = || io::pipe().map_err(SandboxError::io("make a pipe"));
        let ((stdout, program_stdout), (stderr, program_stderr)) = (pipe()?, pipe()?);
        let helper = spawn::start(spawn::INSTANCE, &spec.id, Some((program_stdout.into(), program_stderr.into())))?;
        let first = Process { pid: Pid::from_raw(helper.child.id() as i32), reaped: false };
        let Helper { name, stream, .. } = helper;
        let (mode, namespaces) = match network.namespaces() {
            Some(namespaces) => (support.mode(), namespaces.fds().into_iter().chain(line).collect()),
            None if support.mode() == Mode::Container => (Mode::Container, Vec::new()),
            None => (Mode::Processes, Vec::new()),
        };
        if let (false, Some(cgroup)) = (mode.has_namespaces(), &cgroup) {
            cgroup.add(first.pid)?;
        }
        send(&stream, &Order::Start { spec: Box::new(spec.clone()), mode }, &namespaces)
            .map_err(SandboxError::io(format!("describe the instance to {name}")))?;
        let Started { process, listener, proxy_listener, notes, read_only } =
            hear_start(&stream, &name, first, cgroup.as_ref())?;
        let handle = if mode.has_namespaces() { Some(open_process(process.pid)?) } else { None };
        Ok(Sandbox {
            id: spec.id.clone(),
            control: Control(
                Arc::new(Line { helper: name, stream, first: process.pid.as_raw().cast_unsigned(), process: handle }),
                None,
            ),
            process,
            stdout: Some(OwnedFd::from(stdout).into()),
            stderr: Some(OwnedFd::from(stderr).into()),
            listener,
            proxy_listener,
            notes,
            read_only,
            exit: None,
            cgroup,
            container,
        })
    }

    /// What the program writes to its standard output: taken once, at its end when every process
    /// that has it is gone.
    pub fn stdout(&mut self) -> Option<File> {
        self.stdout.take()
    }

    /// The same of standard error.
    pub fn stderr(&mut self) -> Option<File> {
        self.stderr.take()
    }

    /// Accepts what the program connects to 127.0.0.1:[`crate::FORWARDER_PORT`]: with
    /// [`Self::proxy_listener`] the only way out that an instance has. Taken once; `None` for plain
    /// processes, who reach the machine's own loopback.
    pub fn listener(&mut self) -> Option<TcpListener> {
        self.listener.take()
    }

    /// The same of 127.0.0.1:[`crate::PROXY_PORT`], where [`SandboxSpec::has_proxy`] requests it.
    pub fn proxy_listener(&mut self) -> Option<TcpListener> {
        self.proxy_listener.take()
    }

    /// What is not as it was asked for, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether an overlay was asked for and is read-only.
    pub(crate) fn overlay_failed(&self) -> bool {
        self.read_only
    }

    /// To end the instance from another thread.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Whether the kernel has killed something of the instance for memory by now, and why.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        let of_container = self.container.as_ref().filter(|kills| kills.has_grown()).map(|_| OutOfMemory::Own);
        self.cgroup.as_ref().and_then(Cgroup::out_of_memory).or(of_container)
    }

    /// See [`Control::terminate`].
    ///
    /// # Errors
    /// As there.
    pub fn terminate(&self) -> Result<(), SandboxError> {
        self.control.terminate()
    }

    /// See [`Control::kill`].
    pub fn kill(&self) {
        self.control.kill();
    }

    /// The instance's first process (not the program), as this machine numbers it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid.as_raw() as u32
    }

    /// Blocks until the program has ended and nothing of the instance is left. Says the same when
    /// asked again.
    ///
    /// # Errors
    /// The machine does not let us wait.
    pub fn wait(&mut self) -> Result<Exit, SandboxError> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let mut exit = None;
        let stream = &self.control.0.stream;
        while let Some((report, _)) =
            receive(stream).map_err(SandboxError::io(format!("hear from {}", self.control.0.helper)))?
        {
            if let Report::Ended { code, signal } = report {
                exit = Some(Exit { code, signal, out_of_memory: None });
            }
        }
        let status = self.process.reap()?;
        if exit.is_none() && self.control.0.process.is_none() {
            // The helper was killed, and no PID namespace took its orphans along.
            sweep::kill_all(|id| id == self.id);
        }
        // No word of the program's end: it was killed with the whole instance.
        let mut exit = exit.unwrap_or(Exit { code: None, signal: Some(killed_by(status)), out_of_memory: None });
        exit.out_of_memory = self.out_of_memory();
        self.cgroup = None;
        self.exit = Some(exit);
        Ok(exit)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
            let _ = self.wait();
        }
    }
}

fn killed_by(status: Option<WaitStatus>) -> i32 {
    match status {
        Some(WaitStatus::Signaled(_, signal, _)) => signal as i32,
        _ => Signal::SIGKILL as i32,
    }
}

struct Started {
    process: Process,
    listener: Option<TcpListener>,
    proxy_listener: Option<TcpListener>,
    notes: Vec<String>,
    read_only: bool,
}

fn hear_start(
    stream: &UnixStream,
    name: &str,
    mut process: Process,
    cgroup: Option<&Cgroup>,
) -> Result<Started, SandboxError> {
    let mut failure = SandboxError::Silent { helper: name.to_owned() };
    // After a failure to the end, so that the process that is to be reaped is known.
    while let Some((report, fds)) = receive(stream).map_err(SandboxError::io(format!("hear from {name}")))? {
        match report {
            // The helper is on its way out, and its child is ours.
            Report::Forked { pid } => {
                let mut helper = std::mem::replace(&mut process, Process { pid: Pid::from_raw(pid), reaped: false });
                helper.reap()?;
                // The kernel lets us wait some milliseconds for this; the instance builds its root
                // meanwhile.
                if let Some(Err(error)) = cgroup.map(|cgroup| cgroup.add(process.pid)) {
                    process.kill();
                    failure = error;
                }
                // If it has died already, what it said comes next.
                let _ = send(stream, &Order::Limited, &[]);
            }
            Report::Running { notes, read_only } => {
                let mut listeners = fds.into_iter().map(TcpListener::from);
                let (listener, proxy_listener) = (listeners.next(), listeners.next());
                return Ok(Started { process, listener, proxy_listener, notes, read_only });
            }
            Report::NotStarted { message, code } => failure = SandboxError::Program { message, code },
            Report::Failed { message } => failure = SandboxError::Helper { helper: name.to_owned(), message },
            Report::Ended { .. } | Report::NeedsMaps | Report::Up => {}
        }
    }
    Err(failure)
}

#[allow(unsafe_code, reason = "pidfd_open has no safe wrapper")]
pub(crate) fn open_process(pid: Pid) -> Result<OwnedFd, SandboxError> {
    // SAFETY: takes numbers only and returns a new descriptor, which nobody else knows.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        if fd >= 0 { Ok(OwnedFd::from_raw_fd(fd as i32)) } else { Err(io::Error::last_os_error()) }
    }
    .map_err(SandboxError::io(format!("open process {pid}")))
}

#[allow(unsafe_code, reason = "pidfd_send_signal has no safe wrapper")]
fn send_kill(process: &OwnedFd) {
    // SAFETY: takes numbers and a null pointer, which stands for a signal as kill(2) sends it.
    // Fails only if the process is gone.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
}
