//! The file of what instances report in bulk: log lines and metric points.
//!
//! `telemetry.db` holds the newest lines of each stream as blocks (`log_block.rs`), in the
//! transaction of the report's number; a stream's older blocks are compressed in files of their own
//! (`log_segments.rs`, `log_sealing.rs`), which the database has the places of.

use std::path::Path;
use std::sync::Arc;

use crate::StoreError;
use crate::log_sealing::{self, Sealer};
use crate::log_segments::Segments;
use crate::sqlite::Database;
use crate::telemetry_schema::SCHEMA;

/// Logs, series and acknowledgements of a data directory: `telemetry.db`. All methods may be called
/// from many threads at once.
#[derive(Debug)]
pub struct Telemetry {
    pub(crate) database: Arc<Database>,
    pub(crate) segments: Segments,
    pub(crate) sealer: Sealer,
}

impl Telemetry {
    /// Opens the file, creating it when missing; see [`crate::DataDir::telemetry_path`].
    ///
    /// # Errors
    /// [`StoreError::Format`] for another version's file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let segments = Segments::beside(path)?;
        let database = Arc::new(Database::open(path, &SCHEMA)?);
        log_sealing::sweep(&database, &segments)?;
        let sealer = Sealer::new(&database, &segments);
        Ok(Self { database, segments, sealer })
    }

    /// Why nothing can be stored any more until the file is opened anew, if so.
    pub fn failure(&self) -> Option<&str> {
        self.database.failure()
    }
}
