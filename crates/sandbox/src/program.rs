//! Starting the training program, and saying plainly why it could not be started.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction, sigprocmask};
use nix::sys::stat::{Mode as FileMode, umask};
use nix::unistd::{Pid, chdir, execve, getppid, setsid};
use serde::{Deserialize, Serialize};

use crate::privileges::{Fork, fork_child};
use crate::{SandboxError, SandboxSpec, seccomp};

/// Most programs are content with this many open files, and some walk over all that they could
/// open.
const OPEN_FILES: u64 = 65_536;
/// The instance's first process waits so long for the start of a program that another one may hold
/// up; nothing else happens in the instance meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a program did not start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NotStarted {
    pub message: String,
    /// As a shell's.
    pub code: i32,
}

/// In the environment of a program that has a line to the instance's owner: the descriptor's
/// number.
pub(crate) const LINE: &str = "SHOAL_LINE";

/// Starts the program as a child of this process, in a session of its own. Its standard output and
/// error are ours; `line` becomes its alone.
pub(crate) fn start(spec: &SandboxSpec, line: Option<OwnedFd>) -> Result<Result<Pid, NotStarted>, SandboxError> {
    start_with(spec, line, None, || Ok(()))
}

/// The same with other streams, while a program runs that may hold it up: `place` puts them into
/// their places, in the child.
pub(crate) fn start_at(
    spec: &SandboxSpec,
    place: impl FnOnce() -> io::Result<()>,
) -> Result<Result<Pid, NotStarted>, SandboxError> {
    start_with(spec, None, Some(PATIENCE), place)
}

fn start_with(
    spec: &SandboxSpec,
    line: Option<OwnedFd>,
    patience: Option<Duration>,
    place: impl FnOnce() -> io::Result<()>,
) -> Result<Result<Pid, NotStarted>, SandboxError> {
    // The writing end closes when the program is there, or says why it is not.
    let (mut answer, mut question) = io::pipe().map_err(SandboxError::io("make a pipe"))?;
    match fork_child().map_err(SandboxError::io("fork"))? {
        Fork::Child => {
            drop(answer);
            let failure = become_program(spec, line.as_ref(), place);
            let _ = serde_json::to_vec(&failure).map(|text| question.write_all(&text));
            std::process::exit(failure.code)
        }
        Fork::Parent(child) => {
            drop((question, line));
            let heard =
                hear(&mut answer, patience).map_err(SandboxError::io("hear whether the program has started"))?;
            let Some(text) = heard else {
                // It fails if it has just ended.
                let _ = kill(child, Signal::SIGKILL);
                let message = format!(
                    "the program did not start within {} s: something in the instance stops it",
                    PATIENCE.as_secs()
                );
                return Ok(Err(NotStarted { message, code: 126 }));
            };
            if text.is_empty() {
                return Ok(Ok(child));
            }
            serde_json::from_slice(&text)
                .map(Err)
                .map_err(SandboxError::io("understand why the program has not started"))
        }
    }
}

/// All that comes; `None` if the end does not come in time.
fn hear(answer: &mut io::PipeReader, patience: Option<Duration>) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let Some(patience) = patience else { return answer.read_to_end(&mut text).map(|_| Some(text)) };
    let until = Instant::now() + patience;
    let mut buffer = [0; 1024];
    loop {
        let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(answer.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => return Ok(None),
            Ok(_) => match answer.read(&mut buffer)? {
                0 => return Ok(Some(text)),
                count => text.extend(&buffer[..count]),
            },
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn become_program(spec: &SandboxSpec, line: Option<&OwnedFd>, place: impl FnOnce() -> io::Result<()>) -> NotStarted {
    if let Err(error) = prepare().and_then(|()| place()) {
        return NotStarted { message: format!("could not prepare a process: {error}"), code: 126 };
    }
    if let Err(error) = chdir(&spec.cwd) {
        return NotStarted {
            message: format!("working directory {} of the program: {}", spec.cwd.display(), error.desc()),
            code: 126,
        };
    }
    let Some(line) = line else { return execute(spec) };
    if let Err(error) = fcntl(line, FcntlArg::F_SETFD(FdFlag::empty())) {
        return NotStarted { message: format!("could not hand the program its line: {}", error.desc()), code: 126 };
    }
    let mut spec = spec.clone();
    spec.env.push((LINE.to_owned(), line.as_raw_fd().to_string()));
    execute(&spec)
}

/// A process like one that a login shell starts, without the system calls that programs may not
/// make. `no_new_privs` is set already.
fn prepare() -> io::Result<()> {
    setsid()?;
    let parent = getppid();
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        std::process::exit(126);
    }
    umask(FileMode::from_bits_truncate(0o022));
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(OPEN_FILES), hard)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    restore_signals()?;
    seccomp::forbid()
}

/// The Rust runtime ignores SIGPIPE and process 1 blocks SIGCHLD; a program must inherit neither.
#[allow(unsafe_code, reason = "setting signal handlers is unsafe in general")]
fn restore_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(signal, &default) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Returns only if it cannot.
fn execute(spec: &SandboxSpec) -> NotStarted {
    let Some(name) = spec.command.first().filter(|name| !name.is_empty()) else {
        return NotStarted { message: "the program's command is empty: name a program".to_owned(), code: 127 };
    };
    let strings =
        |texts: &[String]| texts.iter().map(|text| CString::new(text.as_bytes())).collect::<Result<Vec<_>, _>>();
    let variables: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (Ok(arguments), Ok(environment)) = (strings(&spec.command), strings(&variables)) else {
        return NotStarted {
            message: format!("the arguments or the environment of {name} contain a zero byte"),
            code: 126,
        };
    };
    let search = spec.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    let Some(path) = locate(name, search) else {
        let message = if name.contains('/') {
            format!(
                "program {name} does not exist in the instance: give a path under a mounted directory or the machine's \
                 /usr"
            )
        } else {
            format!(
                "program {name} is in none of the instance's directories {search}: install it under the machine's /usr \
                 or give a path"
            )
        };
        return NotStarted { message, code: 127 };
    };
    let Ok(file) = CString::new(path.as_os_str().as_bytes()) else {
        return NotStarted { message: format!("the path of {name} contains a zero byte"), code: 126 };
    };
    let Err(error) = execve(&file, &arguments, &environment);
    explain(&path, error)
}

/// As execvp does: names with a slash are paths, others are looked up.
fn locate(name: &str, search: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return fs::metadata(name).is_ok().then(|| PathBuf::from(name));
    }
    let found: Vec<PathBuf> =
        search.split(':').map(|dir| Path::new(dir).join(name)).filter(|path| path.is_file()).collect();
    let executable = |path: &&PathBuf| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
    found.iter().find(executable).or(found.first()).cloned()
}

fn explain(path: &Path, error: nix::Error) -> NotStarted {
    let shown = path.display();
    let interpreter = interpreter(path);
    let (message, code) = match (error, interpreter) {
        (nix::Error::ENOENT, Some(name)) => (
            format!(
                "{shown} asks for the interpreter {name} in its first line, which does not exist in the instance: \
                 correct the line"
            ),
            127,
        ),
        (nix::Error::ENOENT, None) => (
            format!("{shown} needs a loader that does not exist in the instance: was it built for another system?"),
            127,
        ),
        (nix::Error::EACCES, _) if path.is_dir() => (format!("{shown} is a directory, not a program"), 126),
        (nix::Error::EACCES, Some(name)) if is_executable(path) => {
            (format!("{shown} asks for the interpreter {name} in its first line, which may not be executed"), 126)
        }
        (nix::Error::EACCES, _) => {
            (format!("{shown} may not be executed: chmod +x it, or name its interpreter before it"), 126)
        }
        (nix::Error::ENOEXEC, _) => (
            format!("{shown} is neither a program of this machine nor a script with a first line such as #!/bin/sh"),
            126,
        ),
        (nix::Error::E2BIG, _) => {
            (format!("the arguments and the environment of {shown} are too large for this machine"), 126)
        }
        (error, _) => (format!("could not execute {shown}: {}", error.desc()), 126),
    };
    NotStarted { message, code }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

/// What stands after `#!`. A carriage return at its end, the usual mistake, is shown.
fn interpreter(path: &Path) -> Option<String> {
    let mut start = [0; 256];
    // What is no file may be waited for without end, and who wants it opened is not always who
    // trusts it.
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|it| it.is_file()).then_some(())?;
    let length = file.read(&mut start).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = OsStr::from_bytes(line).to_string_lossy();
    let name = line.trim_start_matches([' ', '\t']).split([' ', '\t']).next()?;
    Some(name.escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_as_long_as_there_is_patience() {
        let (mut answer, mut question) = io::pipe().unwrap();
        assert_eq!(hear(&mut answer, Some(Duration::from_millis(5))).unwrap(), None);
        question.write_all(b"why").unwrap();
        drop(question);
        assert_eq!(hear(&mut answer, Some(Duration::from_secs(60))).unwrap().unwrap(), b"why");
    }
}
