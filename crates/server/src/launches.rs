//! Launches between their preparation and their start.

use crate::attempts::Plan;

/// A launch whose channels are ready.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// For the job's log.
    pub(crate) notes: Vec<String>,
}
