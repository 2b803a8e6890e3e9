//! The machine that the agent runs on.

use std::fs;
use std::io;

/// Its host name.
pub(crate) fn name() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned())
}
