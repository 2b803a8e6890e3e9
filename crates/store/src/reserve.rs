//! Space kept for a full disk: what ends jobs, and so frees what they fill the disk with, must still be written then.
//!
//! A file of [`BYTES`] bytes in the data directory, `reserve`. The first write to a database that finds no room removes it, goes on, and
//! takes back what is left of it; new work (objects, training jobs) is taken only while it is whole or can be made so.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use crate::StoreError;

/// Logs of running jobs take it too, so it is more than facts need.
const BYTES: u64 = 8 << 20;

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

    /// Gives its space away; says whether there was any.
    pub(crate) fn release(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
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
            assert!(reserve.release());
            assert!(!reserve.release());
        }
    }
}
