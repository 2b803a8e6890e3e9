//! What a group's user may set.

use std::time::Duration;

use crate::guard::Stall;

/// What a group's user may set.
#[derive(Debug)]
pub(crate) struct Options {
    /// How long an operation may wait that has no deadline of its own.
    pub(crate) deadline: Duration,
    /// When and to whom it is said that ranks have not come.
    pub(crate) stall: Stall,
    /// Whether what an operation in place overwrites is put back when it fails.
    pub(crate) keep_input: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(300), stall: Stall::default(), keep_input: false }
    }
}
