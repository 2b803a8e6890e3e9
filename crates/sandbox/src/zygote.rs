//! A program that is started once and forked for each run: what it has loaded and read is there
//! when a run begins.
//!
//! Only for programs that are trusted to leave nothing in each other's way but processes and files:
//! all runs share one instance. After each of them the zygote kills every process of the instance
//! but itself and process 1, which needs a PID namespace, and empties the instance's own writable
//! places; what the caller mounted is the caller's affair. When anything is odd the zygote ends,
//! and the instance with it.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, execv, getppid, setsid};

use crate::privileges::{Fork, fork_child};
use crate::program::LINE;
use crate::root::OWN_PLACES;
use crate::sandbox::{Control, open_process};
use crate::talk::{receive, send};
use crate::zygote_talk::{Order, Report, Run};
use crate::{Exit, Network, Sandbox, SandboxError, SandboxSpec, Support, remove_tree};

/// How long the killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a shell would say of a program that panicked.
const PANICKED: i32 = 101;

/// An instance whose program is a zygote.
#[derive(Debug)]
pub struct Zygote {
    sandbox: Sandbox,
    run: Arc<Run>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ran {
    /// The zygote is ready for another one.
    Over(Exit),
    /// The whole instance has ended.
    Gone {
        /// How the zygote did.
        exit: Exit,
        /// The run had begun.
        began: bool,
    },
}

impl Zygote {
    /// Makes the instance, whose program must call [`serve`] with what [`line_of_zygote`] gives it.
    ///
    /// # Errors
    /// As [`Sandbox::start`].
    pub fn start(spec: &SandboxSpec, network: &Network, support: &Support) -> Result<Self, SandboxError> {
        let (stream, theirs) = UnixStream::pair().map_err(SandboxError::io("make a socket pair"))?;
        let sandbox = Sandbox::start_with(spec, network, support, Some(theirs.as_fd()))?;
        Ok(Self { sandbox, run: Arc::new(Run { stream, began: AtomicBool::new(false) }) })
    }

    /// Begins a run; gives its standard output and error. [`Self::wait`] is to be called before the
    /// next one.
    ///
    /// # Errors
    /// The zygote has ended, or there are no pipes.
    pub fn run(&mut self, env: &[(String, String)]) -> Result<(File, File), SandboxError> {
        let pipe = || io::pipe().map_err(SandboxError::io("make a pipe"));
        let ((stdout, their_stdout), (stderr, their_stderr)) = (pipe()?, pipe()?);
        self.run.began.store(false, Ordering::Release);
        send(&self.run.stream, &Order::Run { env: env.to_vec() }, &[their_stdout.as_fd(), their_stderr.as_fd()])
            .map_err(SandboxError::io("tell a zygote to run"))?;
        Ok((OwnedFd::from(stdout).into(), OwnedFd::from(stderr).into()))
    }

    /// Blocks until the run has ended and no process of it is left.
    ///
    /// # Errors
    /// The machine does not let us wait.
    pub fn wait(&mut self) -> Result<Ran, SandboxError> {
        let failed = SandboxError::io("hear from a zygote");
        loop {
            match receive(&self.run.stream) {
                Ok(Some((Report::Began, _))) => self.run.began.store(true, Ordering::Release),
                Ok(Some((Report::Ended { code, signal }, _))) => {
                    return Ok(Ran::Over(Exit { code, signal, out_of_memory: self.sandbox.out_of_memory() }));
                }
                Ok(None) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Ran::Gone { exit: self.sandbox.wait()?, began: self.run.began.load(Ordering::Acquire) })
    }

    /// See [`Sandbox::control`]: to terminate is for the run alone once it has begun; to kill is
    /// for the whole instance.
    #[must_use]
    pub fn control(&self) -> Control {
        self.sandbox.control().with_run(self.run.clone())
    }

    /// The instance.
    pub fn sandbox(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }
}

/// In a program that was started as a zygote: the line to its owner. Called once, before anything
/// is started.
#[must_use]
#[allow(unsafe_code, reason = "an inherited descriptor arrives as a bare number")]
pub fn line_of_zygote() -> Option<UnixStream> {
    let number: i32 = std::env::var(LINE).ok()?.parse().ok().filter(|number| *number > 2)?;
    // SAFETY: whoever set the variable has left this descriptor for us, and nothing else of this
    // process has looked for it.
    let line = unsafe { OwnedFd::from_raw_fd(number) };
    // What is started from here must not have it.
    nix::fcntl::fcntl(&line, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC)).ok()?;
    Some(line.into())
}

/// Is the zygote: forks for each run until its owner is gone. `prepare` is called before each fork,
/// with the run's environment set, and must start no thread; if it has, the run is this program
/// executed anew. `program` is the run; it gives the exit code. Returns the zygote's own.
pub fn serve(line: &UnixStream, mut prepare: impl FnMut(), program: impl Fn() -> i32) -> i32 {
    // Everybody else is killed after each run: this must be an instance's own PID namespace, and
    // our parent its process 1.
    if getppid() != Pid::from_raw(1) || std::process::id() == 1 {
        eprintln!("a zygote runs as the program of an instance with a PID namespace only");
        return 2;
    }
    loop {
        let (env, fds) = match receive(line) {
            Ok(Some((Order::Run { env }, fds))) => (env, fds),
            // It came too late for the last run.
            Ok(Some((Order::Terminate, _))) => continue,
            Ok(None) | Err(_) => return 0,
        };
        let Ok([stdout, stderr]) = <[OwnedFd; 2]>::try_from(fds) else { return 2 };
        set_environment(&env);
        // What cannot be prepared is found again, and told, by the run itself.
        let _ = catch_unwind(AssertUnwindSafe(&mut prepare));
        // After the fork there is one in any case, and what waits for the others would wait
        // forever.
        let is_alone = threads() == Some(1);
        let child = match fork_child() {
            Ok(Fork::Child) => become_run(&stdout, &stderr, is_alone, &program),
            Ok(Fork::Parent(child)) => child,
            Err(error) => {
                eprintln!("a zygote cannot fork: {error}");
                return 2;
            }
        };
        drop((stdout, stderr));
        let Some(report) = watch(line, child) else { return 2 };
        if !kill_all_others() || send(line, &report, &[]).is_err() || !empty_own_places() {
            return 2;
        }
    }
}

#[allow(unsafe_code, reason = "the environment belongs to the whole process")]
fn set_environment(env: &[(String, String)]) {
    let old: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    // SAFETY: a zygote has a single thread.
    unsafe {
        old.iter().filter(|name| !name.is_empty()).for_each(|name| std::env::remove_var(name));
        env.iter()
            .filter(|(name, _)| !name.is_empty() && !name.contains('='))
            .for_each(|(name, value)| std::env::set_var(name, value));
    }
}

/// `is_alone`: the zygote has no other thread.
fn become_run(stdout: &OwnedFd, stderr: &OwnedFd, is_alone: bool, program: &impl Fn() -> i32) -> ! {
    let ready = setsid()
        .and_then(|_| prctl::set_pdeathsig(Signal::SIGKILL))
        .and_then(|()| nix::unistd::dup2_stdout(stdout))
        .and_then(|()| nix::unistd::dup2_stderr(stderr));
    if let Err(error) = ready {
        eprintln!("cannot prepare a process: {error}");
        std::process::exit(126);
    }
    if !is_alone {
        let path = CString::new("/proc/self/exe").expect("it holds no zero");
        let arguments: Vec<CString> = std::env::args().filter_map(|argument| CString::new(argument).ok()).collect();
        let Err(error) = execv(&path, &arguments);
        eprintln!("cannot start anew: {error}");
        std::process::exit(126);
    }
    std::process::exit(catch_unwind(AssertUnwindSafe(program)).unwrap_or(PANICKED))
}

fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

/// Until the run ends; `None` when the owner is gone first.
fn watch(line: &UnixStream, child: Pid) -> Option<Report> {
    send(line, &Report::Began, &[]).ok()?;
    let end = open_process(child).ok()?;
    loop {
        let mut waited = [PollFd::new(line.as_fd(), PollFlags::POLLIN), PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => return None,
        }
        let [spoken, ended] = waited.map(|fd| fd.any().unwrap_or(true));
        if ended {
            return match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, code)) => Some(Report::Ended { code: Some(code), signal: None }),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    Some(Report::Ended { code: None, signal: Some(signal as i32) })
                }
                _ => None,
            };
        }
        if spoken {
            match receive(line) {
                // It fails only when the run has just ended, which is what was wanted.
                Ok(Some((Order::Terminate, _))) => drop(kill(child, Signal::SIGTERM)),
                Ok(Some((Order::Run { .. }, _)) | None) | Err(_) => return None,
            }
        }
    }
}

/// Every process of this PID namespace but its first and this one. Says whether none is left.
fn kill_all_others() -> bool {
    let until = Instant::now() + PATIENCE;
    // Process 1 reaps them; until then they are there to be told.
    while kill(Pid::from_raw(-1), Signal::SIGKILL) != Err(nix::Error::ESRCH) {
        if Instant::now() > until {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// What the instance made for its program and nobody else sees. Says whether all of it is empty.
fn empty_own_places() -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    let mounts: Vec<PathBuf> = mounts.lines().filter_map(|line| Some(unescaped(line.split(' ').nth(4)?))).collect();
    OWN_PLACES.iter().all(|place| empty(Path::new(place), &mounts))
        && ["shm", "sem", "msg"].iter().all(|kind| {
            // A line of names, then one for each object.
            fs::read_to_string(Path::new("/proc/sysvipc").join(kind)).is_ok_and(|table| table.lines().count() <= 1)
        })
}

/// What the caller has mounted in there stays, with the directories on the way to it.
fn empty(directory: &Path, mounts: &[PathBuf]) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().map(|entry| entry.path()).all(|path| {
        if mounts.contains(&path) {
            true
        } else if mounts.iter().any(|mount| mount.starts_with(&path)) {
            empty(&path, mounts)
        } else {
            remove_tree(&path).is_ok()
        }
    })
}

/// A path in mountinfo: blanks and backslashes are three octal digits.
fn unescaped(path: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits =
            if *first == b'\\' { after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()) } else { None };
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}
