//! Log streams: which there are.

use std::collections::BTreeMap;

use rusqlite::params;

use crate::{StoreError, Telemetry};

/// Log group of training jobs.
pub const TRAINING_JOBS: &str = "/aws/sagemaker/TrainingJobs";

/// A log stream. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// When its first line came in.
    pub created_ms: u64,
    /// Number of lines.
    pub lines: u64,
    /// Time of its earliest line; `None` if it has none.
    pub first_ms: Option<u64>,
    /// Bytes of its lines, each with [`crate::LINE_OVERHEAD`] more.
    pub bytes: u64,
    /// Time of its latest line.
    pub last_ms: Option<u64>,
    /// When its last line came in.
    pub ingested_ms: Option<u64>,
}

impl Telemetry {
    /// At most `limit` streams of training jobs whose name starts with `prefix` and comes after
    /// `after`, by name.
    ///
    /// # Errors
    /// The storage's.
    pub fn streams(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<StreamInfo>, StoreError> {
        self.streams_of(TRAINING_JOBS, prefix, after, limit)
    }

    /// Bytes of the lines of all training jobs, by job.
    ///
    /// # Errors
    /// The storage's.
    pub fn log_bytes_by_job(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT name, bytes FROM log_stream WHERE log_group = ?")?;
            let mut rows = select.query(params![TRAINING_JOBS])?;
            let mut jobs = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                let bytes = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
                let job = name.split_once('/').map_or(name, |(job, _)| job);
                match jobs.get_mut(job) {
                    Some(sum) => *sum += bytes,
                    None => drop(jobs.insert(job.to_owned(), bytes)),
                }
            }
            Ok(jobs)
        })
    }

    /// The same of another log group.
    ///
    /// # Errors
    /// The storage's.
    pub fn streams_of(
        &self,
        group: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StreamInfo>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT name, created_ms, lines, first_ms, last_ms, ingested_ms, bytes FROM log_stream
                WHERE log_group = ? AND name >= ? AND name > ? ORDER BY name LIMIT ?";
            let mut select = connection.prepare_cached(sql)?;
            let mut rows = select.query(params![
                group,
                prefix,
                after.unwrap_or_default(),
                i64::try_from(limit).unwrap_or(i64::MAX)
            ])?;
            let mut streams = Vec::new();
            while let Some(row) = rows.next()? {
                let name: String = row.get(0)?;
                if !name.starts_with(prefix) {
                    break;
                }
                streams.push(StreamInfo {
                    name,
                    created_ms: row.get(1)?,
                    lines: row.get(2)?,
                    first_ms: row.get(3)?,
                    last_ms: row.get(4)?,
                    ingested_ms: row.get(5)?,
                    bytes: row.get(6)?,
                });
            }
            Ok(streams)
        })
    }
}
