//! What a target has.

use crate::BackupError;
use crate::manifest::{Head, Heads, Skipped, damaged, ensure_target};
use crate::run::Run;
use crate::target::Target;

/// All backups of a target, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that are whole.
    pub whole: Vec<Listed>,
    /// Those that cannot be used.
    pub skipped: Vec<Skipped>,
}

/// A backup, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The backup.
    pub head: Head,
    /// Ticks that follow it, up to one that is missing or damaged.
    pub ticks: u64,
    /// Of which moment it is with them.
    pub until_ms: u64,
    /// What is wrong with the ticks.
    pub damage: Option<String>,
}

/// All backups.
///
/// # Errors
/// The target's.
pub fn list(target: &dyn Target) -> Result<Listing, BackupError> {
    ensure_target(target)?;
    let Heads { whole, skipped } = Head::all(target)?;
    let mut listing = Listing { whole: Vec::new(), skipped };
    for head in whole {
        let listed = with_ticks(target, head)?;
        // A thinning at the same time removes ticks after the head that they follow.
        if listed.damage.is_none() || listed.head.is_there(target)? {
            listing.whole.push(listed);
        }
    }
    Ok(listing)
}

fn with_ticks(target: &dyn Target, head: Head) -> Result<Listed, BackupError> {
    let until_ms = head.taken_ms;
    let Some((run, number)) = head.tick.clone() else {
        return Ok(Listed { head, ticks: 0, until_ms, damage: None });
    };
    let ticks = Run::after(target, &run, number)?;
    let missing = ticks.missing.map(|number| damaged(target, &Run::name(&run, number), GAP).to_string());
    let mut listed = Listed { head, ticks: ticks.last - number, until_ms, damage: missing };
    if ticks.last > number {
        match Run::read(target, &Run::name(&run, ticks.last)) {
            Ok(tick) => listed.until_ms = tick.about.taken_ms,
            Err(error @ BackupError::Damaged { .. }) => {
                (listed.ticks, listed.damage) = (listed.ticks - 1, Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// Of a tick below a later one.
pub(crate) const GAP: &str = "it is missing, and later changes are there";
