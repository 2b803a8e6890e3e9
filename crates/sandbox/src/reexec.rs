//! Helpers: this executable started again under another name.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl;

use crate::{SandboxError, hub, instance};

/// Before the id, in the process list, of an instance's helper, which becomes its process 1.
pub(crate) const INSTANCE: &str = "shoal-init:";
/// Before the id, in the process list, of a network's helper.
pub(crate) const NETWORK: &str = "shoal-net:";

/// Set by [`reexec_entry`]: without it a helper would be another run of somebody's `main`.
static READY: AtomicBool = AtomicBool::new(false);

/// First thing in `main`, before any thread: if this process was started as one of this crate's
/// helpers, does that work and never returns.
pub fn reexec_entry() {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = name.to_string_lossy();
    if let Some(id) = name.strip_prefix(INSTANCE) {
        begin("shoal-init").map_or_else(|error| give_up(&name, &error), |stream| instance::run(&stream, id));
    } else if let Some(id) = name.strip_prefix(NETWORK) {
        begin("shoal-net").map_or_else(|error| give_up(&name, &error), |stream| hub::run(&stream, id));
    } else {
        READY.store(true, Ordering::Relaxed);
    }
}

fn give_up(name: &str, error: &io::Error) -> ! {
    eprintln!("{name}: {error}");
    std::process::exit(1)
}

/// The socket arrives as standard input; nothing else but output and error is inherited.
fn begin(short: &str) -> io::Result<UnixStream> {
    prctl::set_name(&std::ffi::CString::new(short)?)?;
    close_all_from(3)?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    // Nobody's directory is kept busy.
    std::env::set_current_dir("/")?;
    Ok(stream)
}

#[allow(unsafe_code, reason = "close_range has no safe wrapper")]
fn close_all_from(first: u32) -> io::Result<()> {
    // SAFETY: at the very start of main nothing of this process owns a descriptor above standard
    // error.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
        return Ok(());
    }
    // Linux before 5.9, which runs plain processes only.
    for entry in std::fs::read_dir("/proc/self/fd")?.collect::<Vec<_>>() {
        if let Some(fd) =
            entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()).filter(|fd| *fd >= first as i32)
        {
            // SAFETY: as above; the directory that was listed is closed already, and closing it
            // again fails.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// A helper that has just been started.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Its name in the process list.
    pub name: String,
    /// To talk to it.
    pub stream: UnixStream,
    /// The process.
    pub child: Child,
}

/// Starts a helper. Its output and error go to the given descriptors, or to ours.
pub(crate) fn start(kind: &str, id: &str, output: Option<(OwnedFd, OwnedFd)>) -> Result<Helper, SandboxError> {
    if !READY.load(Ordering::Relaxed) {
        return Err(SandboxError::NoEntry);
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.chars().all(allowed) {
        return Err(SandboxError::BadId { id: id.to_owned() });
    }
    let name = format!("{kind}{id}");
    let (stream, theirs) = UnixStream::pair().map_err(SandboxError::io("make a socket pair"))?;
    let mut command = Command::new("/proc/self/exe");
    // A group of its own: Ctrl-C at the owner's terminal is for the owner, who then ends its
    // instances in order.
    command.arg0(&name).env_clear().process_group(0).stdin(OwnedFd::from(theirs));
    match output {
        Some((stdout, stderr)) => command.stdout(stdout).stderr(stderr),
        None => command.stdout(Stdio::null()).stderr(Stdio::inherit()),
    };
    let child = command
        .spawn()
        .map_err(SandboxError::io(format!("start {name} (this executable again, through /proc/self/exe)")))?;
    Ok(Helper { name, stream, child })
}
