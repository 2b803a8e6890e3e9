//! How many connections there are places for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the server has open for itself, at most: databases, agents, programs that it starts.
const OWN_FILES: u64 = 128;
/// A connection, and the object that is read or written on it.
const FILES_OF_A_CONNECTION: u64 = 2;
/// Connections at most: each costs some tens of kilobytes of memory.
pub(super) const MAX_CONNECTIONS: usize = 16_384;
/// Connections at least.
const LEAST_CONNECTIONS: usize = 8;

/// Connections for which there are files: running out of them would fail requests that were
/// admitted.
pub(super) fn places(files: u64) -> usize {
    let places = files.saturating_sub(OWN_FILES) / FILES_OF_A_CONNECTION;
    usize::try_from(places).unwrap_or(usize::MAX).clamp(LEAST_CONNECTIONS, MAX_CONNECTIONS)
}

/// How many files this process may have open, raised as far as it is allowed to.
pub(super) fn open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    current.unwrap_or(u64::from(u32::MAX))
}
