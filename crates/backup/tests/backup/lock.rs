//! Targets whose lock is lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shoal_backup::{BackupError, Directory, Follow, Follower, Guard, Restore, Target, back_up};
use shoal_store::Opened;

use super::{Server, bring_back, objects_of, quiet, take};

/// A target whose lock another process takes after some writes.
#[derive(Debug)]
struct Overtaken {
    inner: Directory,
    left: Arc<AtomicI64>,
    /// What was written after that.
    trespasses: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Taken(Arc<AtomicI64>);

impl Guard for Taken {
    fn ensure(&self) -> Result<(), BackupError> {
        match self.0.load(Ordering::SeqCst) {
            left if left > 0 => Ok(()),
            _ => Err(BackupError::Busy { location: String::new(), holder: "another".to_owned() }),
        }
    }
}

impl Overtaken {
    fn after(path: &Path, writes: usize) -> Self {
        let left = Arc::new(AtomicI64::new(writes as i64));
        Self { inner: Directory::at(path), left, trespasses: Mutex::default() }
    }

    fn note(&self, name: &str) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.trespasses.lock().unwrap().push(name.to_owned());
        }
    }
}

impl Target for Overtaken {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.note(name);
        self.inner.put(name, bytes)
    }
    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        self.note("contents");
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
        self.note(&format!("the removal of {names:?}"));
        self.inner.remove(names)
    }
    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        Ok(Box::new(Taken(Arc::clone(&self.left))))
    }
}

#[test]
fn nothing_is_written_or_removed_without_the_lock() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let path = temp.path().join("target");
    server.put("first", &[1; 100_000]);
    take(&server, &Directory::at(&path), None);
    let mut losses = 0;
    for writes in 0.. {
        server.put(&format!("k{writes}"), &vec![2; 70_000 + writes]);
        server.objects.delete("b", &format!("k{}", writes.saturating_sub(1))).unwrap();
        let target = Overtaken::after(&path, writes);
        let done = back_up(&server.source(), &target, Some(1), &mut quiet);
        assert_eq!(*target.trespasses.lock().unwrap(), [""; 0], "lost after {writes}");
        match done {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, BackupError::Busy { .. }), "{error}"),
        }
        losses += 1;
    }
    assert!(losses > 5, "contents, a pack, details, a head, and what is removed: {losses}");
    // The thread that makes the full backup of one that follows.
    for writes in 0..3 {
        let target = Arc::new(Overtaken::after(&temp.path().join(format!("followed-{writes}")), writes));
        let options = Follow { pause: Duration::from_millis(1), keep: Some(1), ..Follow::default() };
        let begun = Follower::begin(server.source(), Arc::clone(&target) as Arc<dyn Target>, options, &mut quiet);
        assert!(matches!(begun, Err(BackupError::Busy { .. })), "{begun:?}");
        assert_eq!(*target.trespasses.lock().unwrap(), [""; 0], "lost after {writes}");
    }
}

/// A target that another process gets for a while, as its lock was not renewed.
#[derive(Debug)]
struct Lent {
    inner: Directory,
    is_taken: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Borrower(Arc<AtomicBool>);

impl Guard for Borrower {
    fn ensure(&self) -> Result<(), BackupError> {
        match self.0.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(BackupError::Busy { location: String::new(), holder: "another".to_owned() }),
        }
    }
}

impl Target for Lent {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.inner.put(name, bytes)
    }
    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
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
        // The other one has ended.
        self.is_taken.store(false, Ordering::SeqCst);
        Ok(Box::new(Borrower(Arc::clone(&self.is_taken))))
    }
}

#[test]
fn what_follows_goes_on_after_another_process_had_the_target() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let path = temp.path().join("target");
    let is_taken = Arc::new(AtomicBool::new(false));
    let target: Arc<dyn Target> = Arc::new(Lent { inner: Directory::at(&path), is_taken: Arc::clone(&is_taken) });
    let options = Follow { pause: Duration::from_millis(1), keep: Some(1), ..Follow::default() };
    let (mut follower, first) = Follower::begin(server.source(), Arc::clone(&target), options, &mut quiet).unwrap();
    server.put("before", &[1; 100_000]);
    follower.turn().unwrap();
    is_taken.store(true, Ordering::SeqCst);
    server.put("meanwhile", &[2; 100_000]);
    // It removes what only the ticks of the first one need.
    assert_eq!(take(&server, &Directory::at(&path), Some(1)).removed, [first.head.id]);
    server.put("after", &[3; 100_000]);
    follower.turn().unwrap();
    server.put("last", &[4; 100_000]);
    follower.end().unwrap();
    let new = temp.path().join("new");
    bring_back(&*target, &new, &Restore::default()).unwrap();
    let keys: Vec<String> = objects_of(&new).into_keys().collect();
    assert_eq!(keys, ["after", "before", "last", "meanwhile"]);
}
