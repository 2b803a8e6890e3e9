//! Reports of instances: their log lines, metric points and system metrics are stored at most once,
//! lines and points within the job's quota.

use rusqlite::{Connection, OptionalExtension, params};

use crate::clock::now_ms;
use crate::log_append::{Stream, borrowed};
use crate::log_line::counted;
use crate::point_quota::fitting;
use crate::series_append::insert_points;
use crate::system_metrics::insert_system;
use crate::{LogLines, MetricPoint, StoreError, SystemTable, TRAINING_JOBS, Telemetry};

/// Room that a job which is past its quota has for lines of the server and the agent.
const NOTES_BYTES: u64 = 64 << 10;

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
    /// System metrics of the instance.
    pub system: Vec<SystemTable>,
    /// What the job may store in all.
    pub quota: Option<Quota>,
}

/// How much a job may log. What exceeds it is dropped, and the log says once where that begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of lines (each with [`crate::LINE_OVERHEAD`] more), and bytes of points and series
    /// (`point_quota.rs`), in all streams of the job.
    pub bytes: u64,
    /// Stream that has the notices.
    pub stream: String,
    /// Line that takes the place of the first dropped line of a stream.
    pub lines_notice: String,
    /// Line that is logged when points are dropped for the first time.
    pub points_notice: String,
}

impl Telemetry {
    /// Stores a report and its number in one transaction, unless that number or a higher one is
    /// stored already. Returns the highest stored number of its attempt and host. Lines and points
    /// never use the reserve of a full disk; the number alone does.
    ///
    /// # Errors
    /// [`StoreError::Full`] and others; then nothing of the report is stored.
    pub fn ingest(&self, report: &Ingest) -> Result<u64, StoreError> {
        let mut is_due = false;
        let work = |tx: &Connection| {
            let acked = acked(tx, &report.attempt, report.host)?;
            if report.seq <= acked {
                return Ok(acked);
            }
            is_due = insert_report(tx, report)?;
            insert_system(tx, &report.job, report.host, &report.system)?;
            let upsert = "INSERT OR REPLACE INTO ack (attempt, host, seq) VALUES (?, ?, ?)";
            tx.prepare_cached(upsert)?.execute(params![report.attempt, report.host, report.seq])?;
            Ok(report.seq)
        };
        let has_lines = report.logs.iter().any(|logs| !logs.lines.is_empty());
        let is_control = report.points.is_empty() && report.system.is_empty() && !has_lines;
        let acked = if is_control { self.database.write(work) } else { self.database.write_beside_reserve(work) }?;
        self.sealer.wake_if(is_due);
        Ok(acked)
    }

    /// The highest stored report number of an instance; 0 if none is.
    ///
    /// # Errors
    /// The storage's.
    pub fn acked(&self, attempt: &str, host: u32) -> Result<u64, StoreError> {
        self.database.read(|connection| acked(connection, attempt, host))
    }

    /// Drops the report number of a host whose instance is replaced: the next one's reports begin
    /// at 1.
    ///
    /// # Errors
    /// The storage's.
    pub fn forget_host(&self, attempt: &str, host: u32) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute("DELETE FROM ack WHERE attempt = ? AND host = ?", params![attempt, host])?;
            Ok(())
        })
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
}

fn acked(connection: &Connection, attempt: &str, host: u32) -> Result<u64, StoreError> {
    let mut select = connection.prepare_cached("SELECT seq FROM ack WHERE attempt = ? AND host = ?")?;
    Ok(select.query_row(params![attempt, host], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Stores what the quota permits; returns whether a stream has enough lines for a segment.
fn insert_report(tx: &Connection, report: &Ingest) -> Result<bool, StoreError> {
    let now = now_ms();
    let mut is_due = false;
    let Some(quota) = &report.quota else {
        for LogLines { stream, lines, .. } in &report.logs {
            is_due |= Stream::find(tx, TRAINING_JOBS, stream, now)?.append(tx, &borrowed(lines), now)?;
        }
        insert_points(tx, &report.job, Some(report.host), &report.points)?;
        return Ok(is_due);
    };
    let mut left = Left { bytes: quota.bytes, used: used_by_lines(tx, &report.job)? };
    for logs in &report.logs {
        let mut stream = Stream::find(tx, TRAINING_JOBS, &logs.stream, now)?;
        let (kept, dropped) = left.divide(&stream, logs, quota);
        if dropped > 0 {
            tx.prepare_cached("UPDATE log_stream SET dropped = dropped + ? WHERE id = ?")?
                .execute(params![dropped, stream.id])?;
        }
        is_due |= stream.append(tx, &kept, now)?;
    }
    if report.points.is_empty() {
        return Ok(is_due);
    }
    let fits = fitting(tx, &report.job, quota.bytes, &report.points)?;
    let fitting = report.points.iter().zip(&fits).filter(|(_, fits)| **fits).map(|(point, _)| point);
    insert_points(tx, &report.job, Some(report.host), fitting)?;
    let dropped = fits.iter().filter(|fits| !**fits).count();
    if dropped > 0 {
        let mut stream = Stream::find(tx, TRAINING_JOBS, &quota.stream, now)?;
        let count = "UPDATE log_stream SET dropped_points = dropped_points + ? WHERE id = ? RETURNING dropped_points";
        let in_all: usize = tx.prepare_cached(count)?.query_row(params![dropped, stream.id], |row| row.get(0))?;
        if in_all == dropped {
            is_due |= stream.append(tx, &[(now, &quota.points_notice)], now)?;
        }
    }
    Ok(is_due)
}

/// Bytes of the lines that a job has in all its streams.
fn used_by_lines(tx: &Connection, job: &str) -> Result<u64, StoreError> {
    // `0` is the character after `/`.
    let sum = "SELECT coalesce(sum(bytes), 0) FROM log_stream WHERE log_group = ? AND name > ? AND name < ?";
    let names = params![TRAINING_JOBS, format!("{job}/"), format!("{job}0")];
    Ok(tx.prepare_cached(sum)?.query_row(names, |row| row.get(0))?)
}

/// What is left of a job's quota.
struct Left {
    bytes: u64,
    used: u64,
}

impl Left {
    /// The lines to store and how many are dropped. A stream that has lost a line loses all later
    /// ones, so that it has one end and no gaps.
    fn divide<'a>(&mut self, stream: &Stream, logs: &'a LogLines, quota: &'a Quota) -> (Vec<(u64, &'a str)>, u64) {
        let LogLines { lines, is_own, .. } = logs;
        let limit = if *is_own { self.bytes + NOTES_BYTES } else { self.bytes };
        let mut dropped = 0;
        let mut kept = Vec::with_capacity(lines.len());
        for (at_ms, text) in lines {
            let bytes = counted(text);
            let is_cut = stream.dropped + dropped > 0;
            if (!is_cut || *is_own) && self.used + bytes <= limit {
                self.used += bytes;
                kept.push((*at_ms, text.as_str()));
                continue;
            }
            if !is_cut {
                kept.push((*at_ms, quota.lines_notice.as_str()));
            }
            dropped += 1;
        }
        (kept, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point_quota::POINT_BYTES;
    use crate::{LINE_OVERHEAD, LogQuery, Point};

    #[test]
    fn a_report_counts_once() {
        let temp = tempfile::tempdir().unwrap();
        let open = || Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let telemetry = open();
        let report = |host, seq| Ingest {
            attempt: "u-1".to_owned(),
            host,
            seq,
            logs: vec![LogLines {
                stream: format!("job/algo-{host}"),
                lines: vec![(seq, format!("line {seq}"))],
                ..LogLines::default()
            }],
            job: "job".to_owned(),
            points: vec![MetricPoint { metric: "loss".to_owned(), at_ms: seq, value: 0.5 }],
            system: Vec::new(),
            quota: None,
        };
        // Host, number, highest stored after it.
        for (host, seq, expected) in [(1, 1, 1), (1, 2, 2), (1, 2, 2), (1, 1, 2), (2, 1, 1), (1, 3, 3)] {
            assert_eq!(telemetry.ingest(&report(host, seq)).unwrap(), expected, "{host} {seq}");
        }
        drop(telemetry);
        let telemetry = open();
        assert_eq!([1, 2, 3].map(|host| telemetry.acked("u-1", host).unwrap()), [3, 1, 0]);
        let query = LogQuery { stream: "job/algo-1".to_owned(), ..LogQuery::default() };
        let lines: Vec<_> =
            telemetry.read_logs(&query).unwrap().unwrap().events.into_iter().map(|event| event.text).collect();
        assert_eq!(lines, ["line 1", "line 2", "line 3"]);
        let at = telemetry
            .read_points("job", "loss", 0, 9)
            .unwrap()
            .iter()
            .map(|point: &Point| point.at_ms)
            .collect::<Vec<_>>();
        assert_eq!(at, [1, 1, 2, 3]);
        telemetry.forget("u-1").unwrap();
        assert_eq!(telemetry.acked("u-1", 1).unwrap(), 0);
    }

    #[test]
    fn a_job_past_its_quota_has_one_notice_in_each_stream() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let quota = Quota {
            bytes: 10 * (LINE_OVERHEAD as u64 + 10),
            stream: "job/algo-1".to_owned(),
            lines_notice: "no more lines".to_owned(),
            points_notice: "no more points".to_owned(),
        };
        let report = |host: u32, seq, lines: &[&str], points| Ingest {
            attempt: "u-1".to_owned(),
            host,
            seq,
            logs: lines
                .iter()
                .map(|line| LogLines {
                    stream: format!("job/algo-{host}"),
                    lines: vec![(1, format!("{line:10}"))],
                    is_own: line.starts_with("[shoal] e"),
                })
                .collect(),
            job: "job".to_owned(),
            points: (0..points).map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms, value: 0.5 }).collect(),
            system: Vec::new(),
            quota: Some(quota.clone()),
        };
        let read = |stream: &str| {
            let page =
                telemetry.read_logs(&LogQuery { stream: stream.to_owned(), ..LogQuery::default() }).unwrap().unwrap();
            page.events.into_iter().map(|event| event.text.trim().to_owned()).collect::<Vec<_>>()
        };
        telemetry.ingest(&report(2, 1, &["a", "b", "c", "d"], 0)).unwrap();
        telemetry.ingest(&report(1, 1, &["e", "f", "g", "h", "i", "j", "k", "l"], 0)).unwrap();
        telemetry.ingest(&report(2, 2, &["m"], 0)).unwrap();
        for seq in [2, 3] {
            telemetry.ingest(&report(1, seq, &["n", "[shoal] forged", "[shoal] ended"], 6)).unwrap();
        }
        assert_eq!(read("job/algo-2"), ["a", "b", "c", "d", "no more lines"]);
        let expected =
            ["e", "f", "g", "h", "i", "j", "no more lines", "[shoal] ended", "no more points", "[shoal] ended"];
        assert_eq!(read("job/algo-1"), expected);
        assert_eq!(telemetry.read_points("job", "loss", 0, 9).unwrap().len() as u64, (quota.bytes - 110) / POINT_BYTES);
        assert_eq!(telemetry.acked("u-1", 1).unwrap(), 3);
        // Another job's quota is its own, and a deleted job's name begins again.
        telemetry.delete_streams("job/").unwrap();
        telemetry.ingest(&report(2, 3, &["again"], 0)).unwrap();
        assert_eq!(read("job/algo-2"), ["again"]);
    }
}
