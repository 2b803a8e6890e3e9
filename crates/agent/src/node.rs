//! The machine that the agent runs on.

use std::env;
use std::fs;
use std::io;

/// As its launcher names it, where the host name is not the node's (a pod has one of its own); else
/// the host name.
pub(crate) fn name() -> io::Result<String> {
    if let Ok(name) = env::var("SHOAL_NODE") {
        return Ok(name);
    }
    Ok(fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned())
}
