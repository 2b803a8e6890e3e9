//! Time series: the metric points of jobs.

use rusqlite::params;

use crate::{StoreError, Telemetry};

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The value.
    pub value: f64,
}

impl Telemetry {
    /// Points of a job's metric from `from_ms` (inclusive) to `to_ms` (exclusive), by time; equal times in order of arrival.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_points(&self, job: &str, metric: &str, from_ms: u64, to_ms: u64) -> Result<Vec<Point>, StoreError> {
        let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        self.database.read(|connection| {
            let sql = "SELECT at_ms, value FROM point WHERE series = (SELECT id FROM series WHERE job = ? AND metric = ?)
                AND at_ms >= ? AND at_ms < ? ORDER BY at_ms, position";
            let mut select = connection.prepare_cached(sql)?;
            // SQLite keeps a value that is not a number as NULL.
            let point =
                |row: &rusqlite::Row<'_>| Ok(Point { at_ms: row.get(0)?, value: row.get::<_, Option<f64>>(1)?.unwrap_or(f64::NAN) });
            let points = select.query_map(params![job, metric, time(from_ms), time(to_ms)], point)?;
            Ok(points.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Names of a job's metrics that have points, sorted.
    ///
    /// # Errors
    /// The storage's.
    pub fn metrics(&self, job: &str) -> Result<Vec<String>, StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT metric FROM series WHERE job = ? ORDER BY metric")?;
            Ok(select.query_map([job], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Drops all points of a job.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_series(&self, job: &str) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute("DELETE FROM point WHERE series IN (SELECT id FROM series WHERE job = ?)", [job])?;
            tx.execute("DELETE FROM series WHERE job = ?", [job])?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricPoint;

    #[test]
    fn points_come_by_time_and_arrival() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let point = |metric: &str, at_ms, value| MetricPoint { metric: metric.to_owned(), at_ms, value };
        telemetry.append_points("j", &[point("loss", 5, 2.0), point("loss", 3, 1.0), point("auc", 3, 9.0)]).unwrap();
        telemetry.append_points("j", &[point("loss", 5, 3.0), point("loss", 8, f64::NAN)]).unwrap();
        telemetry.append_points("k", &[point("loss", 5, 7.0)]).unwrap();
        let values = |from, to| telemetry.read_points("j", "loss", from, to).unwrap().iter().map(|p| p.value).collect::<Vec<_>>();
        assert_eq!(values(0, 8), [1.0, 2.0, 3.0]);
        assert_eq!(values(4, 6), [2.0, 3.0]);
        assert!(values(8, u64::MAX)[0].is_nan());
        assert_eq!(telemetry.metrics("j").unwrap(), ["auc", "loss"]);
        telemetry.delete_series("j").unwrap();
        assert!(telemetry.metrics("j").unwrap().is_empty());
        assert_eq!(telemetry.read_points("k", "loss", 0, 9).unwrap().len(), 1);
    }
}
