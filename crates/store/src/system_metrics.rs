//! System metrics of jobs' instances: one row for each minute of an instance.
//!
//! What is older than [`DETAIL_MS`] is shortened (`system_tables.rs`), so that an instance that
//! runs for a day at one sample a second takes about a megabyte.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::system_tables::{Minute, SystemColumn, SystemPoint, SystemRow, SystemTable, decode_columns, encode_columns};
use crate::{StoreError, Telemetry};

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// All samples are kept for this long: 6 hours.
const DETAIL_MS: u64 = 6 * 60 * MINUTE_MS;
/// Minutes that one transaction shortens or removes.
const MINUTES_TOGETHER: usize = 500;
/// Columns that an instance may have.
const MAX_COLUMNS: usize = 1024;

/// The series of a job's instance.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSystemMetrics {
    /// Its number, from 1.
    pub host: u32,
    /// By column, in order of time.
    pub columns: BTreeMap<SystemColumn, Vec<SystemPoint>>,
}

/// The newest values of a job's instance.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemNow {
    /// Its number, from 1.
    pub host: u32,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// By column.
    pub values: Vec<(SystemColumn, f32)>,
}

/// Which columns to name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemQuery {
    /// Only this job's.
    pub job: Option<String>,
    /// Only of instances that have samples at or after this time.
    pub active_since_ms: Option<u64>,
    /// Only of instances that come after this job and host.
    pub after: Option<(String, u32)>,
    /// Most instances to return.
    pub limit: usize,
}

/// Stores samples of an instance.
pub(crate) fn insert_system(tx: &Connection, job: &str, host: u32, tables: &[SystemTable]) -> Result<(), StoreError> {
    let minutes = by_minute(tables);
    if minutes.is_empty() {
        return Ok(());
    }
    let source = find_source(tx, job, host, minutes.values().flatten())?;
    let mut find = tx.prepare_cached("SELECT body FROM system_minute WHERE source = ? AND minute = ?")?;
    let upsert = "INSERT INTO system_minute (source, minute, is_short, to_export, body) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (source, minute) DO UPDATE SET to_export = max(to_export, ?4), body = ?5";
    let mut upsert = tx.prepare_cached(upsert)?;
    let mut grown = 0;
    for (minute_ms, tables) in minutes {
        let stored: Option<Vec<u8>> = find.query_row(params![source, minute_ms], |row| row.get(0)).optional()?;
        let before = stored.as_ref().map_or(0, Vec::len);
        let mut minute = stored.and_then(|body| Minute::decode(&body)).unwrap_or_else(|| Minute::Samples(Vec::new()));
        let is_profiled = tables.iter().flat_map(|table| &table.rows).any(|row| row.is_profiled);
        let is_short = matches!(minute, Minute::Short(_));
        tables.into_iter().for_each(|table| minute.append(table));
        let body = minute.encode();
        grown += body.len() as i64 - before as i64;
        // Of a short form no file can be written any more.
        upsert.execute(params![source, minute_ms, is_short, is_profiled && !is_short, body])?;
    }
    tx.prepare_cached("UPDATE system_source SET bytes = bytes + ? WHERE id = ?")?.execute(params![grown, source])?;
    Ok(())
}

/// Samples by the minute in which they were taken. What exceeds the bounds of names and columns is
/// left out.
fn by_minute(tables: &[SystemTable]) -> BTreeMap<u64, Vec<SystemTable>> {
    let mut minutes = BTreeMap::<u64, Vec<SystemTable>>::new();
    for table in tables {
        let columns = &table.columns[..table.columns.len().min(MAX_COLUMNS)];
        if columns.is_empty() || columns.iter().any(|column| column.metric.len() > usize::from(u8::MAX)) {
            continue;
        }
        for row in table.rows.iter().filter(|row| row.values.len() == table.columns.len()) {
            let of_minute = minutes.entry(row.at_ms - row.at_ms % MINUTE_MS).or_default();
            let row = SystemRow { values: row.values[..columns.len()].to_vec(), ..row.clone() };
            match of_minute.last_mut().filter(|last| last.columns == columns) {
                Some(last) => last.rows.push(row),
                None => of_minute.push(SystemTable { columns: columns.to_vec(), rows: vec![row] }),
            }
        }
    }
    minutes
}

/// The instance's row, which names all columns that it has had.
fn find_source<'a>(
    tx: &Connection,
    job: &str,
    host: u32,
    tables: impl Iterator<Item = &'a SystemTable>,
) -> Result<i64, StoreError> {
    let find = "SELECT id, columns FROM system_source WHERE job = ? AND host = ?";
    let found: Option<(i64, Vec<u8>)> =
        tx.prepare_cached(find)?.query_row(params![job, host], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let known = found.as_ref().and_then(|(_, columns)| decode_columns(columns)).unwrap_or_default();
    let mut all: Vec<&SystemColumn> = known.iter().collect();
    for column in tables.flat_map(|table| &table.columns) {
        if !all.contains(&column) && all.len() < MAX_COLUMNS {
            all.push(column);
        }
    }
    let columns = encode_columns(all.iter().copied());
    match found {
        Some((id, _)) if all.len() == known.len() => Ok(id),
        Some((id, _)) => {
            tx.prepare_cached("UPDATE system_source SET columns = ? WHERE id = ?")?.execute(params![columns, id])?;
            Ok(id)
        }
        None => {
            let insert = "INSERT INTO system_source (job, host, columns) VALUES (?, ?, ?) RETURNING id";
            Ok(tx.prepare_cached(insert)?.query_row(params![job, host, columns], |row| row.get(0))?)
        }
    }
}

impl Telemetry {
    /// System metrics of a job's instances from `from_ms` (inclusive) to `to_ms` (exclusive), by
    /// host; of one alone if it is named. A shortened minute is there if it begins in that time.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_system(
        &self,
        job: &str,
        host: Option<u32>,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<Vec<HostSystemMetrics>, StoreError> {
        let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let within = |point: &SystemPoint| (from_ms..to_ms).contains(&point.at_ms);
        self.database.read(|connection| {
            let sql = "SELECT host, minute, body FROM system_source JOIN system_minute ON source = id
                WHERE job = ?1 AND (?2 IS NULL OR host = ?2) AND minute >= ?3 AND minute < ?4 ORDER BY host, minute";
            let mut select = connection.prepare_cached(sql)?;
            let from = time(from_ms.saturating_sub(MINUTE_MS - 1));
            let mut rows = select.query(params![job, host, from, time(to_ms)])?;
            let mut hosts: Vec<HostSystemMetrics> = Vec::new();
            while let Some(row) = rows.next()? {
                let (host, minute_ms, body): (u32, u64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let Some(minute) = Minute::decode(&body) else { continue };
                if hosts.last().is_none_or(|last| last.host != host) {
                    hosts.push(HostSystemMetrics { host, columns: BTreeMap::new() });
                }
                for (column, points) in minute.points(minute_ms) {
                    let points = points.into_iter().filter(within);
                    if let Some(last) = hosts.last_mut() {
                        last.columns.entry(column).or_default().extend(points);
                    }
                }
            }
            for host in &mut hosts {
                host.columns.retain(|_, points| !points.is_empty());
            }
            hosts.retain(|host| !host.columns.is_empty());
            Ok(hosts)
        })
    }

    /// The newest values of a job's instances, by host.
    ///
    /// # Errors
    /// The storage's.
    pub fn system_now(&self, job: &str) -> Result<Vec<SystemNow>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT host, minute, body FROM system_source JOIN system_minute ON source = id
                WHERE job = ? AND minute = (SELECT max(minute) FROM system_minute WHERE source = id) ORDER BY host";
            let mut select = connection.prepare_cached(sql)?;
            let mut rows = select.query([job])?;
            let mut hosts = Vec::new();
            while let Some(row) = rows.next()? {
                let (host, minute_ms, body): (u32, u64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let points = Minute::decode(&body).map(|minute| minute.points(minute_ms)).unwrap_or_default();
                let at_ms = points.values().filter_map(|points| points.last()).map(|point| point.at_ms).max();
                let last = |(column, points): (SystemColumn, Vec<SystemPoint>)| Some((column, points.last()?.mean));
                let values = points.into_iter().filter_map(last).collect();
                hosts.extend(at_ms.map(|at_ms| SystemNow { host, at_ms, values }));
            }
            Ok(hosts)
        })
    }

    /// What is known of instances, by job and host.
    ///
    /// # Errors
    /// The storage's.
    pub fn system_columns(&self, query: &SystemQuery) -> Result<Vec<(String, u32, Vec<SystemColumn>)>, StoreError> {
        let (job, host) = query.after.as_ref().map(|(job, host)| (job.as_str(), *host)).unzip();
        self.database.read(|connection| {
            let sql = "SELECT job, host, columns FROM system_source WHERE (?1 IS NULL OR job = ?1)
                AND (?2 IS NULL OR (job, host) > (?2, ?3))
                AND (?4 IS NULL OR EXISTS (SELECT 1 FROM system_minute WHERE source = id AND minute >= ?4))
                ORDER BY job, host LIMIT ?5";
            let mut select = connection.prepare_cached(sql)?;
            let active = query.active_since_ms.map(|ms| ms.saturating_sub(MINUTE_MS - 1));
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let mut rows = select.query(params![query.job, job, host, active, limit])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let columns = decode_columns(&row.get::<_, Vec<u8>>(2)?).unwrap_or_default();
                found.push((row.get(0)?, row.get(1)?, columns));
            }
            Ok(found)
        })
    }

    /// Drops all system metrics of a job.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_system(&self, job: &str) -> Result<(), StoreError> {
        let some = "DELETE FROM system_minute WHERE rowid IN (SELECT system_minute.rowid FROM system_source JOIN \
                    system_minute ON source = id WHERE job = ? LIMIT ?)";
        while self.database.write(|tx| Ok(tx.prepare_cached(some)?.execute(params![job, MINUTES_TOGETHER])?))? > 0 {}
        self.database.write(|tx| {
            tx.prepare_cached("DELETE FROM system_source WHERE job = ?")?.execute([job])?;
            Ok(())
        })
    }

    /// Shortens what is old enough, and is in its file if it belongs into one; a limited number.
    pub(crate) fn shorten_system(&self, now_ms: u64) -> Result<(), StoreError> {
        let before = i64::try_from(now_ms.saturating_sub(DETAIL_MS)).unwrap_or(i64::MAX);
        self.database.write(|tx| {
            let due = "SELECT rowid, source, body FROM system_minute WHERE is_short = 0 AND minute < ? AND to_export = 0 \
                       LIMIT ?";
            let due: Vec<(i64, i64, Vec<u8>)> = tx
                .prepare_cached(due)?
                .query_map(params![before, MINUTES_TOGETHER], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let mut update = tx.prepare_cached("UPDATE system_minute SET is_short = 1, body = ? WHERE rowid = ?")?;
            let mut sources = Vec::new();
            for (row, source, body) in due {
                let minute = Minute::decode(&body).unwrap_or_else(|| Minute::Short(BTreeMap::new()));
                update.execute(params![minute.shortened().encode(), row])?;
                sources.push(source);
            }
            count_again(tx, sources)
        })
    }

    /// Removes the oldest minutes, of those before this time if one is given; returns whether there
    /// were any.
    pub(crate) fn remove_system(&self, before_ms: Option<u64>) -> Result<bool, StoreError> {
        let before = before_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        self.database.write(|tx| {
            let sql = "DELETE FROM system_minute WHERE rowid IN (SELECT rowid FROM system_minute WHERE minute < ? ORDER BY \
                       minute LIMIT ?) RETURNING source";
            let sources: Vec<i64> = tx
                .prepare_cached(sql)?
                .query_map(params![before, MINUTES_TOGETHER], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            let has_removed = !sources.is_empty();
            count_again(tx, sources)?;
            Ok(has_removed)
        })
    }

    /// Bytes of all system metrics.
    pub(crate) fn system_bytes(connection: &Connection) -> Result<u64, StoreError> {
        let sum = "SELECT coalesce(sum(bytes), 0) FROM system_source";
        Ok(connection.prepare_cached(sum)?.query_row([], |row| row.get(0))?)
    }
}

/// Writes how much these instances have; one that has nothing goes.
fn count_again(tx: &Connection, mut sources: Vec<i64>) -> Result<(), StoreError> {
    sources.sort_unstable();
    sources.dedup();
    let count = "UPDATE system_source SET bytes = (SELECT coalesce(sum(length(body)), 0) FROM system_minute WHERE source \
                 = ?1) WHERE id = ?1";
    for source in sources {
        tx.prepare_cached(count)?.execute([source])?;
        tx.prepare_cached("DELETE FROM system_source WHERE id = ? AND bytes = 0")?.execute([source])?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Bounds, Ingest};

    pub(crate) const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

    pub(crate) fn telemetry() -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        (temp, telemetry)
    }

    fn column(metric: &str) -> SystemColumn {
        SystemColumn { metric: metric.to_owned(), gpu: None, rank: None }
    }

    /// A report with samples at these seconds; the value is the second.
    pub(crate) fn report(
        job: &str,
        host: u32,
        seq: u64,
        seconds: impl IntoIterator<Item = u64>,
        is_profiled: bool,
    ) -> Ingest {
        let row = |second: u64| SystemRow { at_ms: second * 1000, is_profiled, values: vec![second as f32, 1.0] };
        let table = SystemTable {
            columns: vec![column("CPUUtilization"), column("MemoryBytes")],
            rows: seconds.into_iter().map(row).collect(),
        };
        Ingest { attempt: job.to_owned(), host, seq, job: job.to_owned(), system: vec![table], ..Ingest::default() }
    }

    fn seconds(telemetry: &Telemetry, job: &str, from_s: u64, to_s: u64) -> Vec<(u32, Vec<u64>)> {
        let hosts = telemetry.read_system(job, None, from_s * 1000, to_s * 1000).unwrap();
        let second = |host: &HostSystemMetrics| {
            host.columns[&column("CPUUtilization")].iter().map(|point| point.at_ms / 1000).collect::<Vec<_>>()
        };
        hosts.iter().map(|host| (host.host, second(host))).collect()
    }

    #[test]
    fn samples_are_stored_once_and_read_by_time() {
        let (_temp, telemetry) = telemetry();
        for (host, seq, from, to) in [(1, 1, 55, 65), (1, 2, 65, 70), (1, 2, 65, 70), (2, 1, 60, 62)] {
            telemetry.ingest(&report("job", host, seq, from..to, false)).unwrap();
        }
        assert_eq!(seconds(&telemetry, "job", 0, 100), [(1, Vec::from_iter(55..70)), (2, vec![60, 61])]);
        assert_eq!(seconds(&telemetry, "job", 59, 61), [(1, vec![59, 60]), (2, vec![60])]);
        assert_eq!(telemetry.read_system("job", Some(2), 0, 99_000).unwrap().len(), 1);
        assert!(seconds(&telemetry, "job", 70, 100).is_empty() && seconds(&telemetry, "other", 0, 100).is_empty());
        let now = telemetry.system_now("job").unwrap();
        assert_eq!(
            now.iter().map(|it| (it.host, it.at_ms, it.values[0].1)).collect::<Vec<_>>(),
            [(1, 69_000, 69.0), (2, 61_000, 61.0)]
        );
        let columns = |query: &SystemQuery| {
            let found = telemetry.system_columns(&SystemQuery { limit: 9, ..query.clone() }).unwrap();
            found.into_iter().map(|(job, host, columns)| format!("{job}/{host}:{}", columns.len())).collect::<Vec<_>>()
        };
        assert_eq!(columns(&SystemQuery::default()), ["job/1:2", "job/2:2"]);
        let after = Some(("job".to_owned(), 1));
        assert_eq!(columns(&SystemQuery { after, ..SystemQuery::default() }), ["job/2:2"]);
        let late = SystemQuery { active_since_ms: Some(200_000), ..SystemQuery::default() };
        assert!(columns(&late).is_empty());
        telemetry.delete_system("job").unwrap();
        assert!(telemetry.system_now("job").unwrap().is_empty() && columns(&SystemQuery::default()).is_empty());
    }

    #[test]
    fn a_day_of_samples_takes_little_room_and_keeps_its_statistics() {
        let (_temp, telemetry) = telemetry();
        for hour in 0..24 {
            telemetry.ingest(&report("job", 1, hour + 1, hour * 3600..hour * 3600 + 3600, false)).unwrap();
        }
        let bytes = || telemetry.database.read(Telemetry::system_bytes).unwrap();
        let before = bytes();
        for _ in 0..10 {
            telemetry.tidy(DAY_MS, &Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
        }
        let after = bytes();
        assert!(after < before / 2 && after < 600_000, "{before} {after}");
        let hosts = telemetry.read_system("job", None, 0, DAY_MS).unwrap();
        let points = &hosts[0].columns[&column("CPUUtilization")];
        assert_eq!(points.len(), 18 * 60 + 6 * 3600, "the last six hours have all samples");
        let (count, sum) = points
            .iter()
            .fold((0, 0.0), |(count, sum), point| (count + point.count, sum + point.values().sum::<f64>()));
        assert_eq!(count, 86_400);
        let expected = (0..86_400_u64).sum::<u64>() as f64;
        assert!((sum - expected).abs() / expected < 1e-6, "{sum}");
        assert_eq!((points[0].low, points[0].high), (0.0, 59.0));
        // A sample that comes late joins what is short.
        telemetry.ingest(&report("job", 1, 9999, [30], false)).unwrap();
        let hosts = telemetry.read_system("job", None, 0, 60_000).unwrap();
        assert_eq!(hosts[0].columns[&column("CPUUtilization")][0].count, 61);
    }

    #[test]
    fn metrics_have_an_age_and_a_size() {
        let (_temp, telemetry) = telemetry();
        telemetry.ingest(&report("old", 1, 1, 0..60, false)).unwrap();
        for hour in 0..50 {
            telemetry.ingest(&report("job", 1, hour + 1, hour * 3600..hour * 3600 + 3600, true)).unwrap();
        }
        telemetry.tidy(0, &Bounds { bytes: u64::MAX, oldest_ms: 2 * MINUTE_MS }).unwrap();
        assert!(seconds(&telemetry, "old", 0, 9_999).is_empty());
        assert_eq!(seconds(&telemetry, "job", 0, 180)[0].1[0], 120);
        let all = telemetry.stored_bytes().unwrap();
        telemetry.tidy(0, &Bounds { bytes: all / 2, oldest_ms: 0 }).unwrap();
        assert!(telemetry.stored_bytes().unwrap() <= all / 2);
        let left = &seconds(&telemetry, "job", 0, 999_999)[0].1;
        assert_eq!(left.last(), Some(&(3000 * 60 - 1)), "the oldest are removed");
    }
}
