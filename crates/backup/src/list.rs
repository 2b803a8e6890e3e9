//! What a target has.

use crate::BackupError;
use crate::manifest::{Head, ensure_target};
use crate::run::Run;
use crate::target::Target;

/// A backup, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The backup.
    pub head: Head,
    /// Ticks that follow it.
    pub ticks: u64,
    /// Of which moment it is with them.
    pub until_ms: u64,
}

/// All whole backups, the oldest first.
///
/// # Errors
/// The target's.
pub fn list(target: &dyn Target) -> Result<Vec<Listed>, BackupError> {
    ensure_target(target)?;
    let listed = Head::all(target)?.into_iter().map(|head| {
        let Some((run, number)) = head.tick.clone() else {
            return Ok(Listed { ticks: 0, until_ms: head.taken_ms, head });
        };
        let ticks = Run::after(target, &run, number)?;
        let until_ms = match ticks.last() {
            Some(last) => Run::read(target, &Run::name(&run, *last))?.about.taken_ms,
            None => head.taken_ms,
        };
        Ok(Listed { ticks: ticks.len() as u64, until_ms, head })
    });
    listed.collect()
}
