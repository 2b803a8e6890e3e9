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
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(300), stall: Stall::default() }
    }
}
