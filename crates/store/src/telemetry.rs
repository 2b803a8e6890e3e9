//! What instances report in bulk: log lines and metric points, each report at most once.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreError;
use crate::clock::now_ms;
use crate::sqlite::{Database, Schema};

const SCHEMA: Schema = Schema {
    formats: &[
        "
    CREATE TABLE ack (attempt TEXT NOT NULL, host INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (attempt, host)) WITHOUT ROWID;
    CREATE TABLE stream (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, lines INTEGER NOT NULL DEFAULT 0,
        first_ms INTEGER, last_ms INTEGER, ingested_ms INTEGER);
    CREATE TABLE line (
        stream INTEGER NOT NULL, position INTEGER NOT NULL, at_ms INTEGER NOT NULL, ingested_ms INTEGER NOT NULL,
        text TEXT NOT NULL, PRIMARY KEY (stream, position)) WITHOUT ROWID;
    CREATE TABLE series (
        id INTEGER PRIMARY KEY, job TEXT NOT NULL, metric TEXT NOT NULL, points INTEGER NOT NULL DEFAULT 0, UNIQUE (job, metric));
    CREATE TABLE point (
        series INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL, value REAL,
        PRIMARY KEY (series, at_ms, position)) WITHOUT ROWID;
    ",
        "
    CREATE TABLE step (
        series INTEGER NOT NULL, step INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (series, step, at_ms, position)) WITHOUT ROWID;
    ",
        crate::warm_pools::TABLES,
    ],
};

/// Logs, series and acknowledgements of a data directory: `telemetry.db`. All methods may be called from many threads at once.
#[derive(Debug)]
pub struct Telemetry {
    pub(crate) database: Database,
}

/// Lines for the end of a log stream, which is made when it does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogLines {
    /// Its name.
    pub stream: String,
    /// When (milliseconds since the epoch) and what.
    pub lines: Vec<(u64, String)>,
}

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

/// A numbered report of an instance, with whatever of it is kept here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ingest {
    /// Attempt that the instance serves.
    pub attempt: String,
    /// Its host number.
    pub host: u32,
    /// The report's number, rising per attempt and host.
    pub seq: u64,
    /// Log lines.
    pub logs: Vec<LogLines>,
    /// Job that the points belong to.
    pub job: String,
    /// Metric points.
    pub points: Vec<MetricPoint>,
}

impl Telemetry {
    /// Opens the file, creating it when missing; see [`crate::DataDir::telemetry_path`].
    ///
    /// # Errors
    /// [`StoreError::Format`] for another version's file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Database::open(path, &SCHEMA)? })
    }

    /// Why nothing can be stored any more until the file is opened anew, if so.
    pub fn failure(&self) -> Option<&str> {
        self.database.failure()
    }

    /// Stores a report and its number in one transaction, unless that number or a higher one is stored already. Returns the
    /// highest stored number of its attempt and host.
    ///
    /// # Errors
    /// [`StoreError::Full`] and others; then nothing of the report is stored.
    pub fn ingest(&self, report: &Ingest) -> Result<u64, StoreError> {
        self.database.write(|tx| {
            let acked = acked(tx, &report.attempt, report.host)?;
            if report.seq <= acked {
                return Ok(acked);
            }
            insert_lines(tx, &report.logs)?;
            insert_points(tx, &report.job, &report.points)?;
            let upsert = "INSERT OR REPLACE INTO ack (attempt, host, seq) VALUES (?, ?, ?)";
            tx.prepare_cached(upsert)?.execute(params![report.attempt, report.host, report.seq])?;
            Ok(report.seq)
        })
    }

    /// The highest stored report number of an instance; 0 if none is.
    ///
    /// # Errors
    /// The storage's.
    pub fn acked(&self, attempt: &str, host: u32) -> Result<u64, StoreError> {
        self.database.read(|connection| acked(connection, attempt, host))
    }

    /// Drops the report numbers of an attempt that will report no more. Its lines and points stay.
    ///
    /// # Errors
    /// The storage's.
    pub fn forget(&self, attempt: &str) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute("DELETE FROM ack WHERE attempt = ?", [attempt])?;
            Ok(())
        })
    }

    /// Appends lines that come from no report.
    ///
    /// # Errors
    /// The storage's.
    pub fn append_logs(&self, logs: &[LogLines]) -> Result<(), StoreError> {
        self.database.write(|tx| insert_lines(tx, logs))
    }

    /// Appends points that come from no report.
    ///
    /// # Errors
    /// The storage's.
    pub fn append_points(&self, job: &str, points: &[MetricPoint]) -> Result<(), StoreError> {
        self.database.write(|tx| insert_points(tx, job, points))
    }
}

fn acked(connection: &Connection, attempt: &str, host: u32) -> Result<u64, StoreError> {
    let mut select = connection.prepare_cached("SELECT seq FROM ack WHERE attempt = ? AND host = ?")?;
    Ok(select.query_row(params![attempt, host], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn insert_lines(connection: &Connection, logs: &[LogLines]) -> Result<(), StoreError> {
    let now = now_ms();
    let mut make = connection.prepare_cached("INSERT INTO stream (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING")?;
    let mut find = connection.prepare_cached("SELECT id, lines FROM stream WHERE name = ?")?;
    let mut insert = connection.prepare_cached("INSERT INTO line (stream, position, at_ms, ingested_ms, text) VALUES (?, ?, ?, ?, ?)")?;
    let mut update = connection.prepare_cached(
        "UPDATE stream SET lines = ?2, first_ms = min(coalesce(first_ms, ?3), ?3), last_ms = max(coalesce(last_ms, ?4), ?4), ingested_ms = ?5
         WHERE id = ?1",
    )?;
    for LogLines { stream, lines } in logs {
        make.execute(params![stream, now])?;
        let (id, mut position): (i64, u64) = find.query_row([stream], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (at_ms, text) in lines {
            insert.execute(params![id, position, at_ms, now, text])?;
            position += 1;
        }
        let times = || lines.iter().map(|(at_ms, _)| at_ms);
        if let (Some(first), Some(last)) = (times().min(), times().max()) {
            update.execute(params![id, position, first, last, now])?;
        }
    }
    Ok(())
}

pub(crate) fn insert_points(connection: &Connection, job: &str, points: &[MetricPoint]) -> Result<(), StoreError> {
    // A metric's points stand together in its series: one step for the metric, then one for each point.
    let mut by_metric: BTreeMap<&str, Vec<&MetricPoint>> = BTreeMap::new();
    for point in points {
        by_metric.entry(&point.metric).or_default().push(point);
    }
    let count = "INSERT INTO series (job, metric, points) VALUES (?1, ?2, ?3)
        ON CONFLICT (job, metric) DO UPDATE SET points = points + ?3 RETURNING id, points";
    let mut count = connection.prepare_cached(count)?;
    let mut insert = connection.prepare_cached("INSERT INTO point (series, at_ms, position, value) VALUES (?, ?, ?, ?)")?;
    for (metric, points) in by_metric {
        let (series, last): (i64, u64) = count.query_row(params![job, metric, points.len()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let first = last + 1 - points.len() as u64;
        for (position, point) in (first..).zip(points) {
            insert.execute(params![series, point.at_ms, position, point.value])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogQuery, Point};

    #[test]
    fn a_report_counts_once() {
        let temp = tempfile::tempdir().unwrap();
        let open = || Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let telemetry = open();
        let report = |host, seq| Ingest {
            attempt: "u-1".to_owned(),
            host,
            seq,
            logs: vec![LogLines { stream: format!("job/algo-{host}"), lines: vec![(seq, format!("line {seq}"))] }],
            job: "job".to_owned(),
            points: vec![MetricPoint { metric: "loss".to_owned(), at_ms: seq, value: 0.5 }],
        };
        // Host, number, highest stored after it.
        for (host, seq, expected) in [(1, 1, 1), (1, 2, 2), (1, 2, 2), (1, 1, 2), (2, 1, 1), (1, 3, 3)] {
            assert_eq!(telemetry.ingest(&report(host, seq)).unwrap(), expected, "{host} {seq}");
        }
        drop(telemetry);
        let telemetry = open();
        assert_eq!([1, 2, 3].map(|host| telemetry.acked("u-1", host).unwrap()), [3, 1, 0]);
        let query = LogQuery { stream: "job/algo-1".to_owned(), ..LogQuery::default() };
        let lines: Vec<_> = telemetry.read_logs(&query).unwrap().unwrap().events.into_iter().map(|event| event.text).collect();
        assert_eq!(lines, ["line 1", "line 2", "line 3"]);
        let at = telemetry.read_points("job", "loss", 0, 9).unwrap().iter().map(|point: &Point| point.at_ms).collect::<Vec<_>>();
        assert_eq!(at, [1, 1, 2, 3]);
        telemetry.forget("u-1").unwrap();
        assert_eq!(telemetry.acked("u-1", 1).unwrap(), 0);
    }
}
