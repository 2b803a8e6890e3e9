//! Time series: the metric points of jobs.

use rusqlite::{Connection, OptionalExtension, params};

use crate::points::value;
use crate::roll_ups::forget_until;
use crate::{Point, Sample, StoreError, Telemetry, summaries};

/// Points that one transaction deletes.
const DELETED_POINTS: usize = 20_000;

/// Points among which one of a certain host is looked for.
const NEAR_POINTS: usize = 64;

/// Which series to name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesQuery {
    /// Only this job's.
    pub job: Option<String>,
    /// Only of this metric.
    pub metric: Option<String>,
    /// Only those with a point at or after this time, in milliseconds since the epoch.
    pub active_since_ms: Option<u64>,
    /// Only those that come after this job and metric.
    pub after: Option<(String, String)>,
    /// Most names to return.
    pub limit: usize,
}

impl Telemetry {
    /// Names of training jobs' series that have points, as (job, metric), in that order. A name
    /// with a slash is no training job's.
    ///
    /// # Errors
    /// The storage's.
    pub fn series(&self, query: &SeriesQuery) -> Result<Vec<(String, String)>, StoreError> {
        let (job, metric) = query.after.as_ref().map(|(job, metric)| (job.as_str(), metric.as_str())).unzip();
        self.database.read(|connection| {
            let sql = "SELECT job, metric FROM series
                WHERE instr(job, '/') = 0 AND (?1 IS NULL OR job = ?1) AND (?2 IS NULL OR metric = ?2) AND (?3 IS NULL OR (job, metric) > (?3, \
                       ?4))
                AND (?5 IS NULL OR (SELECT max(at_ms) FROM point WHERE series = series.id) >= ?5) ORDER BY job, metric \
                       LIMIT ?6";
            let mut select = connection.prepare_cached(sql)?;
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let params = params![query.job, query.metric, job, metric, query.active_since_ms, limit];
            let found = select.query_map(params, |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The values of a job's metric that have a step from `from` to `to`, both inclusive, as (step,
    /// value): by step, then by time.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_steps(&self, job: &str, metric: &str, from: u64, to: u64) -> Result<Vec<(u64, f64)>, StoreError> {
        let bound = |step: u64| i64::try_from(step).unwrap_or(i64::MAX);
        self.database.read(|connection| {
            let sql = "SELECT step, value FROM step JOIN point USING (series, at_ms, position)
                WHERE series = (SELECT id FROM series WHERE job = ? AND metric = ?) AND step BETWEEN ? AND ? ORDER BY \
                       step, at_ms, position";
            let mut select = connection.prepare_cached(sql)?;
            let step = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, value(row, 1)?));
            let values = select.query_map(params![job, metric, bound(from), bound(to)], step)?;
            Ok(values.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The points of a series that have a step, by step, then by time: the first `most` of them.
    ///
    /// # Errors
    /// The storage's.
    pub fn step_samples(&self, job: &str, metric: &str, most: usize) -> Result<Vec<Sample>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT step, at_ms, value FROM step JOIN point USING (series, at_ms, position)
                WHERE series = (SELECT id FROM series WHERE job = ? AND metric = ?) ORDER BY step, at_ms, position LIMIT ?";
            let mut select = connection.prepare_cached(sql)?;
            let sample = |row: &rusqlite::Row<'_>| {
                Ok(Sample { step: row.get(0)?, at_ms: row.get(1)?, value: value(row, 2)? })
            };
            let limit = i64::try_from(most).unwrap_or(i64::MAX);
            Ok(select.query_map(params![job, metric, limit], sample)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Points of a job's metric from `from_ms` (inclusive) to `to_ms` (exclusive), by time; equal
    /// times in order of arrival.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_points(&self, job: &str, metric: &str, from_ms: u64, to_ms: u64) -> Result<Vec<Point>, StoreError> {
        let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        self.database.read(|connection| {
            let sql = "SELECT at_ms, value, host FROM point WHERE series = (SELECT id FROM series WHERE job = ? AND \
                       metric = ?)
                AND at_ms >= ? AND at_ms < ? ORDER BY at_ms, position";
            let mut select = connection.prepare_cached(sql)?;
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

    /// The shape of a metric in about `most` points (at least 2), first and last among them: the
    /// next points after evenly spaced times, all of the host that said the first one, where it has
    /// one soon after. It costs `most` look-ups of some points however long the series is, so it
    /// suits small pictures of many jobs.
    ///
    /// # Errors
    /// The storage's.
    pub fn sketch_points(&self, job: &str, metric: &str, most: u32) -> Result<Vec<Point>, StoreError> {
        self.database.read(|connection| {
            let first = "SELECT id, at_ms, host FROM series JOIN point ON series = id WHERE job = ? AND metric = ?
                ORDER BY at_ms, position LIMIT 1";
            let found = connection
                .prepare_cached(first)?
                .query_row(params![job, metric], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((series, first, host)): Option<(i64, u64, Option<u32>)> = found else { return Ok(Vec::new()) };
            let last = "SELECT at_ms FROM point WHERE series = ? ORDER BY at_ms DESC LIMIT 1";
            let last: u64 = connection.prepare_cached(last)?.query_row([series], |row| row.get(0))?;
            // Of one host among those near: another may have said millions between two of its own.
            let near = |order: &str| {
                format!(
                    "SELECT * FROM (SELECT at_ms, value, host, position FROM point WHERE series = ?1 AND at_ms >= ?2
                    ORDER BY at_ms {order}, position {order} LIMIT {NEAR_POINTS}) WHERE host IS ?3 LIMIT 1"
                )
            };
            let (mut next, mut end) =
                (connection.prepare_cached(&near("ASC"))?, connection.prepare_cached(&near("DESC"))?);
            let place = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(3)?, point(row)?));
            let gaps = u64::from(most.max(2)) - 1;
            let mut points: Vec<(u64, Point)> = Vec::new();
            for gap in 0..gaps {
                points.extend(
                    next.query_row(params![series, first + (last - first) * gap / gaps, host], place).optional()?,
                );
            }
            points.extend(end.query_row(params![series, first, host], place).optional()?);
            points.dedup_by_key(|(position, _)| *position);
            Ok(points.into_iter().map(|(_, point)| point).collect())
        })
    }

    /// Drops all points of a job.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_series(&self, job: &str) -> Result<(), StoreError> {
        let all: Vec<i64> = self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT id FROM series WHERE job = ?")?;
            Ok(select.query_map([job], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        })?;
        all.into_iter().try_for_each(|series| self.remove_points(series, u64::MAX))
    }

    /// Removes the older half of a job's points, of each metric.
    pub(crate) fn halve_series(&self, job: &str) -> Result<(), StoreError> {
        let all: Vec<(i64, u64)> = self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT id, points FROM series WHERE job = ?")?;
            Ok(select.query_map([job], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?)
        })?;
        for (series, points) in all {
            let middle: Option<u64> = self.database.read(|connection| {
                let middle = "SELECT at_ms FROM point WHERE series = ? ORDER BY at_ms LIMIT 1 OFFSET ?";
                Ok(connection
                    .prepare_cached(middle)?
                    .query_row(params![series, points / 2], |row| row.get(0))
                    .optional()?)
            })?;
            // Up to the middle one, so that few points of one time go, too.
            self.remove_points(series, middle.map_or(u64::MAX, |at_ms| at_ms + 1))?;
        }
        Ok(())
    }

    /// Removes the points of a series before this time, and the series with its last one. A full
    /// disk has no room for the log of one large transaction, so they are several.
    pub(crate) fn remove_points(&self, series: i64, before_ms: u64) -> Result<(), StoreError> {
        let before_ms = i64::try_from(before_ms).unwrap_or(i64::MAX);
        let some = |table: &str, key: &str| {
            format!(
                "DELETE FROM {table} WHERE (series, {key}) IN (SELECT series, {key} FROM {table} WHERE series = ? AND \
                 at_ms <= ? LIMIT {DELETED_POINTS})"
            )
        };
        // Points before a time; for the last millisecond that there is, all.
        let until = if before_ms == i64::MAX { before_ms } else { before_ms - 1 };
        let steps = some("step", "step, at_ms, position");
        while self.database.write(|tx| Ok(tx.prepare_cached(&steps)?.execute(params![series, until])?))? > 0 {}
        let points = some("point", "at_ms, position");
        let count = "UPDATE series SET points = max(points - ?2, 0) WHERE id = ?1";
        self.database.write(|tx| forget_until(tx, series, until))?;
        let remove = |tx: &Connection| {
            let removed = tx.prepare_cached(&points)?.execute(params![series, until])?;
            tx.prepare_cached(count)?.execute(params![series, removed])?;
            Ok(removed)
        };
        while self.database.write(remove)? > 0 {}
        self.database.write(|tx| {
            let delete = "DELETE FROM series WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM point WHERE series = ?1)";
            tx.prepare_cached(delete)?.execute([series])?;
            summaries::forget(tx, series)
        })
    }
}

#[cfg(test)]
impl Telemetry {
    /// How many points each of a job's metrics has.
    pub(crate) fn series_lengths(&self, job: &str) -> Result<Vec<(String, u64)>, StoreError> {
        self.database.read(|connection| {
            let mut select =
                connection.prepare_cached("SELECT metric, points FROM series WHERE job = ? ORDER BY metric")?;
            Ok(select.query_map([job], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?)
        })
    }
}

fn point(row: &rusqlite::Row<'_>) -> rusqlite::Result<Point> {
    Ok(Point { at_ms: row.get(0)?, value: value(row, 1)?, host: row.get(2)? })
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
        telemetry.append_points("other-kind/j", &[point("loss", 5, 7.0)]).unwrap();
        let values = |from, to| {
            telemetry.read_points("j", "loss", from, to).unwrap().iter().map(|p| p.value).collect::<Vec<_>>()
        };
        assert_eq!(values(0, 8), [1.0, 2.0, 3.0]);
        assert_eq!(values(4, 6), [2.0, 3.0]);
        assert!(values(8, u64::MAX)[0].is_nan());
        assert_eq!(telemetry.metrics("j").unwrap(), ["auc", "loss"]);
        assert_eq!(telemetry.series_lengths("j").unwrap(), [("auc".to_owned(), 1), ("loss".to_owned(), 4)]);
        let series = |query: &SeriesQuery| {
            let found = telemetry.series(&SeriesQuery { limit: 9, ..query.clone() }).unwrap();
            found.into_iter().map(|(job, metric)| format!("{job}/{metric}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(series(&SeriesQuery::default()), "j/auc j/loss k/loss");
        assert_eq!(series(&SeriesQuery { job: Some("j".to_owned()), ..SeriesQuery::default() }), "j/auc j/loss");
        assert_eq!(series(&SeriesQuery { metric: Some("loss".to_owned()), ..SeriesQuery::default() }), "j/loss k/loss");
        assert_eq!(
            series(&SeriesQuery { after: Some(("j".to_owned(), "auc".to_owned())), ..SeriesQuery::default() }),
            "j/loss k/loss"
        );
        assert_eq!(series(&SeriesQuery { active_since_ms: Some(5), ..SeriesQuery::default() }), "j/loss k/loss");
        assert_eq!(telemetry.series(&SeriesQuery { limit: 1, ..SeriesQuery::default() }).unwrap().len(), 1);
        telemetry.delete_series("j").unwrap();
        assert!(telemetry.metrics("j").unwrap().is_empty());
        assert_eq!(telemetry.read_points("k", "loss", 0, 9).unwrap().len(), 1);
    }

    #[test]
    fn points_with_steps_come_by_step() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let point = |at_ms, value| MetricPoint { metric: "loss".to_owned(), at_ms, value };
        let points = [point(9, 1.0), point(5, 2.0), point(5, f64::NAN), point(6, 4.0)];
        telemetry.append_steps("j", &points, &[Some(30), Some(10), Some(20), None], 1 << 20).unwrap();
        let steps = |most| {
            let samples = telemetry.step_samples("j", "loss", most).unwrap();
            samples.iter().map(|it| (it.step, it.at_ms, it.value.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(steps(9), [(10, 5, "2".to_owned()), (20, 5, "NaN".to_owned()), (30, 9, "1".to_owned())]);
        assert_eq!((steps(1).len(), telemetry.step_samples("j", "auc", 9).unwrap().len()), (1, 0));
    }

    #[test]
    fn a_sketch_has_both_ends_and_few_points() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let points: Vec<_> =
            (0..1000).map(|n| MetricPoint { metric: "loss".to_owned(), at_ms: 10 * n, value: n as f64 }).collect();
        telemetry.append_points("j", &points).unwrap();
        let values =
            |most| telemetry.sketch_points("j", "loss", most).unwrap().iter().map(|p| p.value).collect::<Vec<_>>();
        assert_eq!(values(2), [0.0, 999.0]);
        assert_eq!(values(4), [0.0, 333.0, 666.0, 999.0]);
        assert_eq!(values(2000).len(), 1000);
        telemetry.append_points("j", &[MetricPoint { metric: "loss".to_owned(), at_ms: 9990, value: 7.0 }]).unwrap();
        assert_eq!(values(2), [0.0, 7.0], "the last of those of one time");
        assert!(telemetry.sketch_points("j", "auc", 9).unwrap().is_empty());
    }

    #[test]
    fn points_know_their_host_and_a_sketch_is_of_one() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for (seq, host) in [(1, 2), (2, 1), (3, 2), (4, 1)] {
            let point = MetricPoint { metric: "loss".to_owned(), at_ms: 10 * seq, value: f64::from(host) };
            let report = crate::Ingest {
                attempt: "a".to_owned(),
                host,
                seq,
                job: "j".to_owned(),
                points: vec![point],
                ..crate::Ingest::default()
            };
            telemetry.ingest(&report).unwrap();
        }
        telemetry.append_points("j", &[MetricPoint { metric: "loss".to_owned(), at_ms: 99, value: 9.0 }]).unwrap();
        let hosts = |points: Vec<Point>| points.iter().map(|point| point.host).collect::<Vec<_>>();
        assert_eq!(
            hosts(telemetry.read_points("j", "loss", 0, 100).unwrap()),
            [Some(2), Some(1), Some(2), Some(1), None]
        );
        assert_eq!(hosts(telemetry.sketch_points("j", "loss", 9).unwrap()), [Some(2), Some(2)]);
    }

    #[test]
    fn a_sketch_costs_as_much_whatever_other_hosts_say() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let say = |host, seq, times: &[u64]| {
            let points = times
                .iter()
                .map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms: *at_ms, value: f64::from(host) })
                .collect();
            let attempt = "a".to_owned();
            telemetry
                .ingest(&crate::Ingest { attempt, host, seq, job: "j".to_owned(), points, ..crate::Ingest::default() })
                .unwrap();
        };
        say(1, 1, &[0, 100_000]);
        say(2, 1, &Vec::from_iter(1..100_000));
        let times =
            telemetry.sketch_points("j", "loss", 5).unwrap().iter().map(|point| point.at_ms).collect::<Vec<_>>();
        assert_eq!(times, [0, 100_000], "between them none is near");
    }

    #[test]
    fn the_older_half_of_a_jobs_points_goes() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let point = |metric: &str, at_ms| MetricPoint { metric: metric.to_owned(), at_ms, value: 0.5 };
        telemetry.append_points("j", &Vec::from_iter((0..1000).map(|at_ms| point("loss", at_ms)))).unwrap();
        telemetry.append_points("j", &[point("auc", 7)]).unwrap();
        telemetry.append_points("k", &[point("loss", 1)]).unwrap();
        telemetry.halve_series("j").unwrap();
        assert_eq!(telemetry.series_lengths("j").unwrap(), [("loss".to_owned(), 499)]);
        assert_eq!(telemetry.read_points("j", "loss", 0, 9999).unwrap()[0].at_ms, 501);
        assert_eq!(telemetry.series_lengths("k").unwrap().len(), 1);
        (0..20).for_each(|_| telemetry.halve_series("j").unwrap());
        assert!(telemetry.metrics("j").unwrap().is_empty(), "so it ends");
    }

    #[test]
    fn points_may_have_steps() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let point = |at_ms, value| MetricPoint { metric: "loss".to_owned(), at_ms, value };
        telemetry
            .append_steps("j", &[point(9, 0.3), point(7, 0.5), point(8, 0.4)], &[Some(2), Some(1), None], u64::MAX)
            .unwrap();
        telemetry.append_steps("j", &[point(9, 0.2), point(6, 0.1)], &[Some(2), Some(2)], u64::MAX).unwrap();
        assert_eq!(telemetry.read_steps("j", "loss", 0, u64::MAX).unwrap(), [(1, 0.5), (2, 0.1), (2, 0.3), (2, 0.2)]);
        assert_eq!(telemetry.read_steps("j", "loss", 1, 1).unwrap(), [(1, 0.5)]);
        assert_eq!(telemetry.read_points("j", "loss", 0, 99).unwrap().len(), 5);
        telemetry.delete_series("j").unwrap();
        telemetry.append_points("j", &[point(9, 0.3)]).unwrap();
        assert_eq!(telemetry.read_steps("j", "loss", 0, u64::MAX).unwrap(), []);
    }
}
