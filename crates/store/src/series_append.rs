//! The ends of series, where points are appended.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::point_quota::fitting;
use crate::roll_ups::forget_after;
use crate::summaries::summarise;
use crate::{MetricPoint, StoreError, Telemetry};

impl Telemetry {
    /// Appends points that come from no report, and so from no host that is known.
    ///
    /// # Errors
    /// The storage's.
    pub fn append_points(&self, job: &str, points: &[MetricPoint]) -> Result<(), StoreError> {
        self.database.write_beside_reserve(|tx| insert_points(tx, job, None, points))
    }

    /// Appends points that come from no report, each with the step (iteration) that it is of, if
    /// any; as many as the job's quota permits. Returns of each whether it was stored.
    ///
    /// # Errors
    /// The storage's.
    pub fn append_steps(
        &self,
        job: &str,
        points: &[MetricPoint],
        steps: &[Option<u32>],
        quota_bytes: u64,
    ) -> Result<Vec<bool>, StoreError> {
        self.database.write_beside_reserve(|tx| {
            let fits = fitting(tx, job, quota_bytes, points)?;
            // The point that went in last has the position that its series counts.
            let insert =
                "INSERT INTO step (series, step, at_ms, position) SELECT id, ?, ?, points FROM series WHERE job = ? \
                 AND metric = ?";
            let mut insert = tx.prepare_cached(insert)?;
            for ((point, step), _) in points.iter().zip(steps).zip(&fits).filter(|(_, fits)| **fits) {
                insert_points(tx, job, None, [point])?;
                if let Some(step) = step {
                    insert.execute(params![step, point.at_ms, job, point.metric])?;
                }
            }
            Ok(fits)
        })
    }
}

/// Appends points of a host, if it is known.
pub(crate) fn insert_points<'a>(
    connection: &Connection,
    job: &str,
    host: Option<u32>,
    points: impl IntoIterator<Item = &'a MetricPoint>,
) -> Result<(), StoreError> {
    // A metric's points stand together in its series: one step for the metric, then one for each
    // point.
    let mut by_metric: BTreeMap<&str, Vec<&MetricPoint>> = BTreeMap::new();
    for point in points {
        by_metric.entry(&point.metric).or_default().push(point);
    }
    let count = "INSERT INTO series (job, metric, points) VALUES (?1, ?2, ?3)
        ON CONFLICT (job, metric) DO UPDATE SET points = points + ?3 RETURNING id, points, rolled_ms";
    let mut count = connection.prepare_cached(count)?;
    let mut insert =
        connection.prepare_cached("INSERT INTO point (series, at_ms, position, value, host) VALUES (?, ?, ?, ?, ?)")?;
    for (metric, points) in by_metric {
        let row = params![job, metric, points.len()];
        let (series, last, rolled_ms): (i64, u64, Option<u64>) =
            count.query_row(row, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if let Some(earliest) = points.iter().map(|point| point.at_ms).min().filter(|at_ms| Some(*at_ms) < rolled_ms) {
            forget_after(connection, series, earliest)?;
        }
        let first = last + 1 - points.len() as u64;
        for (position, point) in (first..).zip(&points) {
            insert.execute(params![series, point.at_ms, position, point.value, host])?;
        }
        summarise(connection, series, &points)?;
    }
    Ok(())
}
