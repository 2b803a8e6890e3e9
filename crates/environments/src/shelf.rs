//! A directory of things that are made once: one directory each, a record beside it that is written
//! when it is whole, and a lock.
//!
//! Who uses a thing holds its lock shared, who makes or removes it holds it alone. The kernel gives
//! up the locks of whoever dies. Who removes a thing removes its lock, too, so whoever has got a
//! lock looks whether it still is the thing's.

use std::fs::{self, File, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::run::LOOK;
use crate::{EnvironmentError, Watcher};

/// So many looks in turn, 2 s, have to find a thing in use and not whole: for a moment others look,
/// too.
const PATIENCE: u32 = 40;

/// What is known of a thing that is whole.
pub trait Kept: Serialize + DeserializeOwned {
    /// Whether it can still be used, as it lies there.
    fn is_whole(&self, directory: &Path) -> bool;

    /// Whether it rests on something else of the shelf.
    fn rests_on_another(&self) -> bool {
        false
    }
}

/// Things with records of one kind.
#[derive(Debug)]
pub(crate) struct Shelf<R> {
    root: PathBuf,
    kept: PhantomData<fn() -> R>,
}

impl<R> Clone for Shelf<R> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), kept: PhantomData }
    }
}

/// Something in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached<R> {
    /// Its directory's name: the thing's name and the digest of what it is made of.
    pub id: String,
    /// Where it is.
    pub directory: PathBuf,
    /// `None`: it is being made, or was not finished.
    pub record: Option<R>,
    /// Somebody uses or makes it.
    pub in_use: bool,
    /// When somebody last wanted it.
    pub last_used: SystemTime,
}

/// A thing that is whole, and stays while this lives.
#[derive(Debug)]
pub(crate) struct Taken<R> {
    pub(crate) directory: PathBuf,
    pub(crate) record: R,
    _lock: File,
}

/// The files of one thing.
#[derive(Debug)]
pub(crate) struct Place {
    id: String,
    pub(crate) directory: PathBuf,
    record: PathBuf,
    lock: PathBuf,
}

impl<R: Kept> Shelf<R> {
    /// In the directory `root`, which need not be there.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, kept: PhantomData }
    }

    pub(crate) fn place(&self, name: &str, digest: &str) -> Place {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(64).collect();
        self.place_of(format!("{name}-{digest}"))
    }

    fn place_of(&self, id: String) -> Place {
        let file = |end: &str| self.root.join(format!("{id}{end}"));
        Place { directory: self.root.join(&id), record: file(".json"), lock: file(".lock"), id }
    }

    /// The thing at `place`, made by `make` if it is not there. `what` is its name for people.
    ///
    /// # Errors
    /// It cannot be made, and nothing of it is left; or the watcher waits no more.
    pub(crate) fn obtain(
        &self,
        place: &Place,
        what: &str,
        watcher: &mut dyn Watcher,
        make: impl Fn(&File, &mut dyn Watcher) -> Result<R, EnvironmentError>,
    ) -> Result<Taken<R>, EnvironmentError> {
        fs::create_dir_all(&self.root).map_err(EnvironmentError::io("make", &self.root))?;
        let failed = || EnvironmentError::io("lock", &place.lock);
        let (mut made_by_others, mut held_broken) = (0, 0);
        loop {
            // Anew each time: a lock is removed with what it is for.
            let lock = place.open()?;
            let is_shared =
                is_free(lock.try_lock_shared()).and_then(|free| Ok(free && place.has(&lock)?)).map_err(failed())?;
            if is_shared && let Some(record) = place.whole() {
                // Only prune asks.
                let _ = lock.set_modified(SystemTime::now());
                return Ok(Taken { directory: place.directory.clone(), record, _lock: lock });
            }
            lock.unlock().map_err(failed())?;
            if is_free(lock.try_lock()).and_then(|free| Ok(free && place.has(&lock)?)).map_err(failed())? {
                if place.whole::<R>().is_none() {
                    place.remove()?;
                    let made = make(&lock, watcher).and_then(|record| place.write(&record));
                    if let Err(error) = made {
                        place.remove()?;
                        place.forget()?;
                        return Err(error);
                    }
                }
                // Who takes it now has it whole, or finds out that it was removed.
                lock.unlock().map_err(failed())?;
                continue;
            }
            (made_by_others, held_broken) = if is_shared { (0, held_broken + 1) } else { (made_by_others + 1, 0) };
            // The first time it may be one who only looks what there is.
            if made_by_others == 2 {
                watcher.line(&format!("waiting for {what}, which another instance or job is making"));
            }
            if held_broken == PATIENCE {
                return Err(EnvironmentError::Broken(what.to_owned()));
            }
            if watcher.is_to_stop() {
                return Err(EnvironmentError::Stopped(what.to_owned()));
            }
            thread::sleep(LOOK);
        }
    }

    /// All that lies there, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn list(&self) -> Result<Vec<Cached<R>>, EnvironmentError> {
        let failed = || EnvironmentError::io("read", &self.root);
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed())?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed())?;
            if !entry.file_type().map_err(failed())?.is_dir() {
                continue;
            }
            let place = self.place_of(entry.file_name().to_string_lossy().into_owned());
            let lock = place.open()?;
            let in_use = !is_free(lock.try_lock()).map_err(EnvironmentError::io("lock", &place.lock))?;
            // At once: whoever wants the thing now must not take us for somebody who makes it.
            lock.unlock().map_err(EnvironmentError::io("unlock", &place.lock))?;
            let modified = lock.metadata().and_then(|metadata| metadata.modified());
            let last_used = modified.map_err(EnvironmentError::io("read", &place.lock))?;
            all.push(Cached { record: place.whole(), id: place.id, directory: place.directory, in_use, last_used });
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Removes what nobody uses, with its lock.
    ///
    /// # Errors
    /// It is in use, and stays; or the operating system refuses.
    fn remove(&self, id: &str) -> Result<(), EnvironmentError> {
        let place = self.place_of(id.to_owned());
        let lock = place.open()?;
        let failed = || EnvironmentError::io("lock", &place.lock);
        if !is_free(lock.try_lock()).and_then(|free| Ok(free && place.has(&lock)?)).map_err(failed())? {
            return Err(EnvironmentError::InUse(place.id));
        }
        place.remove()?;
        place.forget()
    }

    /// Removes locks of what is not there, as those leave them that are killed before they have
    /// made it.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(id) = name.strip_suffix(".lock") else { continue };
            let place = self.place_of(id.to_owned());
            let Ok(lock) = File::open(&place.lock) else { continue };
            if is_free(lock.try_lock())? && place.has(&lock)? && !place.directory.exists() && !place.record.exists() {
                fs::remove_file(&place.lock)?;
            }
        }
        Ok(())
    }

    /// Removes what nobody has wanted for so long and nobody uses; gives what was removed. What
    /// rests on another goes before that.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) fn prune(&self, older_than: Duration) -> Result<Vec<Cached<R>>, EnvironmentError> {
        let mut old = self.list()?;
        old.retain(|cached| cached.last_used.elapsed().unwrap_or_default() >= older_than);
        old.sort_by_key(|cached| !cached.record.as_ref().is_some_and(Kept::rests_on_another));
        let mut removed = Vec::new();
        for cached in old {
            match self.remove(&cached.id) {
                Ok(()) => removed.push(cached),
                Err(EnvironmentError::InUse(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match self.sweep() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(EnvironmentError::io("remove locks from", &self.root)(error))
            }
            _ => Ok(removed),
        }
    }
}

impl Place {
    fn open(&self) -> Result<File, EnvironmentError> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&self.lock);
        opened.map_err(EnvironmentError::io("open", &self.lock))
    }

    /// Whether this is its lock: another may have been removed by whoever held it.
    fn has(&self, lock: &File) -> io::Result<bool> {
        match fs::metadata(&self.lock) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            there => {
                let (there, held) = (there?, lock.metadata()?);
                Ok((there.dev(), there.ino()) == (held.dev(), held.ino()))
            }
        }
    }

    /// Removes its lock, which the caller holds alone.
    fn forget(&self) -> Result<(), EnvironmentError> {
        fs::remove_file(&self.lock).map_err(EnvironmentError::io("remove", &self.lock))
    }

    /// What is known of it if it is whole. A record that is not understood is none, and the thing
    /// is made again.
    fn whole<R: Kept>(&self) -> Option<R> {
        let record: R = serde_json::from_slice(&fs::read(&self.record).ok()?).ok()?;
        record.is_whole(&self.directory).then_some(record)
    }

    /// Whole at once; from now on the thing is one.
    fn write<R: Kept>(&self, record: &R) -> Result<(), EnvironmentError> {
        let draft = self.record.with_extension("draft");
        let write = || {
            fs::write(&draft, serde_json::to_vec_pretty(record)?)?;
            File::open(&draft)?.sync_all()?;
            fs::rename(&draft, &self.record)
        };
        write().map_err(EnvironmentError::io("write", &self.record))
    }

    /// The record goes first: from then on it is not whole.
    fn remove(&self) -> Result<(), EnvironmentError> {
        for file in [&self.record, &self.record.with_extension("draft")] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(EnvironmentError::io("remove", file)(error));
                }
                _ => {}
            }
        }
        remove_tree(&self.directory).map_err(EnvironmentError::io("remove", &self.directory))
    }
}

/// Removes a directory that was made read-only. Links are not followed.
fn remove_tree(directory: &Path) -> io::Result<()> {
    let entries = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => {
            metadata?;
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
            fs::read_dir(directory)?
        }
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() { remove_tree(&entry.path())? } else { fs::remove_file(entry.path())? }
    }
    fs::remove_dir(directory)
}

/// Whether the lock was had.
fn is_free(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Sixteen hexadecimal digits of all that something is made of, this machine's kind included.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in ["1", std::env::consts::ARCH].iter().chain(parts) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize()[..8])
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, hex_simd::AsciiCase::Lower)
}
