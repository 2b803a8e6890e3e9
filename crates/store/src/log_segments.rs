//! Files of compressed log blocks, `logs/<id>`. A segment belongs to one stream, is written once
//! and synced before any row names it; deleting a log removes its files, so that the space is free
//! at once.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::StoreError;
use crate::data_dir::{random_hex, sync_parent};
use crate::error::io_at;

/// The directory of the segments of one `telemetry.db`.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    dir: PathBuf,
}

/// A file that is being written.
pub(crate) struct SegmentWriter {
    path: PathBuf,
    file: String,
    bytes: Vec<u8>,
}

impl Segments {
    /// The directory beside this database, made if missing.
    pub(crate) fn beside(database: &Path) -> Result<Self, StoreError> {
        let dir = database.with_file_name("logs");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io_at("create", &dir))?;
        Ok(Self { dir })
    }

    /// The segments in this directory, to be read.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Begins a segment, in memory.
    pub(crate) fn writer(&self) -> Result<SegmentWriter, StoreError> {
        let file = random_hex::<16>()?;
        Ok(SegmentWriter { path: self.dir.join(&file), file, bytes: Vec::new() })
    }

    /// The block at this place; `None` if the file has been removed meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: the checksum of the zlib stream (RFC 1950) does not match.
    pub(crate) fn read(&self, file: &str, offset: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.dir.join(file);
        let segment = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io_at("open", &path))?,
        };
        let mut compressed = vec![0; length];
        let mut block = Vec::with_capacity(length * 4);
        let read = segment
            .read_exact_at(&mut compressed, offset)
            .and_then(|()| ZlibDecoder::new(&compressed[..]).read_to_end(&mut block));
        match read {
            Ok(_) => Ok(Some(block)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData
                ) =>
            {
                Err(StoreError::Corrupt { path, detail: format!("the block of log lines at byte {offset} is damaged") })
            }
            Err(error) => Err(io_at("read", &path)(error)),
        }
    }

    /// Removes files that no row names any more. One that cannot be removed now is removed at the
    /// next start.
    pub(crate) fn remove<'a>(&self, files: impl IntoIterator<Item = &'a String>) {
        for file in files {
            let _ = fs::remove_file(self.dir.join(file));
        }
    }

    /// Removes all files but these: a crash came between a file and its row, or between a row's end
    /// and its file's.
    pub(crate) fn retain(&self, named: &HashSet<String>) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.dir).map_err(io_at("list", &self.dir))? {
            let entry = entry.map_err(io_at("list", &self.dir))?;
            if !entry.file_name().to_str().is_some_and(|name| named.contains(name)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

impl SegmentWriter {
    /// Compresses a block; returns where it is, as offset and length in bytes.
    pub(crate) fn push(&mut self, block: &[u8]) -> (u64, u64) {
        let offset = self.bytes.len();
        let mut encoder = ZlibEncoder::new(&mut self.bytes, Compression::fast());
        encoder.write_all(block).and_then(|()| encoder.finish().map(drop)).expect("writing to memory cannot fail");
        (offset as u64, (self.bytes.len() - offset) as u64)
    }

    /// Writes the file and waits until the disk has it; returns its name and size. Nothing of it is
    /// left after an error.
    pub(crate) fn finish(self) -> Result<(String, u64), StoreError> {
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
            file.write_all(&self.bytes)?;
            file.sync_data()
        };
        let written = write().map_err(io_at("write", &self.path)).and_then(|()| sync_parent(&self.path));
        if written.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        written.map(|()| (self.file, self.bytes.len() as u64))
    }
}
