//! A prefix of a bucket as a target.
//!
//! Its lock is an object that is written on a condition and renewed. One that is not renewed for a
//! while belongs to a process that was killed; no clock but this machine's is read.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_elsewhere::{Address, Bucket, Condition, Error};
use shoal_store::Opened;

use crate::BackupError;
use crate::error::io_at;
use crate::manifest::this_process;
use crate::target::{Guard, Target};

const LOCK: &str = "lock";

/// Between two renewals.
const RENEWAL: Duration = Duration::from_secs(3);

/// A lock that stays the same for this time is abandoned.
const ABANDONED: Duration = Duration::from_secs(12);

/// Between two looks at another's lock.
const LOOK: Duration = Duration::from_millis(500);

/// In a bucket.
#[derive(Debug, Clone)]
pub struct InBucket(Arc<Bucket>);

impl InBucket {
    /// The target at this address, as a user types it.
    ///
    /// # Errors
    /// It is no address.
    pub fn at(typed: &str) -> Result<Self, BackupError> {
        let unusable = |error: shoal_elsewhere::BadAddress| BackupError::BadTarget(error.to_string());
        Ok(Self(Arc::new(Bucket::open(&Address::parse(typed).map_err(unusable)?)?)))
    }

    fn busy(&self, holder: &[u8]) -> BackupError {
        BackupError::Busy { location: self.location(), holder: holder_of(holder) }
    }

    /// Takes the lock; returns what names this state of it.
    fn take(&self) -> Result<String, BackupError> {
        let began = Instant::now();
        let mut seen: Option<Option<String>> = None;
        loop {
            let condition = match self.0.get(LOCK)? {
                None => Condition::Absent,
                Some((holder, etag)) => {
                    if seen.as_ref().is_some_and(|seen| *seen != etag) {
                        return Err(self.busy(&holder));
                    }
                    seen = Some(etag.clone());
                    if began.elapsed() < ABANDONED {
                        thread::sleep(LOOK);
                        continue;
                    }
                    etag.map_or(Condition::Always, Condition::Matches)
                }
            };
            match self.0.put(LOCK, content(0), &condition) {
                Ok(etag) => return Ok(etag.unwrap_or_default()),
                // Another process was faster.
                Err(Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Each renewal is another content, so that it has another ETag.
fn content(renewal: u64) -> Vec<u8> {
    format!("{}\n{renewal}\n", this_process()).into_bytes()
}

fn holder_of(content: &[u8]) -> String {
    String::from_utf8_lossy(content).lines().next().unwrap_or("another process").to_owned()
}

impl Target for InBucket {
    fn location(&self) -> String {
        self.0.location()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.0.put(name, bytes.to_vec(), &Condition::Always)?;
        Ok(())
    }

    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        let files = files.into_iter().map(|(name, Opened { file, start, size })| (name, file, start, size)).collect();
        Ok(self.0.put_files(files)?)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError> {
        Ok(self.0.get(name)?.map(|(bytes, _)| bytes))
    }

    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError> {
        Ok(self.0.get_range(name, at, length)?)
    }

    fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, BackupError> {
        Ok(self.0.fetch(name, to, at)?)
    }

    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        Ok(self.0.list(folder)?)
    }

    fn remove(&self, names: &[String]) -> Result<(), BackupError> {
        Ok(self.0.remove(names)?)
    }

    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        let etag = self.take()?;
        let shared = Arc::new(Shared::default());
        let (target, renewed) = (self.clone(), Arc::clone(&shared));
        let renew = move || renewed.renew(&target, etag);
        let thread = thread::Builder::new().name("lock".to_owned()).spawn(renew).map_err(io_at("start", "a thread"))?;
        Ok(Box::new(Lease { location: self.location(), shared, thread: Some(thread) }))
    }
}

#[derive(Debug, Default)]
struct Shared {
    is_lost: AtomicBool,
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    /// Until the end; then the lock is removed.
    fn renew(&self, target: &InBucket, mut etag: String) {
        let mut renewed_at = Instant::now();
        for renewal in 1.. {
            let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(ends, RENEWAL, |ends| !*ends);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
            match target.0.put(LOCK, content(renewal), &Condition::Matches(etag.clone())) {
                Ok(next) => (etag, renewed_at) = (next.unwrap_or_default(), Instant::now()),
                Err(Error::Changed { .. }) => return self.is_lost.store(true, Ordering::SeqCst),
                // Others count from the last renewal that they have seen.
                Err(_) => self.is_lost.store(renewed_at.elapsed() >= ABANDONED, Ordering::SeqCst),
            }
        }
        if !self.is_lost.load(Ordering::SeqCst) {
            let _ = target.0.remove(&[LOCK.to_owned()]);
        }
    }
}

/// A lock that is renewed.
#[derive(Debug)]
struct Lease {
    location: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Guard for Lease {
    fn ensure(&self) -> Result<(), BackupError> {
        if self.shared.is_lost.load(Ordering::SeqCst) {
            let holder = "another process: this one could not renew its lock".to_owned();
            return Err(BackupError::Busy { location: self.location.clone(), holder });
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
