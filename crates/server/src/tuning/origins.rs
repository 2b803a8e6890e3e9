//! Trials that begin with the checkpoint of another.

use std::{thread, time::Duration, time::Instant};

use shoal_store::{Rows, StoreError};

/// How long a suggestion waits for a checkpoint: it is on its way when the value is known that was told after it.
pub(super) const ON_ITS_WAY: Duration = Duration::from_secs(4);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Whether a training job has a checkpoint that another can begin with; waits for its first one until then. One without would have the other begin
/// anew, and be judged as if it had not.
///
/// # Errors
/// The storage's.
pub(super) fn has_checkpoint(rows: &dyn Rows, job: &str, until: Instant) -> Result<bool, StoreError> {
    loop {
        // Before the look at its receipts: none comes after its end.
        let is_over = rows.job(job)?.is_none_or(|row| row.ended);
        if !rows.checkpoints(job, ("", 0), 1)?.is_empty() {
            return Ok(true);
        }
        if is_over || Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
}
