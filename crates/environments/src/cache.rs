//! The directory in which environments lie: one each, a record beside it that is written when it is whole, and a lock.
//!
//! Who uses an environment holds its lock shared, who makes or removes it holds it alone. The kernel gives up the locks of whoever dies.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::run::LOOK;
use crate::{Environment, EnvironmentError, Record, Source, Watcher, build, overlay, requirements};

/// Environments of this machine.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    source: Source,
}

/// An environment that is whole, and stays while this lives.
#[derive(Debug)]
pub struct Prepared {
    directory: PathBuf,
    record: Record,
    /// What a job's requirements lie over.
    below: Option<Box<Prepared>>,
    _lock: File,
}

/// Something in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// Its directory's name: the environment's name and the digest of what it is made of.
    pub id: String,
    /// Where it is.
    pub directory: PathBuf,
    /// `None`: it is being made, or was not finished.
    pub record: Option<Record>,
    /// Somebody uses or makes it.
    pub in_use: bool,
    /// When somebody last wanted it.
    pub last_used: SystemTime,
}

/// The files of one environment.
#[derive(Debug)]
struct Place {
    id: String,
    directory: PathBuf,
    record: PathBuf,
    lock: PathBuf,
}

impl Cache {
    /// The cache in the directory `root`, which need not be there.
    pub fn new(root: PathBuf, source: Source) -> Self {
        Self { root, source }
    }

    /// The environment, made if it is not there: with its lock file's packages, read-only. If somebody else makes it already, that is waited for.
    ///
    /// # Errors
    /// It cannot be made, and nothing of it is left; or the watcher waits no more.
    pub fn prepare(&self, environment: &Environment, watcher: &mut dyn Watcher) -> Result<Prepared, EnvironmentError> {
        let digest = digest(&[&environment.pythons.join(","), &environment.lock]);
        let place = self.place(&environment.name, &digest);
        self.obtain(&place, &environment.name, None, watcher, |lock, watcher| {
            build::make(environment, &place.directory, &self.source, lock, watcher)
        })
    }

    /// What a job requires, laid over an environment: as [`Cache::prepare`], and cached by the environment, the requirements' text (a
    /// `requirements.txt`) and the content of `wheel`, a package without dependencies that goes on top. Without any, it is the environment itself.
    ///
    /// # Errors
    /// As [`Cache::prepare`]; and a requirement that is none of an index (see [`crate::check`]).
    pub fn overlay(
        &self,
        below: Prepared,
        requirements: &str,
        wheel: Option<&Path>,
        watcher: &mut dyn Watcher,
    ) -> Result<Prepared, EnvironmentError> {
        let requirements = requirements::check(requirements)?;
        if requirements.is_empty() && wheel.is_none() {
            return Ok(below);
        }
        let of_wheel = wheel.map(|file| fs::read(file).map_err(EnvironmentError::io("read", file))).transpose()?;
        let of_wheel = of_wheel.map(|content| hexadecimal(&Sha256::digest(content)));
        let below_path = below.directory.to_string_lossy();
        let parts: Vec<&str> = [&*below_path, &*requirements].into_iter().chain(of_wheel.as_deref()).collect();
        let digest = digest(&parts);
        let (name, base) = (below.record.name.clone(), below.record.clone());
        let place = self.place(&format!("{name}-job"), &digest);
        let directory = below.directory.clone();
        self.obtain(&place, &name, Some(below), watcher, |lock, watcher| {
            overlay::make(&base, &directory, &requirements, wheel, &place.directory, &self.source, lock, watcher).map_err(|error| {
                match error {
                    EnvironmentError::Failed { name, step, how, said } => EnvironmentError::NotInstalled { name, step, how, said },
                    other => other,
                }
            })
        })
    }

    fn place(&self, name: &str, digest: &str) -> Place {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(64).collect();
        self.place_of(format!("{name}-{digest}"))
    }

    fn place_of(&self, id: String) -> Place {
        let file = |end: &str| self.root.join(format!("{id}{end}"));
        Place { directory: self.root.join(&id), record: file(".json"), lock: file(".lock"), id }
    }

    /// The environment at `place`, made by `make` if it is not there.
    fn obtain(
        &self,
        place: &Place,
        name: &str,
        below: Option<Prepared>,
        watcher: &mut dyn Watcher,
        make: impl Fn(&File, &mut dyn Watcher) -> Result<Record, EnvironmentError>,
    ) -> Result<Prepared, EnvironmentError> {
        fs::create_dir_all(&self.root).map_err(EnvironmentError::io("make", &self.root))?;
        let lock = place.open()?;
        let failed = || EnvironmentError::io("lock", &place.lock);
        let mut is_told = false;
        loop {
            if is_free(lock.try_lock_shared()).map_err(failed())? {
                if let Some(record) = place.whole() {
                    // Only prune asks.
                    let _ = lock.set_modified(SystemTime::now());
                    return Ok(Prepared { directory: place.directory.clone(), record, below: below.map(Box::new), _lock: lock });
                }
                lock.unlock().map_err(failed())?;
            }
            if is_free(lock.try_lock()).map_err(failed())? {
                if place.whole().is_none() {
                    place.remove()?;
                    let made = make(&lock, watcher)
                        .and_then(|record| record.write(&place.record).map_err(EnvironmentError::io("write", &place.record)));
                    if let Err(error) = made {
                        place.remove()?;
                        return Err(error);
                    }
                }
                // Who takes it now has it whole, or finds out that it was removed.
                lock.unlock().map_err(failed())?;
                continue;
            }
            if !is_told {
                watcher.line(&format!("waiting for the environment {name}, which another job is making"));
                is_told = true;
            }
            if watcher.is_to_stop() {
                return Err(EnvironmentError::Stopped(name.to_owned()));
            }
            thread::sleep(LOOK);
        }
    }

    /// All that lies in the cache, by name.
    ///
    /// # Errors
    /// The cache cannot be read.
    pub fn list(&self) -> Result<Vec<Cached>, EnvironmentError> {
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
            let modified = lock.metadata().and_then(|metadata| metadata.modified());
            let last_used = modified.map_err(EnvironmentError::io("read", &place.lock))?;
            all.push(Cached { record: place.whole(), id: place.id, directory: place.directory, in_use, last_used });
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Removes an environment that nobody uses.
    ///
    /// # Errors
    /// It is in use, and stays; or the operating system refuses.
    pub fn remove(&self, cached: &Cached) -> Result<(), EnvironmentError> {
        let place = self.place_of(cached.id.clone());
        let lock = place.open()?;
        if !is_free(lock.try_lock()).map_err(EnvironmentError::io("lock", &place.lock))? {
            return Err(EnvironmentError::InUse(place.id));
        }
        place.remove()
    }

    /// Removes what nobody has wanted for so long and nobody uses; gives what was removed. Requirements of jobs go before what they lie over.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn prune(&self, older_than: Duration) -> Result<Vec<Cached>, EnvironmentError> {
        let mut old = self.list()?;
        old.retain(|cached| cached.last_used.elapsed().unwrap_or_default() >= older_than);
        old.sort_by_key(|cached| cached.record.as_ref().is_none_or(|record| record.below.is_none()));
        let mut removed = Vec::new();
        for cached in old {
            match self.remove(&cached) {
                Ok(()) => removed.push(cached),
                Err(EnvironmentError::InUse(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
}

impl Prepared {
    /// What is known of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.directory.join("bin/python")
    }

    /// What programs need to see, read-only and at the same path: itself, what it lies over, and the interpreter's installation where that is none
    /// of the system's.
    pub fn shown(&self) -> Vec<PathBuf> {
        let mut shown = vec![self.directory.clone()];
        match &self.below {
            Some(below) => shown.extend(below.shown()),
            None if self.record.prefix.starts_with("/usr") => {}
            None => shown.push(self.record.prefix.clone()),
        }
        shown
    }

    /// Directories that come first in programs' `PATH`.
    pub fn path(&self) -> Vec<PathBuf> {
        let below = self.below.iter().flat_map(|below| below.path());
        [self.directory.join("bin")].into_iter().chain(below).collect()
    }

    /// Directories of programs' `PYTHONPATH`, so that scripts of the environment below (`torchrun`) find what lies over it, too.
    pub fn python_path(&self) -> Vec<PathBuf> {
        self.below.iter().map(|_| self.record.site_packages.clone()).collect()
    }
}

impl Place {
    fn open(&self) -> Result<File, EnvironmentError> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&self.lock);
        opened.map_err(EnvironmentError::io("open", &self.lock))
    }

    /// What is known of it if it is whole and its interpreter is still there.
    fn whole(&self) -> Option<Record> {
        let record = Record::read(&self.record)?;
        (record.interpreter.is_file() && self.directory.join("bin/python").exists()).then_some(record)
    }

    /// The record goes first: from then on it is no environment.
    fn remove(&self) -> Result<(), EnvironmentError> {
        for file in [&self.record, &self.record.with_extension("draft")] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(EnvironmentError::io("remove", file)(error)),
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
