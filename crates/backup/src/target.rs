//! Where copies are written: files by name, each whole or absent.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;

use shoal_store::Opened;

use crate::BackupError;

/// A place for copies. Names are relative paths.
pub trait Target: Send + Sync + Debug {
    /// As a user names it.
    fn location(&self) -> String;

    /// Writes a file, durable on return. Others see all of it or nothing.
    ///
    /// # Errors
    /// The target's.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError>;

    /// The same for many, from where they begin; returns their bytes.
    ///
    /// # Errors
    /// The target's.
    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError>;

    /// A file's bytes, if it is there.
    ///
    /// # Errors
    /// The target's.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError>;

    /// Bytes of a file.
    ///
    /// # Errors
    /// The target's; the file is missing or shorter.
    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError>;

    /// Writes a file's bytes into another, from this place on; returns their number, or `None`
    /// where the file is missing.
    ///
    /// # Errors
    /// The target's, or the other file's.
    fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, BackupError>;

    /// All files below a folder, with their lengths.
    ///
    /// # Errors
    /// The target's.
    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError>;

    /// Removes files, in this order; missing ones do not matter.
    ///
    /// # Errors
    /// The target's.
    fn remove(&self, names: &[String]) -> Result<(), BackupError>;

    /// Keeps others from writing as long as the guard lives.
    ///
    /// # Errors
    /// [`BackupError::Busy`]; the target's.
    fn lock(&self) -> Result<Box<dyn Guard>, BackupError>;
}

/// Removed between two looks at the lock.
const REMOVED_AT_ONCE: usize = 64;

/// A target that is written to only while its lock is held: another process that has the lock
/// relies on what is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) guard: &'a dyn Guard,
}

impl Target for Held<'_> {
    fn location(&self) -> String {
        self.target.location()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.guard.ensure()?;
        self.target.put(name, bytes)
    }

    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        self.guard.ensure()?;
        self.target.put_all(files)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError> {
        self.target.read(name)
    }

    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError> {
        self.target.read_range(name, at, length)
    }

    fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, BackupError> {
        self.target.fetch(name, to, at)
    }

    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        self.target.list(folder)
    }

    fn remove(&self, names: &[String]) -> Result<(), BackupError> {
        for names in names.chunks(REMOVED_AT_ONCE) {
            self.guard.ensure()?;
            self.target.remove(names)?;
        }
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        self.target.lock()
    }
}

/// The right to write to a target.
pub trait Guard: Send + Sync + Debug {
    /// Whether it still has it.
    ///
    /// # Errors
    /// [`BackupError::Busy`] when another process took it meanwhile; [`BackupError::Remote`] when
    /// one may have, as the target does not answer.
    fn ensure(&self) -> Result<(), BackupError>;
}
