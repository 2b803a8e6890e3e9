//! Points of series: as they are reported, as they are stored, and as they are counted by host.

use rusqlite::Row;

/// A value of a metric of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricPoint {
    /// The metric's name.
    pub metric: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The value.
    pub value: f64,
}

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The value.
    pub value: f64,
    /// The instance that said it; `None` when a program put it itself, and for points of a version
    /// that kept no host.
    pub host: Option<u32>,
}

/// A point of a host's series and its number there, from 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The number.
    pub step: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The value.
    pub value: f64,
}

/// The value in this column.
pub(crate) fn value(row: &Row<'_>, column: usize) -> rusqlite::Result<f64> {
    // SQLite keeps a value that is not a number as NULL.
    Ok(row.get::<_, Option<f64>>(column)?.unwrap_or(f64::NAN))
}
