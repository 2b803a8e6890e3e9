//! What the points of a series come to: count, extremes, mean, deviation and the last one. Each
//! batch of points is added to it in their own transaction, so reading it costs one row however
//! long the series is, and what retention removes stays counted.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::points::value;
use crate::{MetricPoint, StoreError, Telemetry};

/// The summary of a metric's points that are numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The metric's name.
    pub metric: String,
    /// Number of points, at least 1.
    pub points: u64,
    /// Smallest value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
    /// Mean of the values.
    pub mean: f64,
    /// Standard deviation of the values, as of a whole population.
    pub deviation: f64,
    /// The latest value; of those of one time, the one that arrived last.
    pub last: f64,
    /// Its time, in milliseconds since the epoch.
    pub last_ms: u64,
}

/// A summary that more points can be added to: Welford's mean and sum of squared differences.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moments {
    points: u64,
    low: f64,
    high: f64,
    mean: f64,
    squares: f64,
    last_ms: u64,
    last: f64,
}

impl Moments {
    fn of(point: &MetricPoint) -> Self {
        let MetricPoint { at_ms, value, .. } = *point;
        Self { points: 1, low: value, high: value, mean: value, squares: 0.0, last_ms: at_ms, last: value }
    }

    /// The same with points that arrived later.
    fn join(self, later: Self) -> Self {
        let points = self.points + later.points;
        let difference = later.mean - self.mean;
        let share = later.points as f64 / points as f64;
        let (last_ms, last) =
            if later.last_ms >= self.last_ms { (later.last_ms, later.last) } else { (self.last_ms, self.last) };
        Self {
            points,
            low: self.low.min(later.low),
            high: self.high.max(later.high),
            mean: self.mean + difference * share,
            squares: self.squares + later.squares + difference * difference * self.points as f64 * share,
            last_ms,
            last,
        }
    }

    /// From seven columns.
    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            points: row.get(first)?,
            low: value(row, first + 1)?,
            high: value(row, first + 2)?,
            mean: value(row, first + 3)?,
            squares: value(row, first + 4)?,
            last_ms: row.get(first + 5)?,
            last: value(row, first + 6)?,
        })
    }
}

/// Format 8: series have summaries. Those of earlier ones are computed of the points that are left.
pub(crate) const TABLE: &str = "
    CREATE TABLE summary (
        series INTEGER PRIMARY KEY, points INTEGER NOT NULL, low REAL, high REAL, mean REAL, squares REAL,
        last_ms INTEGER NOT NULL, last REAL);
    INSERT INTO summary SELECT series, count(*), min(value), max(value), avg(value), 0, max(at_ms), NULL
        FROM point WHERE value IS NOT NULL GROUP BY series;
    UPDATE summary SET
        squares = (SELECT total((value - mean) * (value - mean)) FROM point WHERE point.series = summary.series AND \
                                value IS NOT NULL),
        last = (SELECT value FROM point WHERE point.series = summary.series AND value IS NOT NULL
            ORDER BY at_ms DESC, position DESC LIMIT 1);
    ";

/// Adds points, in the order of their arrival, to the summary of their series.
pub(crate) fn summarise(connection: &Connection, series: i64, points: &[&MetricPoint]) -> Result<(), StoreError> {
    let numbers = points.iter().filter(|point| point.value.is_finite());
    let Some(new) = numbers.map(|point| Moments::of(point)).reduce(Moments::join) else { return Ok(()) };
    let select = "SELECT points, low, high, mean, squares, last_ms, last FROM summary WHERE series = ?";
    let present = connection.prepare_cached(select)?.query_row([series], |row| Moments::read(row, 0)).optional()?;
    let Moments { points, low, high, mean, squares, last_ms, last } = present.map_or(new, |old| old.join(new));
    let put = "INSERT OR REPLACE INTO summary (series, points, low, high, mean, squares, last_ms, last) VALUES (?, ?, \
               ?, ?, ?, ?, ?, ?)";
    connection.prepare_cached(put)?.execute(params![series, points, low, high, mean, squares, last_ms, last])?;
    Ok(())
}

/// Removes the summary of a series that is not there any more.
pub(crate) fn forget(connection: &Connection, series: i64) -> Result<(), StoreError> {
    let delete = "DELETE FROM summary WHERE series = ?1 AND NOT EXISTS (SELECT 1 FROM series WHERE id = ?1)";
    connection.prepare_cached(delete)?.execute([series])?;
    Ok(())
}

impl Telemetry {
    /// Summaries of a job's metrics that have numbers, by name.
    ///
    /// # Errors
    /// The storage's.
    pub fn summaries(&self, job: &str) -> Result<Vec<Summary>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT metric, summary.points, low, high, mean, squares, last_ms, last
                FROM series JOIN summary ON series = id WHERE job = ? ORDER BY metric";
            let summary = |row: &Row<'_>| {
                let Moments { points, low, high, mean, squares, last_ms, last } = Moments::read(row, 1)?;
                let deviation = (squares / points as f64).max(0.0).sqrt();
                Ok(Summary { metric: row.get(0)?, points, low, high, mean, deviation, last, last_ms })
            };
            let mut select = connection.prepare_cached(sql)?;
            Ok(select.query_map([job], summary)?.collect::<rusqlite::Result<_>>()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(metric: &str, at_ms: u64, value: f64) -> MetricPoint {
        MetricPoint { metric: metric.to_owned(), at_ms, value }
    }

    /// The summary, computed at once.
    fn at_once(metric: &str, points: &[MetricPoint]) -> Summary {
        let values: Vec<f64> =
            points.iter().map(|point| point.value).filter(|value| value.is_finite()).collect::<Vec<_>>();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let last = points.iter().filter(|point| point.value.is_finite()).max_by_key(|point| point.at_ms).unwrap();
        Summary {
            metric: metric.to_owned(),
            points: values.len() as u64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
            deviation: variance.sqrt(),
            last: last.value,
            last_ms: last.at_ms,
        }
    }

    fn assert_close(found: &Summary, expected: &Summary) {
        let close = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs().max(1.0);
        assert!(
            close(found.mean, expected.mean) && close(found.deviation, expected.deviation),
            "{found:?} is not {expected:?}"
        );
        let exact = Summary { mean: expected.mean, deviation: expected.deviation, ..found.clone() };
        assert_eq!(exact, *expected);
    }

    #[test]
    fn batches_come_to_what_all_points_come_to() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        // A large mean and small differences, out of order, with gaps.
        let points: Vec<_> = (0..1000_u64)
            .map(|n| {
                let value = if n % 97 == 5 { f64::NAN } else { 1e6 + ((n * 7919) % 101) as f64 / 10.0 };
                point("loss", (n * 37) % 1000, value)
            })
            .collect();
        for batch in points.chunks(13) {
            telemetry.append_points("j", batch).unwrap();
        }
        telemetry.append_points("j", &[point("nothing", 1, f64::NAN)]).unwrap();
        telemetry.append_points("k", &[point("loss", 1, 7.0)]).unwrap();
        let found = telemetry.summaries("j").unwrap();
        assert_eq!(found.len(), 1);
        assert_close(&found[0], &at_once("loss", &points));
        // The summary counts what was there; the last of one time is the one that came last.
        telemetry.halve_series("j").unwrap();
        telemetry.append_points("j", &[point("loss", 999, 3.0), point("loss", 999, 4.0)]).unwrap();
        let again = &telemetry.summaries("j").unwrap()[0];
        assert_eq!((again.points, again.low, again.last), (found[0].points + 2, 3.0, 4.0));
        telemetry.delete_series("j").unwrap();
        assert_eq!(telemetry.summaries("j").unwrap(), []);
        telemetry.append_points("j", &[point("loss", 1, 7.0)]).unwrap();
        assert_close(&telemetry.summaries("j").unwrap()[0], &at_once("loss", &[point("loss", 1, 7.0)]));
    }
}
