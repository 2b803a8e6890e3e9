//! Trials that begin with the checkpoint of another.
//!
//! A trial tells its value and saves its checkpoint at about the same time, but the value is here
//! within milliseconds, and the file is read when it has settled, a few hundred milliseconds later.
//! A copy that was started at once would begin where its origin was before, or anew.

use std::{thread, time::Duration, time::Instant};

use shoal_store::{ResourceKind, Rows, StoreError};

/// How long a copy waits for its origin's first checkpoint. One without would begin anew, and be
/// judged as if it had not.
pub(super) const FIRST: Duration = Duration::from_secs(4);
/// How long for one that is newer than the origin's last value, if there is an older one: a program
/// may save before it tells, or not every time.
pub(super) const NEWER: Duration = Duration::from_millis(1500);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Receipts that are read at once.
const PAGE: usize = 1000;

/// Whether a training job has a checkpoint that another can begin with. Waits a while for the first
/// one, and for one that was stored at `told_ms` or later, in milliseconds since the epoch.
///
/// # Errors
/// The storage's.
pub(super) fn has_checkpoint(rows: &dyn Rows, job: &str, told_ms: u64) -> Result<bool, StoreError> {
    let began = Instant::now();
    loop {
        // Before the look at its receipts: none comes after its end.
        let is_over = rows.resource(ResourceKind::TRAINING_JOB, job)?.is_none_or(|row| row.ended);
        let newest = newest(rows, job)?;
        let patience = if newest.is_some() { NEWER } else { FIRST };
        if is_over || newest.is_some_and(|at| at >= told_ms) || began.elapsed() >= patience {
            return Ok(newest.is_some());
        }
        thread::sleep(LOOK);
    }
}

/// When the last of its files was stored.
fn newest(rows: &dyn Rows, job: &str) -> Result<Option<u64>, StoreError> {
    let mut newest = None;
    let mut after = (String::new(), 0);
    loop {
        let page = rows.checkpoints(job, (&after.0, after.1), PAGE)?;
        newest = newest.max(page.iter().map(|row| row.saved_ms).max());
        match page.last() {
            Some(last) if page.len() == PAGE => after = (last.path.clone(), last.host),
            _ => return Ok(newest),
        }
    }
}
