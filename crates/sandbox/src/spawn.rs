//! Starts helpers: this executable again under another name, by which [`crate::reexec_entry`] knows
//! them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::SandboxError;

/// Before the id, in the process list, of an instance's helper, which becomes its process 1.
pub(crate) const INSTANCE: &str = "shoal-init:";
/// Before the id, in the process list, of a network's helper.
pub(crate) const NETWORK: &str = "shoal-net:";

/// Whether `main` has the entry: without it a helper would be another run of somebody's `main`.
static READY: AtomicBool = AtomicBool::new(false);

/// From now on helpers can be started.
pub(crate) fn allow() {
    READY.store(true, Ordering::Relaxed);
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
