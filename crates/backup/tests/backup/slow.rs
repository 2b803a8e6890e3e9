//! Targets that are full, or do not answer: the server's logs do not grow for them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use shoal_backup::{BackupError, Directory, Follow, Follower, Guard, Restore, Target};
use shoal_store::Opened;

use super::{Server, bring_back, objects_of, quiet};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Answers,
    /// Its disk is full.
    Refuses,
    /// Writes wait.
    Hangs,
    /// Those of a full backup alone.
    HangsForPacks,
}

#[derive(Debug)]
struct Stuck {
    inner: Directory,
    mode: Mutex<Mode>,
    changed: Condvar,
}

impl Stuck {
    fn at(path: &Path, mode: Mode) -> Arc<Self> {
        Arc::new(Self { inner: Directory::at(path), mode: Mutex::new(mode), changed: Condvar::new() })
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
        self.changed.notify_all();
    }

    fn pass(&self, name: &str) -> Result<(), BackupError> {
        let hangs = |mode: &mut Mode| *mode == Mode::Hangs || *mode == Mode::HangsForPacks && name.contains("/pack-");
        let mode = self.changed.wait_while(self.mode.lock().unwrap(), hangs).unwrap();
        if *mode == Mode::Refuses {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(BackupError::Io { what: "write", name: name.to_owned(), source });
        }
        Ok(())
    }
}

impl Target for Stuck {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.pass(name)?;
        self.inner.put(name, bytes)
    }
    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        self.pass("contents")?;
        self.inner.put_all(files)
    }
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError> {
        self.inner.read(name)
    }
    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError> {
        self.inner.read_range(name, at, length)
    }
    fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, BackupError> {
        self.inner.fetch(name, to, at)
    }
    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        self.inner.list(folder)
    }
    fn remove(&self, names: &[String]) -> Result<(), BackupError> {
        self.inner.remove(names)
    }
    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        self.inner.lock()
    }
}

const OPTIONS: Follow = Follow { pause: Duration::from_millis(1), keep: Some(2), log_bytes: 8 << 20 };

/// Writes this much to the log; returns what the log has then.
fn write(server: &Server, prefix: &str, bytes: usize) -> u64 {
    let content = vec![7; CONTENT_BYTES];
    (0..bytes / CONTENT_BYTES).for_each(|number| server.put(&format!("{prefix}{number}"), &content));
    fs::metadata(server.root.join("objects.db-wal")).unwrap().len()
}

/// What cannot be compressed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    noise.take(bytes).collect()
}

/// Short enough to be in the index.
const CONTENT_BYTES: usize = 60_000;

/// A server begins its log again after 16 MiB.
const WRITTEN: usize = 44 << 20;
const MOST: u64 = 40 << 20;

/// Set when this is dropped, by a failed assertion, too.
struct Released<'a>(&'a AtomicBool, &'a Stuck);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.set(Mode::Answers);
    }
}

#[test]
fn a_target_that_is_full_or_silent_does_not_make_the_log_grow() {
    for mode in [Mode::Refuses, Mode::Hangs] {
        let temp = tempfile::tempdir().unwrap();
        let server = Server::at(&temp.path().join("data"));
        let target = Stuck::at(&temp.path().join("target"), Mode::Answers);
        let followed = Arc::clone(&target) as Arc<dyn Target>;
        let (mut follower, _) = Follower::begin(server.source(), followed, OPTIONS, &mut quiet).unwrap();
        server.put("first", b"first");
        follower.turn().unwrap();
        target.set(mode);
        let ends = AtomicBool::new(false);
        let mut follower = thread::scope(|scope| {
            let turns = scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    if follower.turn().is_err() {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
                follower
            });
            let released = Released(&ends, &target);
            let log_bytes = write(&server, "k", WRITTEN);
            assert!(log_bytes < MOST, "{mode:?}: {log_bytes}");
            drop(released);
            turns.join().unwrap()
        });
        // It answers again, and everything comes there.
        server.put("last", b"last");
        while follower.turn().is_err() {}
        assert_eq!(follower.end().unwrap().backups, 2);
        let new = temp.path().join("new");
        bring_back(&*target, &new, &Restore::default()).unwrap();
        drop(server);
        assert_eq!(objects_of(&new), objects_of(&temp.path().join("data")));
    }
}

#[test]
fn a_full_backup_that_takes_too_long_is_given_up() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    // More than one pack, and the databases are read after it.
    fs::write(server.root.join("noise"), noise(20 << 20)).unwrap();
    let target = Stuck::at(&temp.path().join("target"), Mode::HangsForPacks);
    let (source, followed) = (server.source(), Arc::clone(&target) as Arc<dyn Target>);
    let begun = thread::scope(|scope| {
        let begins = scope.spawn(|| Follower::begin(source, followed, OPTIONS, &mut quiet));
        let ends = AtomicBool::new(false);
        let released = Released(&ends, &target);
        // The capture is there when the first tick is.
        for number in 0.. {
            server.put(&format!("first{number}"), b"first");
            if begins.is_finished() || !target.list("ticks").unwrap().is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log_bytes = write(&server, "k", WRITTEN);
        assert!(log_bytes < MOST, "{log_bytes}");
        drop(released);
        begins.join().unwrap()
    });
    assert!(matches!(begun, Err(BackupError::LetGo)), "{:?}", begun.map(|(_, taken)| taken));
}
