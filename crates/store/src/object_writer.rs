//! Objects' files: how one is written, when it lasts and when it goes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use shoal_encryption::{DataKey, Envelope, Sealer};

use crate::StoreError;
use crate::block_sums::{BLOCK_BYTES, BlockHasher};
use crate::data_dir::{hex, random_hex, sync_parent};
use crate::error::io_at;
use crate::file_copies::{copy_data, link_or_copy};
use crate::part_places::{Place, Slot};
use crate::write_behind::WriteBehind;

/// The sandbox maps its user to another id than the file's owner, and an overlay lets a script
/// write its own copy only where it might write the original. The data directory's mode keeps other
/// users out, and channels are mounted read-only.
pub(crate) const FILE_MODE: u32 = 0o666;

/// Content up to this length is not synced by itself: it goes into the index together with its row
/// ([`crate::Objects::commit`]).
pub(crate) const SMALL: usize = 64 * 1024;
/// Zeros that come in pieces of this length or more are left out of the file: a hole reads the same
/// and takes no room.
const HOLE: usize = 32 * 1024;

/// The file of an object that is not yet one. Counts and hashes what is written; removed on drop
/// unless committed ([`crate::Objects::commit`], [`crate::Objects::commit_part`]).
#[derive(Debug)]
pub struct ObjectWriter {
    file: ObjectFile,
    hash: ContentHash,
    /// Encrypts what is written: file and hash get ciphertext.
    seal: Option<(Box<Sealer>, Envelope)>,
}

/// The file alone, for those who hash on another thread.
#[derive(Debug)]
pub struct ObjectFile {
    file: File,
    /// What is not yet in the file. As long as that is all, the object is small.
    buffer: Vec<u8>,
    /// The file's length is to be set at its end.
    ends_in_hole: bool,
    /// Zeros may be left out, as nothing lies there.
    is_hole: bool,
    behind: WriteBehind,
    written: Written,
}

/// The hashes of what an object's file gets: MD5 of all of it, and a sum of each block.
#[derive(Debug)]
pub struct ContentHash {
    md5: Md5,
    blocks: BlockHasher,
}

/// A complete file, or a part in its slot, that waits for its row; removed on drop unless a row
/// names it ([`Written::named`]).
#[derive(Debug)]
pub(crate) struct Written {
    id: String,
    home: Home,
    size: u64,
    md5: [u8; 16],
    sums: Vec<u8>,
    /// Of an encrypted content: its wrapped key, and its blocks' seals.
    sealed: Option<(Envelope, Vec<u8>)>,
    kept: bool,
}

/// Where bytes are written.
#[derive(Debug)]
enum Home {
    /// A file of their own.
    Own(PathBuf),
    /// A part's place in a file that others share.
    Slot(Slot),
}

impl ContentHash {
    /// Takes what the file gets, in the same order.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.blocks.update(bytes);
    }
}

impl ObjectFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// I/O.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(bytes).map_err(|error| io_at("write", self.written.path())(error))
    }

    /// One writer again. The hash must have taken what the file got.
    pub fn with(self, hash: ContentHash) -> ObjectWriter {
        ObjectWriter { file: self, hash, seal: None }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Home::Slot(slot) = &self.written.home
            && self.written.size + bytes.len() as u64 > slot.length
        {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the part is longer than was said"));
        }
        if self.buffer.len() + bytes.len() > SMALL {
            self.flush()?;
        }
        if bytes.len() > SMALL {
            self.put(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        self.written.size += bytes.len() as u64;
        self.behind.wrote(&self.file, self.start() + self.written.size - self.buffer.len() as u64);
        Ok(())
    }

    /// Where in the file it begins.
    fn start(&self) -> u64 {
        match &self.written.home {
            Home::Own(_) => 0,
            Home::Slot(slot) => slot.start,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.put(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.ends_in_hole = self.is_hole && bytes.len() >= HOLE && is_zero(bytes);
        if self.ends_in_hole { self.file.seek_relative(bytes.len() as i64) } else { self.file.write_all(bytes) }
    }

    /// The file as it was written, with its length.
    fn close(mut self) -> io::Result<(File, Written)> {
        self.flush()?;
        // A file with slots is long enough from the beginning.
        if self.ends_in_hole && matches!(self.written.home, Home::Own(_)) {
            self.file.set_len(self.written.size)?;
        }
        Ok((self.file, self.written))
    }
}

/// By pages, so that what begins with something else costs nothing, and the processor compares many
/// bytes at once.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|page| page.iter().fold(0, |all, byte| all | byte) == 0)
}

impl ObjectWriter {
    pub(crate) fn create(files: &Path) -> Result<Self, StoreError> {
        let written = Written::new(files)?;
        let path = written.path();
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(path)
            .map_err(io_at("create", path))?;
        // The umask has had its say at creation.
        file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(io_at("set the mode of", path))?;
        Ok(Self::to(file, true, written))
    }

    /// Of a part that is written to its slot.
    pub(crate) fn in_slot(slot: Slot) -> Result<Self, StoreError> {
        let ready = |slot: &Slot| {
            let (mut file, is_hole) = slot.open()?;
            file.seek(io::SeekFrom::Start(slot.start))?;
            Ok((file, is_hole))
        };
        let (file, is_hole) = ready(&slot).map_err(io_at("write", slot.path()))?;
        Ok(Self::to(file, is_hole, Written::at(Home::Slot(slot), random_hex::<16>()?)))
    }

    fn to(file: File, is_hole: bool, written: Written) -> Self {
        let mut file = ObjectFile {
            file,
            buffer: Vec::new(),
            ends_in_hole: false,
            is_hole,
            behind: WriteBehind::default(),
            written,
        };
        file.behind = WriteBehind::from(file.start());
        Self { file, hash: ContentHash { md5: Md5::new(), blocks: BlockHasher::new() }, seal: None }
    }

    /// Encrypts what is written from now on under a data key, whose envelope the object gets.
    /// Nothing was written so far.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn under(mut self, key: Option<(DataKey, Envelope)>) -> Result<Self, StoreError> {
        debug_assert!(self.size() == 0, "a content is encrypted from its beginning");
        if let Some((data, envelope)) = key {
            let block_bytes = usize::try_from(BLOCK_BYTES).expect("a block fits in memory");
            self.seal = Some((Box::new(Sealer::new(&data, block_bytes)?), envelope));
        }
        Ok(self)
    }

    /// What is written is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.seal.is_some()
    }

    /// The file and the hash, for two threads; [`ObjectFile::with`] makes one of them again. `Err`:
    /// what is written is encrypted, which is for one thread.
    ///
    /// # Errors
    /// As above.
    pub fn split(self) -> Result<(ObjectFile, ContentHash), Box<Self>> {
        if self.is_encrypted() { Err(Box::new(self)) } else { Ok((self.file, self.hash)) }
    }

    /// Bytes written so far.
    pub fn size(&self) -> u64 {
        self.file.written.size + self.seal.as_ref().map_or(0, |(sealer, _)| sealer.pending() as u64)
    }

    /// MD5 of what was written so far; of what is encrypted that of its blocks' ciphertext.
    pub fn md5(&self) -> [u8; 16] {
        self.hash.md5.clone().finalize().into()
    }

    /// Appends bytes; as [`Write::write_all`], with an error that names the file.
    ///
    /// # Errors
    /// I/O.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Self { file, hash, seal } = self;
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
            file.append(bytes)
        };
        match seal {
            Some((sealer, _)) => sealer.push(bytes, put),
            None => put(bytes),
        }
    }

    /// Appends bytes of a file without carrying them through this process; neither their MD5 nor
    /// their sums are computed.
    pub(crate) fn append_range(&mut self, path: &Path, start: u64, size: u64) -> Result<(), StoreError> {
        let mut from = File::open(path).map_err(io_at("open", path))?;
        self.file.flush().map_err(io_at("write", self.file.written.path()))?;
        let ObjectFile { file, written, ends_in_hole, behind, .. } = &mut self.file;
        copy_data(&mut from, start, size, file, written.size).map_err(io_at("write", written.path()))?;
        written.size += size;
        // What is appended next goes behind all of it.
        *ends_in_hole |= size > 0;
        behind.wrote(file, written.size);
        Ok(())
    }

    /// Makes the content and the file's name durable, or returns the content where it is small: the
    /// caller then keeps it in the index until the file is durable, too.
    pub(crate) fn finish(self) -> Result<(Written, Option<Vec<u8>>), StoreError> {
        let Self { mut file, mut hash, seal } = self;
        let sealed = seal.map(|(sealer, envelope)| {
            let seals = sealer.finish(|bytes| {
                hash.update(bytes);
                file.append(bytes)
            });
            seals.map(|seals| (envelope, seals))
        });
        file.written.sealed = sealed.transpose()?;
        let is_small = file.buffer.len() as u64 == file.written.size && matches!(file.written.home, Home::Own(_));
        let small = is_small.then(|| file.buffer.clone());
        let path = file.written.path().to_owned();
        let (file, mut written) = file.close().map_err(io_at("write", &path))?;
        written.md5 = hash.md5.finalize().into();
        written.sums = hash.blocks.finish();
        if small.is_some() {
            return Ok((written, small));
        }
        file.sync_all().map_err(io_at("sync", &path))?;
        match &written.home {
            Home::Own(path) => sync_parent(path)?,
            Home::Slot(slot) => slot.sync_name()?,
        }
        Ok((written, None))
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { file, hash, seal } = self;
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
            file.write(bytes)
        };
        match seal {
            Some((sealer, _)) => sealer.push(bytes, put)?,
            None => put(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Written {
    fn new(files: &Path) -> Result<Self, StoreError> {
        let id = random_hex::<16>()?;
        Ok(Self::at(Home::Own(file_path(files, &id)), id))
    }

    fn at(home: Home, id: String) -> Self {
        Self { id, home, size: 0, md5: [0; 16], sums: Vec::new(), sealed: None, kept: false }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.home {
            Home::Own(path) => path,
            Home::Slot(slot) => slot.path(),
        }
    }

    /// Where a part is that has no file of its own.
    pub(crate) fn place(&self) -> Option<Place> {
        match &self.home {
            Home::Own(_) => None,
            Home::Slot(slot) => Some(slot.place()),
        }
    }

    /// The number of the part whose slot this is.
    pub(crate) fn number(&self) -> Option<u32> {
        match &self.home {
            Home::Own(_) => None,
            Home::Slot(slot) => Some(slot.number),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Of the blocks; not of what came by [`ObjectWriter::append_range`].
    pub(crate) fn sums(&self) -> &[u8] {
        &self.sums
    }

    /// The wrapped key of an encrypted content.
    pub(crate) fn envelope(&self) -> Option<&Envelope> {
        self.sealed.as_ref().map(|(envelope, _)| envelope)
    }

    /// Of an encrypted content.
    pub(crate) fn seals(&self) -> Option<&[u8]> {
        self.sealed.as_ref().map(|(_, seals)| seals.as_slice())
    }

    pub(crate) fn md5_hex(&self) -> String {
        hex(&self.md5)
    }

    /// Keeps the file if a row names it now, or if a row may name it at the next start, which
    /// sweeps it otherwise.
    pub(crate) fn named<T>(mut self, row: Result<T, StoreError>) -> Result<T, StoreError> {
        self.kept = matches!(row, Ok(_) | Err(StoreError::NotDurable(_)));
        match &mut self.home {
            Home::Slot(slot) if self.kept => slot.keep(),
            _ => {}
        }
        row
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        match &self.home {
            // What cannot be removed now is swept at the next start.
            Home::Own(path) if !self.kept => drop(fs::remove_file(path)),
            _ => {}
        }
    }
}

/// A second name for an object's file, or a copy where it can have no more names; `None` if the
/// file has gone.
pub(crate) fn link(files: &Path, source: &Path) -> Result<Option<Written>, StoreError> {
    let written = Written::new(files)?;
    let path = written.path();
    match link_or_copy(source, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_at("link", path)(error)),
    }
    // A small source may be durable in the index only, and that under its own name.
    File::open(path).and_then(|file| file.sync_all()).map_err(io_at("sync", path))?;
    sync_parent(path)?;
    Ok(Some(written))
}

/// Makes the directories of [`file_path`], once, so that no write has to.
pub(crate) fn make_shards(files: &Path) -> Result<(), StoreError> {
    for shard in 0..=u8::MAX {
        let path = files.join(hex(&[shard]));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_at("create", &path)(error)),
            _ => {}
        }
    }
    File::open(files).and_then(|dir| dir.sync_all()).map_err(io_at("sync", files))
}

/// `<first two digits>/<id>`, so that no directory gets too many entries.
pub(crate) fn file_path(files: &Path, id: &str) -> PathBuf {
    files.join(&id[..2]).join(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::file_copies::copy;

    #[test]
    fn zeros_take_no_room_and_read_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        make_shards(dir.path()).unwrap();
        let write = |pieces: &[(u8, usize)], length: usize| {
            let mut writer = ObjectWriter::create(dir.path()).unwrap();
            let content = pieces.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect::<Vec<_>>();
            content.chunks(length).for_each(|piece| writer.append(piece).unwrap());
            (content, writer)
        };
        let room = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        for length in [1000, 8192, 256 << 10] {
            for pieces in [
                vec![(1, 10), (0, 8 << 20), (2, 10)],
                vec![(0, 8 << 20)],
                vec![(3, 100_000), (0, 8 << 20)],
                vec![(0, 10)],
            ] {
                let (content, writer) = write(&pieces, length);
                let (md5, (written, small)) = (writer.md5(), writer.finish().unwrap());
                assert!(fs::read(written.path()).unwrap() == content, "{pieces:?} by {length}");
                assert_eq!((written.size(), written.md5), (content.len() as u64, md5));
                assert_eq!(small.is_some(), content.len() <= SMALL);
                assert!(room(written.path()) < 1 << 20, "{pieces:?} by {length}: {} bytes", room(written.path()));
            }
        }
        // Parts that are put together, and a copy.
        let mut whole = ObjectWriter::create(dir.path()).unwrap();
        let mut expected = Vec::new();
        for pieces in [[(5, 70_000), (0, 4 << 20)], [(0, 4 << 20), (6, 70_000)], [(0, 4 << 20), (0, 1)]] {
            let (content, writer) = write(&pieces, 64 << 10);
            let (part, _) = writer.finish().unwrap();
            whole.append_range(part.path(), 0, part.size()).unwrap();
            expected.extend(content);
        }
        let (written, _) = whole.finish().unwrap();
        let other = dir.path().join("copy");
        copy(written.path(), &other).unwrap();
        for path in [written.path(), &other] {
            assert!(fs::read(path).unwrap() == expected);
            assert!(room(path) < 1 << 20, "{}", room(path));
        }
    }
}
