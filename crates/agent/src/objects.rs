//! The node's cache of objects: what a remote server's jobs read, fetched once for all jobs of a
//! user. An object never changes, so its id is enough to find it; its file is named by the SHA-256
//! of its content, too, and is compared with it each time before a job gets it.
//!
//! `ID/SHA256` is an object. A file appears whole or not at all. Who works on an object holds a
//! lock that ends with the process, so that two agents fetch nothing twice. The least recently used
//! files are removed when there are more bytes than the limit; those that a job reads stay, since
//! removing their second name would free nothing. What is encrypted on the server goes with jobs.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use hex_simd::AsciiCase;
use sha2::{Digest, Sha256};
use shoal_link::PRIVATE_ID;

use crate::part_files::{PART, PartFiles};

/// Ends the names of directories of objects that are here in parts.
const PARTS: &str = "-parts";
/// Locks that objects share by the first letters of their ids.
const LOCKS: &str = "locks";
pub(crate) const POLL: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 1 << 20;
/// Of a SHA-256, which names an object's file.
const DIGEST_LETTERS: usize = 64;
/// As objects of a local server have it: programs of another user change copies of them, in a layer
/// of their own.
pub(crate) const MODE: u32 = 0o666;

/// The cache of a user on this machine.
#[derive(Debug, Clone)]
pub struct ObjectCache {
    dir: PathBuf,
    max_bytes: u64,
}

/// Why an object is not at its place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// It came otherwise than the server sent it, twice.
    #[error(
        "object {id} arrived damaged: its SHA-256 is {found}, and {expected} was sent; try again, and look at the \
         memory and the network of this machine"
    )]
    Damaged {
        /// Its id.
        id: String,
        /// Of what came.
        found: String,
        /// Of what was sent.
        expected: String,
    },
    /// The job is being stopped.
    #[error("stopped")]
    Stopped,
    /// This machine, or the connection.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PlaceError {
    /// The disk has no space left.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::StorageFull)
    }
}

/// Writes an object's content; gives its SHA-256 as the sender has it.
pub(crate) type Fetch<'a> = dyn FnMut(&mut File) -> Result<String, PlaceError> + 'a;

/// Keeps objects and makes names of them in trees.
pub(crate) trait Keeps {
    /// Makes `target` a name of the object. `fetch` brings it if it is not here, or damaged.
    fn place(
        &self,
        id: &str,
        size: u64,
        target: &Path,
        fetch: &mut Fetch<'_>,
        is_to_stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), PlaceError>;

    /// Removes what has not been used for longest until the rest is within the limit.
    fn trim(&self) -> io::Result<()>;

    /// Removes all that no job has: the disk is full.
    fn make_room(&self) -> io::Result<()>;
}

impl Keeps for ObjectCache {
    /// Or a copy where no second name can be had.
    fn place(
        &self,
        id: &str,
        size: u64,
        target: &Path,
        fetch: &mut Fetch<'_>,
        is_to_stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), PlaceError> {
        if id.len() < 2 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(io::Error::other(format!("\"{id}\" is no id of an object")).into());
        }
        let _lock = self.wait_for_lock(id, is_to_stop)?;
        let file = match self.sound(id, size)? {
            Some(file) => file,
            None => self.bring(id, fetch)?,
        };
        File::open(&file)?.set_times(FileTimes::new().set_accessed(SystemTime::now()))?;
        if fs::hard_link(&file, target).is_err() {
            fs::copy(&file, target)?;
        }
        Ok(())
    }

    fn trim(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for object in entries(&self.dir)?.into_iter().filter(|entry| entry.file_name() != LOCKS) {
            for entry in entries(&object.path())? {
                // One that another agent has just removed takes no space.
                let Ok(metadata) = entry.metadata() else { continue };
                let used = (metadata.atime(), metadata.atime_nsec());
                let is_parts = object.file_name().to_string_lossy().ends_with(PARTS);
                // What is missing of it takes no space.
                let size = if is_parts { metadata.blocks() * 512 } else { metadata.len() };
                files.push((used, size, object.file_name(), entry.path()));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, size, ..)| size).sum();
        for (used, size, id, path) in files {
            if bytes <= self.max_bytes && !id.to_string_lossy().starts_with(PRIVATE_ID) {
                continue;
            }
            // Another agent uses it.
            let Some(_lock) = self.lock(&id.to_string_lossy())? else { continue };
            let Ok(now) = fs::metadata(&path) else { continue };
            if now.nlink() > 1 || (now.atime(), now.atime_nsec()) != used {
                continue;
            }
            // One that is here in parts has no second name while a job reads it.
            if id.to_string_lossy().ends_with(PARTS) && is_open(&path)? {
                continue;
            }
            fs::remove_file(&path)?;
            bytes -= size;
            // It fails if there is another file.
            let _ = path.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    fn make_room(&self) -> io::Result<()> {
        Self { max_bytes: 0, ..self.clone() }.trim()
    }
}

impl ObjectCache {
    /// The cache in a directory, made when it is first needed.
    #[must_use]
    pub fn new(dir: PathBuf, max_bytes: u64) -> Self {
        Self { dir, max_bytes }
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The object's file, if it is here as it came.
    fn sound(&self, id: &str, size: u64) -> io::Result<Option<PathBuf>> {
        for entry in entries(&self.dir.join(id))? {
            let is_sound =
                entry.metadata()?.len() == size && entry.file_name().to_str() == Some(&*digest(&entry.path())?);
            if is_sound {
                return Ok(Some(entry.path()));
            }
            // Half a file of an agent that was killed, or one that has changed.
            fs::remove_file(entry.path())?;
        }
        Ok(None)
    }

    fn bring(&self, id: &str, fetch: &mut Fetch<'_>) -> Result<PathBuf, PlaceError> {
        let dir = self.dir.join(id);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let draft = dir.join("draft");
        let mut before = None;
        loop {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&draft)?;
            let sent = fetch(&mut file).inspect_err(|_| {
                // On a full disk half an object would keep all other jobs from running here.
                let _ = fs::remove_file(&draft).and_then(|()| fs::remove_dir(&dir));
            })?;
            drop(file);
            let found = digest(&draft)?;
            if found == sent {
                // The mode that it was opened with lacks what the process's mask takes away.
                fs::set_permissions(&draft, Permissions::from_mode(MODE))?;
                fs::rename(&draft, dir.join(&found))?;
                return Ok(dir.join(found));
            }
            if before.replace(()).is_some() {
                return Err(PlaceError::Damaged { id: id.to_owned(), found, expected: sent });
            }
        }
    }

    /// The file of an object that is here in parts, and that of their sums, as they are or empty.
    /// Both stay while the first is open.
    pub(crate) fn parts(&self, id: &str, size: u64) -> io::Result<(File, File)> {
        if id.len() < 2 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(io::Error::other(format!("\"{id}\" is no id of an object")));
        }
        let dir = self.dir.join(format!("{id}{PARTS}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(name))
        };
        let (data, sums) = (open("data")?, open("sums")?);
        data.lock_shared()?;
        if data.metadata()?.len() != size {
            // Of another one with this id there is nothing.
            sums.set_len(0)?;
            data.set_len(size)?;
        }
        let used = FileTimes::new().set_accessed(SystemTime::now());
        data.set_times(used)?;
        sums.set_times(used)?;
        Ok((data, sums))
    }

    /// Whether the object's file is here, by its length.
    pub(crate) fn has(&self, id: &str, size: u64) -> bool {
        self.whole(id, size).is_some()
    }

    /// A part of an object that is here as a whole or in parts; it may have changed on the disk.
    /// `None`: nothing of the object is here.
    pub(crate) fn read_part(&self, id: &str, size: u64, part: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(whole) = self.whole(id, size) else {
            return PartFiles::open(self, id, size)?.sound(part);
        };
        let offset = part as u64 * PART;
        let mut content = vec![0; usize::try_from(PART.min(size.saturating_sub(offset))).map_err(io::Error::other)?];
        File::open(whole)?.read_exact_at(&mut content, offset)?;
        Ok(Some(content))
    }

    /// Makes an object of its parts, if all are here as they came; `false` if not.
    pub(crate) fn join_parts(
        &self,
        id: &str,
        size: u64,
        is_to_stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool, PlaceError> {
        let _lock = self.wait_for_lock(id, is_to_stop)?;
        if self.has(id, size) {
            return Ok(true);
        }
        let (files, mut hash) = (PartFiles::open(self, id, size)?, Sha256::new());
        for part in 0..PartFiles::count(size)? {
            match files.sound(part)? {
                Some(content) => hash.update(&content),
                None => return Ok(false),
            }
        }
        let (dir, parts) = (self.dir.join(id), self.dir.join(format!("{id}{PARTS}")));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        files.data().set_permissions(Permissions::from_mode(MODE))?;
        fs::rename(parts.join("data"), dir.join(hex_simd::encode_to_string(hash.finalize(), AsciiCase::Lower)))?;
        // Another agent of this node may write a new one there; its age decides when that goes.
        let _ = fs::remove_file(parts.join("sums")).and_then(|()| fs::remove_dir(parts));
        Ok(true)
    }

    fn whole(&self, id: &str, size: u64) -> Option<PathBuf> {
        let files = entries(&self.dir.join(id)).ok()?;
        let is_whole = |entry: &fs::DirEntry| {
            entry.file_name().len() == DIGEST_LETTERS && entry.metadata().is_ok_and(|it| it.len() == size)
        };
        files.iter().find(|entry| is_whole(entry)).map(fs::DirEntry::path)
    }

    /// Its limit.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn wait_for_lock(&self, id: &str, is_to_stop: &mut dyn FnMut() -> bool) -> Result<File, PlaceError> {
        loop {
            if is_to_stop() {
                return Err(PlaceError::Stopped);
            }
            if let Some(lock) = self.lock(id)? {
                return Ok(lock);
            }
            thread::sleep(POLL);
        }
    }

    fn lock(&self, id: &str) -> io::Result<Option<File>> {
        let locks = self.dir.join(LOCKS);
        DirBuilder::new().recursive(true).mode(0o700).create(&locks)?;
        let name = id.get(..2).unwrap_or(id);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(locks.join(name))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Whether an agent has the parts of which this is a file.
fn is_open(path: &Path) -> io::Result<bool> {
    match File::open(path.with_file_name("data")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(data) => Ok(data.try_lock().is_err()),
    }
}

/// What is in a directory; nothing if there is none.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

pub(crate) fn digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex_simd::encode_to_string(hash.finalize(), AsciiCase::Lower)),
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
