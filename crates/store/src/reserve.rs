//! Space kept for a full disk: what ends jobs, and so frees what they fill the disk with, must
//! still be written then.
//!
//! A file of [`BYTES`] bytes in the data directory, `reserve`. A control write (facts, deletes,
//! acknowledgements) that finds no room shortens the file by a step, tries again, and takes the
//! space back when there is some. Objects, training jobs, log lines and metric points are accepted
//! only while the file is complete or can be made so: they never use the reserve.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use crate::StoreError;

const BYTES: u64 = 8 << 20;

/// How much a write takes from it: programs that fill the same disk get no more than that between
/// release and write.
pub const STEP_BYTES: u64 = 1 << 20;

/// The reserve of a data directory. It keeps nothing in memory.
#[derive(Debug, Clone)]
pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Of the data directory that is, or holds a file at, this path.
    pub(crate) fn beside(file: &Path) -> Self {
        Self { path: file.with_file_name("reserve") }
    }

    /// Makes it whole if it is not.
    ///
    /// # Errors
    /// [`StoreError::Full`]: there is no room for new work.
    pub(crate) fn ensure(&self) -> Result<(), StoreError> {
        if fs::metadata(&self.path).is_ok_and(|found| found.len() == BYTES) {
            return Ok(());
        }
        match self.take(BYTES) {
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Err(StoreError::Full(self.path.parent().unwrap_or(&self.path).display().to_string()))
            }
            // In a directory that cannot be written the write itself says so.
            _ => Ok(()),
        }
    }

    /// Takes back what is left of it, before others do.
    pub(crate) fn refill(&self) {
        let _ = (0..8).find(|halvings| self.take(BYTES >> halvings).is_ok());
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => (0..bytes >> 16).try_for_each(|_| file.write_all(&[0; 1 << 16])),
            done => done.map_err(io::Error::from),
        }
    }

    /// Gives a step of its space away; returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let left = fs::metadata(&self.path).map_or(0, |found| found.len());
        if left <= STEP_BYTES {
            return fs::remove_file(&self.path).is_ok();
        }
        OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(left - STEP_BYTES)).is_ok()
    }

    /// Runs `work` until it finds room or the reserve has no more to give.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn with_room<T>(&self, mut work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut is_released = false;
        let result = loop {
            match work() {
                Err(StoreError::Full(_)) if self.release() => is_released = true,
                result => break result,
            }
        };
        if is_released {
            self.refill();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_until_it_is_needed_and_again_when_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("some.db"));
        for _ in 0..2 {
            reserve.ensure().unwrap();
            reserve.ensure().unwrap();
            let entries: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(entries, ["reserve"]);
            assert_eq!(fs::metadata(dir.path().join("reserve")).unwrap().len(), BYTES);
            for _ in 0..BYTES / STEP_BYTES {
                assert!(reserve.release());
            }
            assert!(!reserve.release());
        }
    }
}
