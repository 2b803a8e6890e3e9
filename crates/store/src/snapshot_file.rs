//! A snapshot of the journal's state: one file beside the database, replaced as a whole. It is
//! large, and written while events are appended: in pieces, each made durable before the next, so
//! that no append waits for more than a piece.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// What is written at a time.
const PIECE: usize = 1 << 20;
const MAGIC: &[u8; 8] = b"SHOALSN1";
/// Magic, version, length.
const HEADER: usize = 24;

/// The file of a database at some path.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
}

impl SnapshotFile {
    /// `shoal.snapshot` beside `shoal.db`.
    pub(crate) fn beside(database: &Path) -> Self {
        Self { path: database.with_extension("snapshot") }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The snapshot and its version, if there is one.
    pub(crate) fn read(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let mut bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| StoreError::Io { what: "read", path: self.path.clone(), source })?,
        };
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        match (bytes.starts_with(MAGIC), number(8), number(16)) {
            (true, Some(version), Some(length)) if bytes.len() as u64 == HEADER as u64 + length => {
                bytes.drain(..HEADER);
                Ok(Some((version, bytes)))
            }
            _ => Err(StoreError::Corrupt { path: self.path.clone(), detail: "it is no whole snapshot".to_owned() }),
        }
    }

    /// Replaces the file, durable on return.
    pub(crate) fn write(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let draft = self.path.with_extension("snapshot.new");
        let written = (|| {
            let mut file = File::create(&draft)?;
            file.write_all(&[&MAGIC[..], &version.to_le_bytes(), &(bytes.len() as u64).to_le_bytes()].concat())?;
            for piece in bytes.chunks(PIECE) {
                file.write_all(piece)?;
                file.sync_data()?;
            }
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
        })();
        written.map_err(|source: io::Error| {
            // One that could not even be made is not there.
            let _ = fs::remove_file(&draft);
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    StoreError::Full(self.path.display().to_string())
                }
                _ => StoreError::Io { what: "write", path: self.path.clone(), source },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = SnapshotFile::beside(&dir.path().join("shoal.db"));
        assert_eq!(file.path(), dir.path().join("shoal.snapshot"));
        assert!(file.read().unwrap().is_none());
        for (version, bytes) in [(7, Vec::new()), (8, vec![1; 3 * PIECE + 5])] {
            file.write(version, &bytes).unwrap();
            assert_eq!(file.read().unwrap(), Some((version, bytes)));
        }
        let whole = fs::read(file.path()).unwrap();
        for cut in [0, 10, HEADER, whole.len() - 1] {
            fs::write(file.path(), &whole[..cut]).unwrap();
            assert!(matches!(file.read(), Err(StoreError::Corrupt { .. })), "{cut}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }
}
