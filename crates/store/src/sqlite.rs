//! One SQLite file: a connection that writes and a few that read beside it.
//!
//! When the disk does not take what a commit has written (fsync fails), the kernel may drop it and say nothing the next time: what this
//! process then reads back need not be on the disk, and a second fsync proves nothing. So the file is not trusted any more: every later write is refused,
//! and the next start writes all that it finds in the log anew, before anything rests on it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::StoreError;
use crate::reserve::Reserve;

/// Idle read connections that are kept open.
const READERS_KEPT: usize = 8;

/// Which tables a file has, and in which format.
pub(crate) struct Schema {
    /// What each format adds to the one before, from format 1 on. The last one is the `user_version` that this code reads and writes; a
    /// file of an earlier format is brought up to it when it is opened.
    pub(crate) formats: &'static [&'static str],
}

/// A database file. Writers take turns, so none ever meets SQLITE_BUSY; readers see the last commit (WAL).
#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    reserve: Reserve,
    /// Why it is not trusted any more.
    failure: OnceLock<String>,
}

impl Database {
    /// Opens the file, creating it with the schema when it is new.
    pub(crate) fn open(path: &Path, schema: &Schema) -> Result<Self, StoreError> {
        let mut writer = Connection::open(path)?;
        configure(&writer)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        // What an fsync that failed has left in the log lies in memory only, perhaps: into the file with it, and begin a new log.
        match writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            // There is no room for it: a server on a full disk can still delete.
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {}
            done => done?,
        }
        let found: i64 = writer.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let known = schema.formats.len();
        let Some(missing) = usize::try_from(found).ok().and_then(|found| schema.formats.get(found..)) else {
            return Err(StoreError::Format { path: path.to_owned(), found: found.to_string(), expected: known.to_string() });
        };
        if !missing.is_empty() {
            let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            missing.iter().try_for_each(|sql| tx.execute_batch(sql))?;
            tx.pragma_update(None, "user_version", known as i64)?;
            tx.commit()?;
        }
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            reserve: Reserve::beside(path),
            failure: OnceLock::new(),
        })
    }

    /// Why this file is not trusted any more, if so: nothing is written to it until it is opened anew.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Runs `work` in one transaction, committed durably when it returns `Ok`; twice if the disk is full and there is a reserve. After
    /// [`StoreError::NotDurable`] nobody knows whether it will have happened at the next start.
    pub(crate) fn write<T>(&self, mut work: impl FnMut(&Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut writer = lock(&self.writer);
        match self.attempt(&mut writer, &mut work) {
            Err(StoreError::Full(_)) if self.reserve.release() => {
                let done = self.attempt(&mut writer, &mut work);
                self.reserve.refill();
                done
            }
            done => done,
        }
    }

    fn attempt<T>(
        &self,
        writer: &mut Connection,
        work: &mut impl FnMut(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(why) = self.failure() {
            return Err(StoreError::NotDurable(why.to_owned()));
        }
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&tx)?;
        match tx.commit() {
            Err(error) if is_lost(&error) => {
                let why =
                    self.failure.get_or_init(|| format!("the disk did not take what was written to {} ({error})", self.path.display()));
                Err(StoreError::NotDurable(why.clone()))
            }
            committed => {
                committed?;
                Ok(value)
            }
        }
    }

    /// Runs `work` on one consistent view of the last commit.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = lock(&self.readers).pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => self.open_reader()?,
        };
        let tx = reader.transaction()?;
        let value = work(&tx);
        drop(tx);
        let mut readers = lock(&self.readers);
        if readers.len() < READERS_KEPT {
            readers.push(reader);
        }
        value
    }

    fn open_reader(&self) -> Result<Connection, StoreError> {
        let reader = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        configure(&reader)?;
        Ok(reader)
    }
}

/// The commit is written and may or may not be on the disk.
fn is_lost(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    error.sqlite_error().is_some_and(|error| matches!(error.extended_code, SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    // Only a person with the sqlite3 shell open can be in the way.
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// A transaction that panicked was rolled back when it was dropped, so a poisoned connection is still sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
