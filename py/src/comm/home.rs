//! The process that something is of.

use std::process;

use shoal_comm::Error;

use super::error::wrong;

/// The process in which something was made. Its connections and threads are there, and not in a
/// process that was forked from that.
#[derive(Debug)]
pub(crate) struct Home(u32);

impl Home {
    /// This process.
    pub(crate) fn new() -> Self {
        Self(process::id())
    }

    pub(crate) fn is_here(&self) -> bool {
        self.0 == process::id()
    }

    /// Refuses `what` in a forked process.
    pub(crate) fn check(&self, what: &str) -> Result<(), Error> {
        if self.is_here() {
            return Ok(());
        }
        Err(wrong(format!("this process was forked from the one that has the {what}; use it there")))
    }
}
