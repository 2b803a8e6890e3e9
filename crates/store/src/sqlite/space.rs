//! What a database and its log take on the disk: room that the log has ahead of what is written,
//! and free pages that are given back.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, fallocate};

use super::{Database, is_lost, lock};
use crate::StoreError;

/// Space that the log has beyond its end, so that control writes find room whatever else fills the
/// disk: hundreds of small commits.
const LOG_ROOM_BYTES: u64 = 2 << 20;

/// Fewer free pages than these (1 MiB) are left to be used again.
const LEAST_FREE_PAGES: u64 = 256;

/// Pages (256 KiB) that one transaction cuts off, and how many such transactions follow each other.
const VACUUM_PAGES: u64 = 64;
const VACUUM_STEPS: u64 = 64;

impl Database {
    /// Allocates blocks for the log beyond its end, where the file system can, so that control
    /// writes find room there.
    pub(super) fn keep_log_room(&self) -> Result<(), StoreError> {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        let log = Path::new(&log);
        let length = fs::metadata(log).map_or(0, |found| found.len());
        if length + LOG_ROOM_BYTES / 2 <= self.log_room.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Ok(file) = OpenOptions::new().write(true).open(log) else { return Ok(()) };
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, length + LOG_ROOM_BYTES) {
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                return Err(StoreError::Full("the database".to_owned()));
            }
            // Elsewhere the log grows as it is written.
            _ => self.log_room.store(length + LOG_ROOM_BYTES, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Cuts free pages off the file, some at a time. A file from before `gives_back_space` is
    /// rewritten when most of it is free.
    pub(crate) fn give_back_space(&self) -> Result<(), StoreError> {
        let (mode, pages, free): (u32, u64, u64) = self.read(|connection| {
            let pragma = |name| connection.pragma_query_value(None, name, |row| row.get(0));
            Ok((
                connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?,
                pragma("page_count")?,
                pragma("freelist_count")?,
            ))
        })?;
        if free < LEAST_FREE_PAGES {
            // Nothing to cut off.
        } else if mode != 0 {
            // Pages from the end move to free places by way of the log: in steps, it needs little
            // room.
            for _ in 0..VACUUM_STEPS.min(free.div_ceil(VACUUM_PAGES)) {
                self.write(|tx| {
                    let mut vacuum = tx.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
                    let mut rows = vacuum.query([])?;
                    while rows.next()?.is_some() {}
                    Ok(())
                })?;
                self.checkpoint();
            }
        } else if free > pages / 2 {
            self.alone("PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(PASSIVE)")?;
        }
        if self.reserve.ensure().is_err() {
            // Where it is missed, the log's own space goes back, too.
            self.alone("PRAGMA wal_checkpoint(TRUNCATE)")?;
            self.log_room.store(0, Ordering::Relaxed);
            self.reserve.refill();
        }
        Ok(())
    }

    /// Moves pages from the log to the file as far as readers and the disk allow.
    pub(super) fn checkpoint(&self) {
        let _ = self.alone("PRAGMA wal_checkpoint(PASSIVE)");
    }

    /// Runs statements that are no part of a transaction, unless one is open.
    fn alone(&self, sql: &str) -> Result<(), StoreError> {
        let writer = lock(&self.writer);
        if writer.members > 0 || self.failure().is_some() {
            return Ok(());
        }
        let done = writer.connection.execute_batch(sql);
        if let Err(error) = &done
            && is_lost(error)
        {
            self.fail(&self.path, error);
        }
        Ok(done?)
    }
}
