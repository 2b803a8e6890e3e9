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
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn cache(max_bytes: u64) -> (tempfile::TempDir, ObjectCache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = ObjectCache::new(dir.path().join("objects"), max_bytes);
        (dir, cache)
    }

    fn sha256(content: &[u8]) -> String {
        hex_simd::encode_to_string(Sha256::digest(content), AsciiCase::Lower)
    }

    /// Places an object; returns whether it was fetched.
    fn place(cache: &ObjectCache, id: &str, content: &[u8], target: &Path) -> bool {
        let fetched = Cell::new(false);
        let mut fetch = |to: &mut File| {
            fetched.set(true);
            to.write_all(content)?;
            Ok(sha256(content))
        };
        cache.place(id, content.len() as u64, target, &mut fetch, &mut || false).unwrap();
        assert_eq!(fs::read(target).unwrap(), content);
        fetched.get()
    }

    #[test]
    fn an_object_is_fetched_once_and_again_when_it_has_changed() {
        let (dir, cache) = cache(1 << 20);
        let target = |name: &str| dir.path().join(name);
        assert!(place(&cache, "aa01", b"content", &target("one")));
        assert!(!place(&cache, "aa01", b"content", &target("two")));
        assert_eq!(fs::metadata(target("two")).unwrap().nlink(), 3, "it takes space once");
        assert_eq!(fs::metadata(target("two")).unwrap().mode() & 0o777, MODE);
        // A plain process of the same user has written into it.
        fs::remove_file(target("two")).unwrap();
        fs::write(target("one"), b"changed").unwrap();
        assert!(place(&cache, "aa01", b"content", &target("three")));
        assert_eq!(fs::read(target("one")).unwrap(), b"changed", "what others have is not replaced below them");
    }

    #[test]
    fn the_least_recently_used_go_first_and_what_a_job_reads_stays() {
        let (dir, cache) = cache(20);
        let used = |id: &str, name: &str| place(&cache, id, b"0123456789", &dir.path().join(name));
        for (id, name) in [("aa01", "one"), ("bb01", "two"), ("cc01", "three")] {
            assert!(used(id, name));
        }
        for name in ["one", "two"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert!(!used("aa01", "again"));
        fs::remove_file(dir.path().join("again")).unwrap();
        cache.trim().unwrap();
        assert!(!cache.dir.join("bb01").exists(), "used before the others");
        assert!(cache.dir.join("aa01").exists() && cache.dir.join("cc01").exists());
        cache.make_room().unwrap();
        assert!(!cache.dir.join("aa01").exists());
        assert!(cache.dir.join("cc01").exists(), "a job reads it");
    }

    #[test]
    fn nothing_is_left_of_an_object_that_does_not_fit() {
        let (dir, cache) = cache(20);
        let mut full = |file: &mut File| -> Result<String, PlaceError> {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        };
        let placed = cache.place("aa01", 10, &dir.path().join("one"), &mut full, &mut || false);
        assert!(matches!(placed, Err(PlaceError::Io(error)) if error.kind() == io::ErrorKind::StorageFull));
        assert!(!cache.dir.join("aa01").exists());
    }

    #[test]
    fn what_the_server_has_encrypted_goes_with_the_job() {
        let (dir, cache) = cache(1 << 20);
        let target = |name: &str| dir.path().join(name);
        [("privateaa01", "one"), ("aa01", "two")].map(|(id, name)| place(&cache, id, b"content", &target(name)));
        drop(cache.parts("privatebb01", 7).unwrap());
        cache.trim().unwrap();
        assert!(cache.has("privateaa01", 7), "a job reads it");
        assert!(!cache.dir.join("privatebb01-parts/data").exists());
        ["one", "two"].map(|name| fs::remove_file(target(name)).unwrap());
        cache.trim().unwrap();
        assert!(!cache.has("privateaa01", 7) && cache.has("aa01", 7));
    }

    #[test]
    fn what_arrives_damaged_is_fetched_again_once() {
        let (dir, cache) = cache(1 << 20);
        let tries = Cell::new(0);
        let damaged_until = |last: u32| {
            let mut fetch = |to: &mut File| {
                tries.set(tries.get() + 1);
                to.write_all(if tries.get() < last { b"damaged" } else { b"content" })?;
                Ok(sha256(b"content"))
            };
            cache.place("aa01", 7, &dir.path().join(format!("at-{last}")), &mut fetch, &mut || false)
        };
        let error = damaged_until(9).unwrap_err();
        assert!(matches!(&error, PlaceError::Damaged { id, .. } if id == "aa01"), "{error}");
        assert_eq!(tries.get(), 2);
        tries.set(0);
        damaged_until(2).unwrap();
    }

    #[test]
    fn two_at_once_fetch_once() {
        let (dir, cache) = cache(1 << 20);
        let fetched = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..4 {
                let (cache, fetched, target) = (&cache, &fetched, dir.path().join(number.to_string()));
                scope.spawn(move || {
                    let mut fetch = |to: &mut File| {
                        fetched.fetch_add(1, Ordering::SeqCst);
                        to.write_all(b"content")?;
                        Ok(sha256(b"content"))
                    };
                    cache.place("aa01", 7, &target, &mut fetch, &mut || false).unwrap();
                    assert_eq!(fs::read(target).unwrap(), b"content");
                });
            }
        });
        assert_eq!(fetched.into_inner(), 1);
        let _held = cache.lock("aa01").unwrap().unwrap();
        let stopped = cache.place("aa02", 7, &dir.path().join("never"), &mut |_| unreachable!(), &mut || true);
        assert!(matches!(stopped, Err(PlaceError::Stopped)));
    }

    #[test]
    fn parts_stay_while_they_are_read_and_count_what_is_there() {
        let (_dir, cache) = cache(0);
        let (data, sums) = cache.parts("aa01", 1 << 30).unwrap();
        data.write_all_at(b"part", 1 << 20).unwrap();
        sums.set_len(64).unwrap();
        cache.trim().unwrap();
        assert_eq!(data.metadata().unwrap().nlink(), 1, "a job reads it");
        let (again, _) = cache.parts("aa01", 1 << 30).unwrap();
        let mut part = [0; 4];
        again.read_exact_at(&mut part, 1 << 20).unwrap();
        assert_eq!(&part, b"part");
        drop((data, sums, again));
        let all = ObjectCache { max_bytes: 1 << 20, ..cache.clone() };
        all.trim().unwrap();
        assert!(cache.dir.join("aa01-parts/data").exists(), "it is small as far as it is there");
        cache.trim().unwrap();
        assert!(!cache.dir.join("aa01-parts").exists());
        let (_, sums) = cache.parts("aa01", 7).unwrap();
        assert_eq!(sums.metadata().unwrap().len(), 0);
        cache.parts("../up", 7).unwrap_err();
    }

    #[test]
    fn parts_that_are_all_here_become_an_object() {
        let (dir, cache) = cache(1 << 30);
        let (size, content) = (PART + 7, vec![7; PART as usize + 7]);
        let files = PartFiles::open(&cache, "aa01", size).unwrap();
        files.store(0, &content[..PART as usize]).unwrap();
        assert!(!cache.join_parts("aa01", size, &mut || false).unwrap(), "one is missing");
        assert_eq!(cache.read_part("aa01", size, 0).unwrap().unwrap().len() as u64, PART);
        assert_eq!(cache.read_part("aa01", size, 1).unwrap(), None);
        files.store(1, &content[PART as usize..]).unwrap();
        assert!(cache.join_parts("aa01", size, &mut || false).unwrap());
        assert!(cache.has("aa01", size) && !cache.has("aa01", size + 1));
        assert!(!dir.path().join("objects/aa01-parts").exists());
        assert_eq!(cache.read_part("aa01", size, 1).unwrap().unwrap(), [7; 7]);
        assert!(!place(&cache, "aa01", &content, &dir.path().join("it")), "nothing more is fetched");
    }

    #[test]
    fn an_id_is_no_path() {
        let (dir, cache) = cache(1);
        for id in ["..", "a/b", "", "/etc"] {
            cache.place(id, 0, &dir.path().join("never"), &mut |_| unreachable!(), &mut || false).unwrap_err();
        }
    }
}
