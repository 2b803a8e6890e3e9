//! Where ranks find each other: a small key-value store that is written once per key and can be
//! waited on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    thread,
};

use crate::{Error, guard::UNLIMITED};

/// Keys to values, common to all ranks. Values are small (addresses, ids): at most 60 KiB, keys at
/// most 200 bytes.
pub trait Store: Send + Sync {
    /// Sets a key that is not set yet. Answers what it is set to then: `value`, or what another
    /// rank was first with.
    ///
    /// # Errors
    /// The store cannot be reached or written.
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error>;

    /// The value, as soon as there is one; `None` after `timeout`.
    ///
    /// # Errors
    /// The store cannot be reached or read.
    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error>;

    /// Where it is, for messages: `"127.0.0.1:29500"`.
    fn place(&self) -> String;

    /// Its server, if it has one. A host without a way to the outside has its address on the way
    /// there.
    fn server(&self) -> Option<SocketAddr> {
        None
    }
}

type Map = BTreeMap<String, Vec<u8>>;

/// The store of ranks that are threads of one process; and what the TCP store's server keeps.
#[derive(Debug, Clone, Default)]
pub struct LocalStore {
    shared: Arc<(Mutex<Map>, Condvar)>,
}

impl LocalStore {
    fn lock(&self) -> MutexGuard<'_, Map> {
        self.shared.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As [`Store::put`], which cannot fail here.
    pub(crate) fn set(&self, key: &str, value: &[u8]) -> Vec<u8> {
        let mut map = self.lock();
        let now = map.entry(key.to_owned()).or_insert_with(|| value.to_vec()).clone();
        self.shared.1.notify_all();
        now
    }

    /// As [`Store::wait`], which cannot fail here.
    pub(crate) fn get(&self, key: &str, timeout: Duration) -> Option<Vec<u8>> {
        let (map, _) = self
            .shared
            .1
            .wait_timeout_while(self.lock(), timeout, |map| !map.contains_key(key))
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        map.get(key).cloned()
    }
}

impl Store for LocalStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.set(key, value))
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.get(key, timeout))
    }

    fn place(&self) -> String {
        "this process".to_owned()
    }
}

/// A store in one directory that all ranks reach: a file per key, complete from the moment at which
/// it has its name.
///
/// The directory must be new or empty for each group; what is in it is for its owner only, as a
/// secret may be among it. On a network file system a key may be seen late by as long as that
/// caches.
#[derive(Debug, Clone)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// A store in that directory, which is made (for its owner only) if it is not there.
    ///
    /// # Errors
    /// [`Error::Io`]: it is not there and cannot be made.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let directory = directory.into();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| Error::io(format!("make the rendezvous directory {}", directory.display()), error))?;
        Ok(Self { directory })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(key.replace('/', "."))
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("read {}", path.display()), error)),
        }
    }
}

impl Store for FileStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        let path = self.path(key);
        let failed = |error| Error::io(format!("write {}", path.display()), error);
        let mut draft = [0; 8];
        getrandom::fill(&mut draft).map_err(|error| failed(io::Error::other(error)))?;
        let draft = self.directory.join(format!(".{:016x}", u64::from_le_bytes(draft)));
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(value))
            .map_err(failed)?;
        // A link fails where the name is taken, so that exactly one rank is first.
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft).map_err(failed)?;
        match linked {
            Ok(()) => Ok(value.to_vec()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(self.read(key)?.unwrap_or_else(|| value.to_vec()))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                Err(Error::rendezvous(format!(
                    "cannot link {} ({error}): ranks meet in directories of file systems that have hard links; choose \
                     another directory",
                    path.display()
                )))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let end = Instant::now() + timeout.min(UNLIMITED);
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(value) = self.read(key)? {
                return Ok(Some(value));
            }
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            thread::sleep(pause.min(end - now));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn place(&self) -> String {
        self.directory.display().to_string()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What every store keeps.
    pub(in crate::rendezvous) fn conforms(store: &dyn Store) {
        assert_eq!(store.wait("a/1", Duration::from_millis(5)).unwrap(), None);
        assert_eq!(store.put("a/1", b"first").unwrap(), b"first");
        assert_eq!(store.put("a/1", b"second").unwrap(), b"first");
        assert_eq!(store.wait("a/1", Duration::ZERO).unwrap().unwrap(), b"first");
        assert_eq!(store.put("empty", b"").unwrap(), b"");
        assert_eq!(store.wait("empty", Duration::ZERO).unwrap().unwrap(), b"");
        let large = vec![3; 60_000];
        assert_eq!(store.put("large", &large).unwrap(), large);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| store.wait("late", Duration::from_secs(30)).unwrap());
            thread::sleep(Duration::from_millis(20));
            store.put("late", b"now").unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), b"now");
        });
    }

    #[test]
    fn stores_of_one_machine_conform() {
        conforms(&LocalStore::default());
        let directory = tempfile::tempdir().unwrap();
        conforms(&FileStore::open(directory.path().join("new")).unwrap());
    }

    #[test]
    fn one_of_many_is_first() {
        let directory = tempfile::tempdir().unwrap();
        let store = FileStore::open(directory.path()).unwrap();
        let seen: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u8)
                .map(|rank| {
                    scope.spawn({
                        let store = &store;
                        move || store.put("who", &[rank]).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no drafts are left");
    }

    #[test]
    fn what_is_written_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        FileStore::open(directory.path()).unwrap().put("secret", b"s").unwrap();
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
