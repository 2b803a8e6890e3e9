//! One SQLite file: a connection that writes and a few that read beside it.
//!
//! When the disk does not take what a commit has written (fsync fails), the kernel may drop it and
//! say nothing the next time: what this process then reads back need not be on the disk, and a
//! second fsync proves nothing. So the file is not trusted any more: every later write is refused,
//! and the next start writes all that it finds in the log anew, before anything rests on it.

mod space;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, ffi};

use crate::StoreError;
use crate::reserve::Reserve;

/// Idle read connections that are kept open.
const READERS_KEPT: usize = 8;

/// Which tables a file has, and in which format.
pub(crate) struct Schema {
    /// What each format adds to the one before, from format 1 on. The last one is the
    /// `user_version` that this code reads and writes; a file of an earlier format is brought up to
    /// it when it is opened.
    pub(crate) formats: &'static [&'static str],
    /// Free pages can be cut off the file (`PRAGMA incremental_vacuum`).
    pub(crate) gives_back_space: bool,
}

/// The log goes into the file after so many pages (16 MiB): a page that many commits change is then
/// written there once.
const CHECKPOINT_PAGES: u32 = 4096;

/// Most writers that one commit carries.
const GROUP: usize = 128;

/// A database file. Writers take turns, so none ever meets SQLITE_BUSY; readers see the last commit
/// (WAL).
///
/// Writers that come while another commits share the next commit, and with it the wait for the disk
/// (group commit without a timer).
#[derive(Debug)]
pub(crate) struct Database {
    path: PathBuf,
    writer: Mutex<Writer>,
    /// Writers on their way to the lock. Whoever has it and sees none coming commits for all who
    /// wrote before.
    coming: AtomicUsize,
    committed: Condvar,
    readers: Mutex<Vec<Connection>>,
    reserve: Reserve,
    /// Why it is not trusted any more.
    failure: OnceLock<String>,
    /// Up to which byte the log has its blocks.
    log_room: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    connection: Connection,
    /// Those who have written since the last commit; a transaction is open while there are any.
    members: usize,
    /// How their commit went, once it has.
    outcome: Arc<Outcome>,
}

type Outcome = OnceLock<Result<(), rusqlite::Error>>;

impl Database {
    /// Opens the file, creating it with the schema when it is new. On a full disk this uses the
    /// reserve.
    pub(crate) fn open(path: &Path, schema: &Schema) -> Result<Self, StoreError> {
        Reserve::beside(path).with_room(|| Self::try_open(path, schema))
    }

    fn try_open(path: &Path, schema: &Schema) -> Result<Self, StoreError> {
        let mut writer = Connection::open(path)?;
        configure(&writer)?;
        if schema.gives_back_space {
            // Has an effect on a new file only; an old one is changed when it is rewritten.
            writer.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        // What an fsync that failed has left in the log lies in memory only, perhaps: into the file
        // with it, and begin a new log.
        match writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            // There is no room for it: a server on a full disk can still delete.
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {}
            done => done?,
        }
        let found: i64 = writer.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let known = schema.formats.len();
        let Some(missing) = usize::try_from(found).ok().and_then(|found| schema.formats.get(found..)) else {
            return Err(StoreError::Format {
                path: path.to_owned(),
                found: found.to_string(),
                expected: known.to_string(),
            });
        };
        if !missing.is_empty() {
            let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            missing.iter().try_for_each(|sql| tx.execute_batch(sql))?;
            tx.pragma_update(None, "user_version", known as i64)?;
            tx.commit()?;
        }
        let database = Self {
            path: path.to_owned(),
            writer: Mutex::new(Writer { connection: writer, members: 0, outcome: Arc::default() }),
            coming: AtomicUsize::new(0),
            committed: Condvar::new(),
            readers: Mutex::default(),
            reserve: Reserve::beside(path),
            failure: OnceLock::new(),
            log_room: AtomicU64::new(0),
        };
        // On a full disk there is none.
        let _ = database.keep_log_room();
        Ok(database)
    }

    /// Why this file is not trusted any more, if so: nothing is written to it until it is opened
    /// anew.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Runs `work` in a transaction: all of it is durable when this returns `Ok`, and nothing of it
    /// has happened otherwise. Whatever is returned, what `work` has read is durable by then, too.
    /// This is for control writes: on a full disk they use the reserve, and `work` may run several
    /// times. After [`StoreError::NotDurable`] nobody knows whether it will have happened at the
    /// next start.
    pub(crate) fn write<T>(&self, mut work: impl FnMut(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.attempt(&mut work) {
            Err(StoreError::Full(_)) => {}
            result => return result,
        }
        // A log whose pages are all in the file is written from its beginning again and needs no
        // more room.
        self.checkpoint();
        self.reserve.with_room(|| self.attempt(&mut work))
    }

    /// The same for what may wait for room: it is refused unless the reserve is complete, and never
    /// uses it.
    pub(crate) fn write_beside_reserve<T>(
        &self,
        mut work: impl FnMut(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.reserve.ensure()?;
        self.keep_log_room()?;
        self.attempt(&mut work)
    }

    fn attempt<T>(&self, work: &mut impl FnMut(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.coming.fetch_add(1, Ordering::SeqCst);
        let mut writer = lock(&self.writer);
        self.coming.fetch_sub(1, Ordering::SeqCst);
        let outcome = Arc::clone(&writer.outcome);
        let done = match self.failure() {
            Some(why) => Err(StoreError::NotDurable(why.to_owned())),
            None => writer.begin().map(|()| writer.take_part(work)),
        };
        if writer.members >= GROUP || self.coming.load(Ordering::SeqCst) == 0 {
            writer.commit();
            if let Some(Err(error)) = outcome.get()
                && is_lost(error)
            {
                // Before the next writer gets the lock.
                self.fail(&self.path, error);
            }
            self.committed.notify_all();
        }
        let result = match done? {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        };
        // A refusal may depend on rows that others of the group wrote: it is returned after their
        // commit, as a success is.
        loop {
            match outcome.get() {
                Some(Ok(())) => return result,
                Some(Err(error)) if is_lost(error) => return Err(StoreError::NotDurable(self.fail(&self.path, error))),
                Some(Err(error)) => {
                    return match result {
                        Err(own @ (StoreError::Sql(_) | StoreError::Full(_))) => Err(own),
                        _ => Err(again(error).into()),
                    };
                }
                None => writer = self.committed.wait(writer).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// From now on the file is not trusted, as the disk has lost what was written to it, or to
    /// files that it speaks of; why.
    pub(crate) fn fail(&self, path: &Path, error: &dyn std::fmt::Display) -> String {
        let why = || format!("the disk did not take what was written to {} ({error})", path.display());
        self.failure.get_or_init(why).clone()
    }

    /// Runs `work` on one consistent view of the last commit.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = lock(&self.readers).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => self.open_reader()?,
        };
        let step = |sql: &str| reader.prepare_cached(sql)?.execute([]);
        step("BEGIN")?;
        // A panic takes the connection along.
        let value = work(&reader);
        step("COMMIT")?;
        let mut readers = lock(&self.readers);
        if readers.len() < READERS_KEPT {
            readers.push(reader);
        }
        value
    }

    fn open_reader(&self) -> Result<Connection, StoreError> {
        let reader = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        configure(&reader)?;
        Ok(reader)
    }
}

/// The commit is written and may or may not be on the disk.
fn is_lost(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    error.sqlite_error().is_some_and(|error| matches!(error.extended_code, SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

impl Writer {
    fn begin(&mut self) -> Result<(), StoreError> {
        if self.members == 0 {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        }
        self.members += 1;
        Ok(())
    }

    /// Does one member's work, so that it is whole or nothing of it stays. A panic is the outer
    /// error.
    fn take_part<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> std::thread::Result<Result<T, StoreError>> {
        let step = |sql: &str| Ok::<_, StoreError>(self.connection.prepare_cached(sql)?.execute([])?);
        if let Err(error) = step("SAVEPOINT member") {
            return Ok(Err(error));
        }
        let done = catch_unwind(AssertUnwindSafe(|| work(&self.connection)));
        let kept = match &done {
            Ok(Ok(_)) => step("RELEASE member"),
            Ok(Err(_)) | Err(_) => step("ROLLBACK TO member").and_then(|_| step("RELEASE member")),
        };
        if self.connection.is_autocommit() {
            // A full disk and the like roll the whole transaction back, the others' work with it.
            let lost = ffi::Error::new(ffi::SQLITE_FULL);
            self.end(Err(rusqlite::Error::SqliteFailure(
                lost,
                Some("another writer's failure took this one's work along".to_owned()),
            )));
        }
        done.map(|result| result.and_then(|value| kept.map(|_| value)))
    }

    /// Makes what all members did durable, or undoes it.
    fn commit(&mut self) {
        if self.members > 0 {
            let committed = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
            if committed.is_err() && !self.connection.is_autocommit() {
                // What cannot be rolled back either is told by the next BEGIN.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            self.end(committed.map(drop));
        }
    }

    fn end(&mut self, outcome: Result<(), rusqlite::Error>) {
        self.members = 0;
        // The members hold the old one; nobody else sets it.
        let _ = std::mem::take(&mut self.outcome).set(outcome);
    }
}

/// The same error once more, for another member of the group.
fn again(error: &rusqlite::Error) -> rusqlite::Error {
    match error {
        rusqlite::Error::SqliteFailure(code, text) => rusqlite::Error::SqliteFailure(*code, text.clone()),
        other => rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_ERROR), Some(other.to_string())),
    }
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    // Only a person with the sqlite3 shell open can be in the way.
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// A panic rolls back what its work did, so a poisoned connection is still sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SCHEMA: Schema = Schema { formats: &["CREATE TABLE t (n INTEGER PRIMARY KEY)"], gives_back_space: false };

    fn insert(connection: &Connection, n: i64) -> Result<(), StoreError> {
        connection.prepare_cached("INSERT INTO t VALUES (?)")?.execute([n])?;
        Ok(())
    }

    fn numbers(database: &Database) -> Vec<i64> {
        let all = |connection: &Connection| -> Result<Vec<i64>, StoreError> {
            let mut select = connection.prepare_cached("SELECT n FROM t ORDER BY n")?;
            Ok(select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        };
        database.read(all).unwrap()
    }

    #[test]
    fn writers_share_commits_and_not_their_failures() {
        let temp = tempfile::tempdir().unwrap();
        let database = Database::open(&temp.path().join("t.db"), &SCHEMA).unwrap();
        thread::scope(|scope| {
            for writer in 0..8_i64 {
                let database = &database;
                scope.spawn(move || {
                    for turn in 0..25_i64 {
                        let n = writer * 1000 + turn * 10;
                        database.write(|tx| insert(tx, n)).unwrap();
                        assert!(numbers(database).contains(&n), "{n} is not there after its commit");
                        let twice = database.write(|tx| {
                            insert(tx, n + 1)?;
                            insert(tx, n)
                        });
                        assert!(matches!(twice, Err(StoreError::Sql(_))), "{twice:?}");
                        let panicked = catch_unwind(AssertUnwindSafe(|| {
                            database.write(|tx| -> Result<(), StoreError> {
                                insert(tx, n + 2)?;
                                panic!("on purpose")
                            })
                        }));
                        assert!(panicked.is_err());
                    }
                });
            }
        });
        let expected: Vec<_> = (0..8).flat_map(|writer| (0..25).map(move |turn| writer * 1000 + turn * 10)).collect();
        assert_eq!(numbers(&database), expected);
    }

    /// Three writers of one group: the first writes a row, the second is refused because of that
    /// row, the third holds up the commit.
    #[test]
    fn a_refusal_is_returned_after_the_commit_that_it_saw() {
        let temp = tempfile::tempdir().unwrap();
        let database = Database::open(&temp.path().join("t.db"), &SCHEMA).unwrap();
        let next_waits = || {
            while database.coming.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
        };
        let (first_began, second_began) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (refused, heard) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                database.write(|tx| {
                    first_began.store(1, Ordering::SeqCst);
                    next_waits();
                    insert(tx, 1)
                })
            });
            while first_began.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let second = scope.spawn(|| {
                let result = database.write(|tx| {
                    second_began.store(1, Ordering::SeqCst);
                    next_waits();
                    insert(tx, 1)
                });
                let seen = numbers(&database);
                refused.send(()).unwrap();
                (result, seen)
            });
            while second_began.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            // As long as a commit may take: a refusal that does not wait for it comes meanwhile.
            database
                .write(|_| {
                    let _ = heard.recv_timeout(Duration::from_millis(300));
                    Ok(())
                })
                .unwrap();
            let (result, seen) = second.join().unwrap();
            assert!(matches!(result, Err(StoreError::Sql(_))), "{result:?}");
            assert_eq!(seen, [1], "what refused it was not durable yet");
        });
    }
}
