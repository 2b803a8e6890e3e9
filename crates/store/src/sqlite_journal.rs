//! Journal and rows on SQLite: `shoal.db`.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};

use crate::snapshot_file::SnapshotFile;
use crate::sqlite::{Database, Schema};
use crate::{
    Batch, CheckpointRow, EachEvent, EachRecord, Journal, Page, ResourceFilter, ResourceKind, ResourceRow, RowChange,
    Rows, Snapshots, StoreError, TrialFilter, TrialPage, TrialRow,
};
use crate::{sqlite_resources as resources, sqlite_trials as trials};

pub(crate) const SCHEMA: Schema = Schema {
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
        trials::TABLES,
        resources::TABLE,
        resources::SPEC,
        resources::CREATOR,
    ],
    gives_back_space: false,
};

/// Events that go in one transaction: whoever appends meanwhile waits for it.
const DROPPED_AT_ONCE: u64 = 200;

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
                    RowChange::Put(row) => resources::put(tx, row)?,
                    RowChange::Move(progress) => {
                        resources::advance(tx, progress)?;
                        if progress.kind == ResourceKind::TRAINING_JOB {
                            trials::follow_job(tx, &progress.name, &progress.status)?;
                        }
                    }
                    RowChange::Delete(kind, name) => {
                        resources::delete(tx, *kind, name)?;
                        match *kind {
                            ResourceKind::TRAINING_JOB => {
                                tx.prepare_cached("DELETE FROM checkpoint WHERE job = ?")?.execute([name])?;
                                trials::forget_job(tx, name)?;
                            }
                            ResourceKind::TUNING_JOB => trials::forget_tuning(tx, name)?,
                            _ => {}
                        }
                    }
                    RowChange::PutCheckpoint(row) => put_checkpoint(tx, row)?,
                    RowChange::PutTrial(row) => trials::put_trial(tx, row)?,
                    RowChange::MoveTrial(progress) => trials::advance_trial(tx, progress)?,
                    RowChange::PutRecord(row) => trials::put_record(tx, row)?,
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
            let mut select =
                connection.prepare_cached("SELECT version, bytes FROM event WHERE version > ? ORDER BY version")?;
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
        let delete = "DELETE FROM event WHERE version IN (SELECT version FROM event WHERE version <= ? ORDER BY \
                      version LIMIT ?)";
        while self.database.write(|tx| Ok(tx.prepare_cached(delete)?.execute([version, DROPPED_AT_ONCE])?))? > 0 {}
        Ok(())
    }
}

/// The events' own greatest number, or the snapshot's when it has replaced them all.
fn last_version(connection: &rusqlite::Connection) -> Result<u64, StoreError> {
    let select =
        "SELECT max(coalesce((SELECT max(version) FROM event), 0), coalesce((SELECT version FROM snapshot), 0))";
    Ok(connection.prepare_cached(select)?.query_row([], |row| row.get(0))?)
}

fn put_checkpoint(tx: &rusqlite::Connection, row: &CheckpointRow) -> Result<(), StoreError> {
    let upsert =
        "INSERT OR REPLACE INTO checkpoint (job, path, host, bytes, sha256, saved_ms) VALUES (?, ?, ?, ?, ?, ?)";
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

impl Rows for SqliteRows {
    fn resource(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, StoreError> {
        self.database.read(|connection| resources::get(connection, kind, name))
    }

    fn names(&self, kind: ResourceKind, name: &str) -> Result<Vec<String>, StoreError> {
        self.database.read(|connection| resources::names(connection, kind, name))
    }

    fn list(&self, filter: &ResourceFilter) -> Result<Page, StoreError> {
        self.database.read(|connection| resources::list(connection, filter))
    }

    fn without_spec(&self) -> Result<Vec<(ResourceKind, String)>, StoreError> {
        self.database.read(resources::without_spec)
    }

    fn count(&self, filter: &ResourceFilter) -> Result<u64, StoreError> {
        self.database.read(|connection| resources::count(connection, filter))
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

    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError> {
        self.database.read(|connection| trials::trial(connection, job))
    }

    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
        self.database.read(|connection| trials::trials(connection, filter))
    }

    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError> {
        self.database.read(|connection| trials::records(connection, tuning, after, each))
    }
}
