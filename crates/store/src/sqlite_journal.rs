//! Journal and rows on SQLite: `shoal.db`.

use std::path::Path;
use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Row, params, params_from_iter};

use crate::snapshot_file::SnapshotFile;
use crate::sqlite::{Database, Schema};
use crate::sqlite_tuning as tuning;
use crate::{
    Batch, CheckpointRow, Cursor, EachEvent, EachRecord, JobFilter, JobProgress, JobRow, JobSort, Journal, Page, RowChange, Rows,
    Snapshots, SortOrder, StoreError, TrialFilter, TrialPage, TrialRow, TuningPage, TuningRow,
};

const SCHEMA: Schema = Schema {
    formats: &[
        "
    CREATE TABLE event (version INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE TABLE job (
        name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, arn TEXT NOT NULL,
        created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, ended_ms INTEGER,
        status TEXT NOT NULL, secondary TEXT NOT NULL, ended INTEGER NOT NULL,
        request BLOB NOT NULL, view BLOB NOT NULL, tags BLOB NOT NULL);
    -- A list is found in one index, filters and all, and only its page is read from the table.
    CREATE INDEX job_by_creation ON job (created_ms, name, status, modified_ms);
    CREATE INDEX job_by_status ON job (status, name, created_ms, modified_ms);
    CREATE INDEX job_of_status_by_creation ON job (status, created_ms, name, modified_ms);
    ",
        "
    CREATE TABLE checkpoint (
        job TEXT NOT NULL, path TEXT NOT NULL, host INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
        saved_ms INTEGER NOT NULL, PRIMARY KEY (job, path, host)) WITHOUT ROWID;
    ",
        tuning::TABLES,
    ],
    gives_back_space: false,
};

/// Events that go in one transaction: whoever appends meanwhile waits for it.
const DROPPED_AT_ONCE: u64 = 200;

pub(crate) const COLUMNS: &str = "name, uid, arn, created_ms, modified_ms, ended_ms, status, secondary, ended, request, view, tags";

/// The journal in a data directory's `shoal.db`.
#[derive(Debug)]
pub struct SqliteJournal {
    database: Arc<Database>,
    file: SnapshotFile,
}

/// The rows of the same file, for any number of readers.
#[derive(Debug, Clone)]
pub struct SqliteRows {
    database: Arc<Database>,
}

impl SqliteJournal {
    /// Opens the file, creating it when missing; see [`crate::DataDir::journal_path`].
    ///
    /// # Errors
    /// [`StoreError::Format`] for another version's file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Arc::new(Database::open(path, &SCHEMA)?), file: SnapshotFile::beside(path) })
    }

    /// A reader of the rows.
    pub fn rows(&self) -> SqliteRows {
        SqliteRows { database: Arc::clone(&self.database) }
    }
}

impl SqliteRows {
    /// Why nothing can be appended any more until the file is opened anew, if so.
    pub fn failure(&self) -> Option<&str> {
        self.database.failure()
    }
}

impl Journal for SqliteJournal {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        self.database.write(|tx| {
            let mut version = last_version(tx)?;
            let mut insert = tx.prepare_cached("INSERT INTO event (version, bytes) VALUES (?, ?)")?;
            for event in &batch.events {
                version += 1;
                insert.execute(params![version, event])?;
            }
            for change in &batch.rows {
                match change {
                    RowChange::PutJob(row) => put_job(tx, row)?,
                    RowChange::MoveJob(progress) => move_job(tx, progress)?,
                    RowChange::DeleteJob(name) => {
                        tx.prepare_cached("DELETE FROM job WHERE name = ?")?.execute([name])?;
                        tx.prepare_cached("DELETE FROM checkpoint WHERE job = ?")?.execute([name])?;
                        tuning::forget_job(tx, name)?;
                    }
                    RowChange::PutCheckpoint(row) => put_checkpoint(tx, row)?,
                    RowChange::PutTuning(row) => tuning::put(tx, row)?,
                    RowChange::MoveTuning(progress) => tuning::advance(tx, progress)?,
                    RowChange::DeleteTuning(name) => tuning::delete(tx, name)?,
                    RowChange::PutTrial(row) => tuning::put_trial(tx, row)?,
                    RowChange::MoveTrial(progress) => tuning::advance_trial(tx, progress)?,
                    RowChange::PutRecord(row) => tuning::put_record(tx, row)?,
                }
            }
            Ok(version)
        })
    }

    fn version(&self) -> Result<u64, StoreError> {
        self.database.read(last_version)
    }

    fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT version, bytes FROM event WHERE version > ? ORDER BY version")?;
            let mut rows = select.query([version])?;
            while let Some(row) = rows.next()? {
                each(row.get(0)?, row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?)?;
            }
            Ok(())
        })
    }

    fn snapshots(&self) -> Box<dyn Snapshots> {
        Box::new(SqliteSnapshots { database: Arc::clone(&self.database), file: self.file.clone() })
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let row: Option<(u64, Vec<u8>)> = self.database.read(|connection| {
            let select = "SELECT version, bytes FROM snapshot";
            Ok(connection.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
        })?;
        let file = self.file.read()?;
        match (row, file) {
            // A crash came between the file and its row: the events are all there still.
            (None, file) => Ok(file),
            (Some((version, _)), Some(file)) if file.0 >= version => Ok(Some(file)),
            // Rows of the first snapshots held them.
            (Some((version, bytes)), _) if !bytes.is_empty() => Ok(Some((version, bytes))),
            (Some((version, _)), _) => Err(StoreError::Corrupt {
                path: self.file.path().to_owned(),
                detail: format!("the events up to {version} are in no other place, and it does not hold them"),
            }),
        }
    }
}

/// Snapshots lie in a file; the row tells the version that outlives the events.
#[derive(Debug)]
struct SqliteSnapshots {
    database: Arc<Database>,
    file: SnapshotFile,
}

impl Snapshots for SqliteSnapshots {
    fn put(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let select = "SELECT coalesce((SELECT version FROM snapshot), 0)";
        let present: u64 = self.database.read(|connection| Ok(connection.query_row(select, [], |row| row.get(0))?))?;
        if version < present {
            return Ok(());
        }
        self.file.write(version, bytes)?;
        self.database.write(|tx| {
            tx.execute("INSERT OR REPLACE INTO snapshot (one, version, bytes) VALUES (1, ?, x'')", [version])?;
            Ok(())
        })?;
        let delete = "DELETE FROM event WHERE version IN (SELECT version FROM event WHERE version <= ? ORDER BY version LIMIT ?)";
        while self.database.write(|tx| Ok(tx.prepare_cached(delete)?.execute([version, DROPPED_AT_ONCE])?))? > 0 {}
        Ok(())
    }
}

/// The events' own greatest number, or the snapshot's when it has replaced them all.
fn last_version(connection: &rusqlite::Connection) -> Result<u64, StoreError> {
    let select = "SELECT max(coalesce((SELECT max(version) FROM event), 0), coalesce((SELECT version FROM snapshot), 0))";
    Ok(connection.prepare_cached(select)?.query_row([], |row| row.get(0))?)
}

fn put_job(tx: &rusqlite::Connection, row: &JobRow) -> Result<(), StoreError> {
    let upsert = "INSERT INTO job (name, uid, arn, created_ms, modified_ms, ended_ms, status, secondary, ended, request, view, tags)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
        ON CONFLICT (name) DO UPDATE SET uid = ?2, arn = ?3, created_ms = ?4, modified_ms = ?5, ended_ms = ?6, status = ?7,
            secondary = ?8, ended = ?9, request = ?10, view = ?11, tags = ?12";
    tx.prepare_cached(upsert)?.execute(params![
        row.name,
        row.uid,
        row.arn,
        row.created_ms,
        row.modified_ms,
        row.ended_ms,
        row.status,
        row.secondary,
        row.ended,
        row.request,
        row.view,
        row.tags
    ])?;
    Ok(())
}

fn move_job(tx: &rusqlite::Connection, progress: &JobProgress) -> Result<(), StoreError> {
    let update = "UPDATE job SET modified_ms = ?2, ended_ms = ?3, status = ?4, secondary = ?5, ended = ?6, view = ?7 WHERE name = ?1";
    let JobProgress { name, modified_ms, ended_ms, status, secondary, ended, view } = progress;
    tx.prepare_cached(update)?.execute(params![name, modified_ms, ended_ms, status, secondary, ended, view])?;
    tuning::follow_job(tx, name, status)
}

fn put_checkpoint(tx: &rusqlite::Connection, row: &CheckpointRow) -> Result<(), StoreError> {
    let upsert = "INSERT OR REPLACE INTO checkpoint (job, path, host, bytes, sha256, saved_ms) VALUES (?, ?, ?, ?, ?, ?)";
    tx.prepare_cached(upsert)?.execute(params![row.job, row.path, row.host, row.bytes, row.sha256, row.saved_ms])?;
    Ok(())
}

fn checkpoint_of(row: &Row<'_>) -> rusqlite::Result<CheckpointRow> {
    Ok(CheckpointRow {
        job: row.get(0)?,
        path: row.get(1)?,
        host: row.get(2)?,
        bytes: row.get(3)?,
        sha256: row.get(4)?,
        saved_ms: row.get(5)?,
    })
}

pub(crate) fn job_of(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        name: row.get(0)?,
        uid: row.get(1)?,
        arn: row.get(2)?,
        created_ms: row.get(3)?,
        modified_ms: row.get(4)?,
        ended_ms: row.get(5)?,
        status: row.get(6)?,
        secondary: row.get(7)?,
        ended: row.get(8)?,
        request: row.get(9)?,
        view: row.get(10)?,
        tags: row.get(11)?,
    })
}

impl Rows for SqliteRows {
    fn job(&self, name: &str) -> Result<Option<JobRow>, StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM job WHERE name = ?"))?;
            Ok(select.query_row([name], job_of).optional()?)
        })
    }

    fn names(&self, name: &str) -> Result<Vec<String>, StoreError> {
        self.database.read(|connection| {
            // No index has this order: all names are looked at, in the index that has them.
            let mut select = connection.prepare_cached("SELECT name FROM job WHERE name = ? COLLATE NOCASE ORDER BY name")?;
            Ok(select.query_map([name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn list(&self, filter: &JobFilter) -> Result<Page, StoreError> {
        let (sql, values) = list_sql("job", COLUMNS, filter)?;
        self.database.read(|connection| {
            let mut select = connection.prepare_cached(&sql)?;
            let rows = select.query_map(params_from_iter(values), job_of)?;
            let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let more = rows.len() > filter.limit;
            rows.truncate(filter.limit);
            let next = if more { rows.last().map(|row| Cursor::after(row, filter.sort)) } else { None };
            Ok(Page { rows, next })
        })
    }

    fn checkpoints(&self, job: &str, after: (&str, u32), limit: usize) -> Result<Vec<CheckpointRow>, StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT job, path, host, bytes, sha256, saved_ms FROM checkpoint WHERE job = ? AND (path, host) > (?, ?)
                    ORDER BY path, host LIMIT ?",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = select.query_map(params![job, after.0, after.1, limit], checkpoint_of)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        let (conditions, values) = conditions(filter);
        let sql = format!("SELECT count(*) FROM job WHERE {}", conditions.join(" AND "));
        self.database.read(|connection| Ok(connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?))
    }

    fn tuning(&self, name: &str) -> Result<Option<TuningRow>, StoreError> {
        self.database.read(|connection| tuning::get(connection, name))
    }

    fn tuning_names(&self, name: &str) -> Result<Vec<String>, StoreError> {
        self.database.read(|connection| tuning::names(connection, name))
    }

    fn list_tunings(&self, filter: &JobFilter) -> Result<TuningPage, StoreError> {
        self.database.read(|connection| tuning::list(connection, filter))
    }

    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError> {
        self.database.read(|connection| tuning::trial(connection, job))
    }

    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
        self.database.read(|connection| tuning::trials(connection, filter))
    }

    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError> {
        self.database.read(|connection| tuning::records(connection, tuning, after, each))
    }
}

pub(crate) fn time(ms: u64) -> Value {
    Value::Integer(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// What the filter asks of a row, and the operands.
fn conditions(filter: &JobFilter) -> (Vec<String>, Vec<Value>) {
    let mut conditions = vec!["true".to_owned()];
    let mut values = Vec::new();
    let mut require = |condition: &str, operands: Vec<Value>| {
        conditions.push(condition.to_owned());
        values.extend(operands);
    };
    if let Some(part) = &filter.name_contains {
        require("instr(name, ?) > 0", vec![part.clone().into()]);
    }
    if let Some(names) = &filter.names {
        require("name IN (SELECT value FROM json_each(?))", vec![Value::Text(serde_json::json!(names).to_string())]);
    }
    if let Some(part) = &filter.name_resembles {
        require("instr(lower(name), ?) > 0", vec![part.to_ascii_lowercase().into()]);
    }
    for (condition, wanted) in
        [("status = ?", &filter.status), ("secondary = ?", &filter.secondary), ("secondary <> ?", &filter.secondary_not)]
    {
        if let Some(text) = wanted {
            require(condition, vec![text.clone().into()]);
        }
    }
    for (condition, bound) in [
        ("created_ms > ?", filter.created_after_ms),
        ("created_ms < ?", filter.created_before_ms),
        ("modified_ms > ?", filter.modified_after_ms),
        ("modified_ms < ?", filter.modified_before_ms),
    ] {
        if let Some(ms) = bound {
            require(condition, vec![time(ms)]);
        }
    }
    (conditions, values)
}

/// One statement per combination of conditions, so that each is answered from the index that fits.
pub(crate) fn list_sql(table: &str, columns: &str, filter: &JobFilter) -> Result<(String, Vec<Value>), StoreError> {
    let (mut conditions, mut values) = conditions(filter);
    let mut require = |condition: &str, operands: Vec<Value>| {
        conditions.push(condition.to_owned());
        values.extend(operands);
    };
    let (beyond, direction) = match filter.order {
        SortOrder::Ascending => (">", "ASC"),
        SortOrder::Descending => ("<", "DESC"),
    };
    if let Some(cursor) = &filter.after {
        let name = cursor.name.clone().into();
        match filter.sort {
            JobSort::Name => require(&format!("name {beyond} ?"), vec![name]),
            JobSort::CreationTime => require(&format!("(created_ms, name) {beyond} (?, ?)"), vec![time(cursor.number()?), name]),
            JobSort::Status => require(&format!("(status, name) {beyond} (?, ?)"), vec![cursor.value.clone().into(), name]),
        }
    }
    let order = match filter.sort {
        JobSort::Name => format!("name {direction}"),
        JobSort::CreationTime => format!("created_ms {direction}, name {direction}"),
        JobSort::Status => format!("status {direction}, name {direction}"),
    };
    // One row more than asked for says whether there is a next page.
    values.push(Value::Integer(i64::try_from(filter.limit.saturating_add(1)).unwrap_or(i64::MAX)));
    let page = format!("SELECT rowid FROM {table} WHERE {} ORDER BY {order} LIMIT ?", conditions.join(" AND "));
    Ok((format!("SELECT {columns} FROM {table} WHERE rowid IN ({page}) ORDER BY {order}"), values))
}
