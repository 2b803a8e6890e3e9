//! Child processes of this machine.

/// The launcher of this machine.
#[derive(Debug, Default)]
pub struct Local {}
