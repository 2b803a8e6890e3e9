//! Objects that are read in pieces, each compared with what was written before it is returned.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shoal_encryption::CustomerKey;

use crate::block_sums::{Block, block_at, is_block, read_block};
use crate::content_seals::Opener;
use crate::elsewhere::{Elsewhere, Remote};
use crate::error::io_at;
use crate::integrity::{PIECE_BYTES, block_text, bytes_text, parts_of};
use crate::passthrough::ForeignReader;
use crate::{ObjectMeta, Objects, StoreError};

/// An object that is read in pieces, each compared before it is returned.
#[derive(Debug)]
pub struct ObjectReader {
    /// The object.
    pub meta: ObjectMeta,
    source: Source,
    /// `None`: it was compared whole.
    sums: Option<Vec<u8>>,
    /// Decrypts an encrypted content.
    opener: Option<Opener>,
    elsewhere: Option<Arc<Elsewhere>>,
}

/// Where the content is.
#[derive(Debug)]
enum Source {
    Here(File),
    Elsewhere(Remote),
    Foreign(ForeignReader),
}

impl ObjectReader {
    /// The content of an object that fits in memory.
    ///
    /// # Errors
    /// As [`ObjectReader::read`].
    pub fn read_all(&self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < self.meta.size {
            bytes.extend(self.read(bytes.len() as u64, self.meta.size)?);
        }
        Ok(bytes)
    }

    /// Bytes from `at` to `end` or to the end of the block that `at` is in, whichever comes first.
    ///
    /// # Errors
    /// [`StoreError::DamagedObject`], [`StoreError::Elsewhere`]; I/O.
    pub fn read(&self, at: u64, end: u64) -> Result<Vec<u8>, StoreError> {
        let unread = |source| StoreError::Io { what: "read", path: "objects".into(), source };
        let sums = match (&self.source, &self.sums) {
            (Source::Foreign(foreign), _) => return foreign.read(&self.meta, at, end),
            (Source::Here(file), None) if self.opener.is_none() => {
                let length = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                let mut piece = vec![0; length];
                file.read_exact_at(&mut piece, at).map_err(unread)?;
                return Ok(piece);
            }
            (_, sums) => sums.as_deref().unwrap_or_default(),
        };
        let parts = parts_of(&self.meta);
        let Some(block) = block_at(&parts, at) else {
            return Err(self.damaged(format!("it has no byte {at}")));
        };
        let mut bytes = match &self.source {
            Source::Elsewhere(remote) => self.read_remote(remote, block, sums)?,
            Source::Foreign(foreign) => return foreign.read(&self.meta, at, end),
            // It was compared whole.
            Source::Here(file) if self.sums.is_none() => {
                let mut bytes = vec![0; place(block.end - block.start)];
                file.read_exact_at(&mut bytes, block.start).map_err(unread)?;
                bytes
            }
            Source::Here(file) => match read_block(file, 0, block, sums).map_err(unread)? {
                Some(bytes) => bytes,
                None => self.read_again(block, sums)?,
            },
        };
        if let Some(opener) = &self.opener
            && !opener.open(&parts, block.start, &mut bytes)
        {
            let detail = format!("{} do not open under its key", bytes_text(block.start, block.end));
            return Err(self.damaged(detail));
        }
        bytes.truncate(place(end.min(block.end) - block.start));
        bytes.drain(..place(at - block.start));
        Ok(bytes)
    }

    fn read_remote(&self, remote: &Remote, block: Block, sums: &[u8]) -> Result<Vec<u8>, StoreError> {
        let bytes = remote.read(block.start, block.end)?.filter(|bytes| is_block(bytes, block, sums));
        bytes.ok_or_else(|| self.damaged(format!("{}, in the store elsewhere", block_text(block.start, block.end))))
    }

    /// A block that is damaged here, from where there is another copy.
    fn read_again(&self, block: Block, sums: &[u8]) -> Result<Vec<u8>, StoreError> {
        if let Some(elsewhere) = &self.elsewhere
            && elsewhere.discard(&self.meta)?
            && let Some(remote) = elsewhere.remote(&self.meta)?
        {
            return self.read_remote(&remote, block, sums);
        }
        Err(self.damaged(block_text(block.start, block.end)))
    }

    fn damaged(&self, detail: String) -> StoreError {
        StoreError::DamagedObject { key: self.meta.key.clone(), detail }
    }
}

/// A part of an object as a stream.
#[derive(Debug)]
pub struct ObjectStream {
    reader: ObjectReader,
    at: u64,
    end: u64,
    piece: Vec<u8>,
    taken: usize,
}

impl ObjectReader {
    /// These bytes of the object as a stream.
    #[must_use]
    pub fn stream(self, range: std::ops::Range<u64>) -> ObjectStream {
        let end = range.end.min(self.meta.size);
        ObjectStream { reader: self, at: range.start, end, piece: Vec::new(), taken: 0 }
    }
}

impl io::Read for ObjectStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            if self.at >= self.end {
                return Ok(0);
            }
            self.piece = self.reader.read(self.at, self.end).map_err(io::Error::other)?;
            self.at += self.piece.len() as u64;
            self.taken = 0;
        }
        let count = buffer.len().min(self.piece.len() - self.taken);
        buffer[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("a block fits in memory")
}

impl Objects {
    /// The object of this key for reading in pieces. Nothing that is returned by this was damaged
    /// when it was read. Content that is elsewhere alone is read there.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn reader(&self, bucket: &str, key: &str) -> Result<ObjectReader, StoreError> {
        self.find(key, || self.current(bucket, key), |meta| self.open_reader(meta, None)).map(|(_, reader)| reader)
    }

    /// The same of the version with this id, or without one of the current object, whose delete
    /// marker is an error of its own; with the key of the customer, if it was encrypted under one.
    ///
    /// # Errors
    /// As [`Objects::read`], and as [`Objects::version`]; [`StoreError::Key`].
    pub fn reader_with(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        customer: Option<&CustomerKey>,
    ) -> Result<ObjectReader, StoreError> {
        let look = || self.version(bucket, key, version);
        self.find(key, look, |meta| self.open_reader(meta, customer)).map(|(_, reader)| reader)
    }

    /// The same of this object.
    ///
    /// # Errors
    /// I/O; [`io::ErrorKind::NotFound`] when the object was replaced or deleted since `meta` was
    /// read; [`StoreError::DamagedObject`]; [`StoreError::Elsewhere`]; [`StoreError::Key`].
    pub fn open_reader(&self, meta: &ObjectMeta, customer: Option<&CustomerKey>) -> Result<ObjectReader, StoreError> {
        if let Some(shown) = self.passthrough_of(meta)? {
            let source = Source::Foreign(ForeignReader::of(shown));
            return Ok(ObjectReader { meta: meta.clone(), source, sums: None, opener: None, elsewhere: None });
        }
        let (sums, opener) = (self.sums(meta)?, self.opener(meta, customer)?);
        let source = match sums {
            // It is compared whole, once.
            None => Source::Here(self.open_stored(meta)?),
            Some(_) => self.source(meta)?,
        };
        Ok(ObjectReader { meta: meta.clone(), source, sums, opener, elsewhere: self.elsewhere().cloned() })
    }

    fn source(&self, meta: &ObjectMeta) -> Result<Source, StoreError> {
        let path = self.path(meta);
        let opened = File::open(&path);
        match (&opened, self.elsewhere()) {
            (Err(error), Some(elsewhere)) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(remote) = elsewhere.remote(meta)? {
                    return Ok(Source::Elsewhere(remote));
                }
            }
            (Ok(_), Some(elsewhere)) => elsewhere.touch(meta),
            _ => {}
        }
        Ok(Source::Here(opened.map_err(io_at("open", &path))?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Attributes, DataDir, PutCondition};

    /// Flips a bit of the object's file, behind the store's back.
    fn flip(objects: &Objects, meta: &ObjectMeta, at: u64) {
        let file = OpenOptions::new().read(true).write(true).open(objects.path(meta)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }

    #[test]
    fn a_damaged_object_is_not_copied() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let written = Attributes::default();
        for (key, bytes) in [("small", vec![1; 1000]), ("long", vec![1; 3_000_000])] {
            let meta = objects.put("b", key, &bytes, &written).unwrap();
            // A start writes small objects again that may not be on the disk yet.
            drop(Objects::open(&dir).unwrap());
            flip(&objects, &meta, meta.size - 1);
            let after = Objects::open(&dir).unwrap();
            for target in ["copy", key] {
                let error = after.copy(("b", &meta), "b", target, &written, &PutCondition::Always).unwrap_err();
                assert!(matches!(&error, StoreError::DamagedObject { key: named, .. } if named == key), "{error}");
            }
            assert_eq!(after.get("b", "copy").unwrap(), None);
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_that_names_the_object() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        objects.put("b", "small", b"content", &Attributes::default()).unwrap();
        objects.put("b", "long", &long, &Attributes::default()).unwrap();
        let upload = objects.create_upload("b", "parts", &Attributes::default(), None).unwrap();
        let chosen: Vec<(u32, String)> = [&long[..], b"the last part"]
            .into_iter()
            .zip(1..)
            .map(|(bytes, number)| {
                let mut writer = objects.writer().unwrap();
                writer.append(bytes).unwrap();
                (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
            })
            .collect();
        objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
        let source = objects.get("b", "long").unwrap().unwrap();
        objects.copy(("b", &source), "b", "copy", &Attributes::default(), &PutCondition::Always).unwrap();

        for key in ["small", "long", "parts", "copy"] {
            let reader = objects.reader("b", key).unwrap();
            let (meta, bytes) = (reader.meta.clone(), reader.read_all().unwrap());
            assert_eq!(bytes.len() as u64, meta.size);
            let middle = usize::try_from(meta.size / 2).unwrap();
            let range = reader.read(meta.size / 2, meta.size / 2 + 1).unwrap();
            assert_eq!(range, bytes[middle..=middle], "{key}");
            // What was damaged while nobody looked is found at the first look after a start.
            let again = Objects::open(&dir).unwrap();
            again.reader("b", key).unwrap().read_all().unwrap();
            let tree = dir.channels_path().join(key);
            again.link_tree(&tree, &[("a", &meta)], &|| false).unwrap();
            flip(&objects, &meta, meta.size - 1);
            let after = Objects::open(&dir).unwrap();
            for error in [
                after.reader("b", key).and_then(|reader| reader.read_all()).map(drop).unwrap_err(),
                after.read("b", key).map(drop).unwrap_err(),
                after
                    .link_tree(&dir.channels_path().join(format!("{key}-again")), &[("a", &meta)], &|| false)
                    .unwrap_err(),
            ] {
                assert!(
                    matches!(&error, StoreError::DamagedObject { key: named, .. } if named == key),
                    "{key}: {error}"
                );
            }
            flip(&objects, &meta, meta.size - 1);
            assert_eq!(after.reader("b", key).unwrap().read_all().unwrap(), bytes, "{key}");
        }
        // A block is compared whenever it is read, and only that block.
        flip(&objects, &source, 0);
        let reader = objects.reader("b", "long").unwrap();
        assert!(reader.read(1, 2).is_err());
        assert_eq!(reader.read(1 << 20, (1 << 20) + 1).unwrap(), long[1 << 20..=1 << 20]);
    }
}
