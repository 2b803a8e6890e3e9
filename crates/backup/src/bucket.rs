//! A prefix of a bucket as a target. Its lock is renewed by a thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_elsewhere::{Address, Bucket, Condition, Error};
use shoal_store::Opened;

use crate::BackupError;
use crate::error::io_at;
use crate::lease::{Attempt, Lease, LockObject, Standing};
use crate::target::{Guard, Target};

/// Between two renewals.
const RENEWAL: Duration = Duration::from_secs(3);

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

    fn take(&self) -> Result<Lease, BackupError> {
        let mut attempt = Attempt::begin()?;
        loop {
            match attempt.step(&*self.0, &self.location(), Instant::now())? {
                Some(lease) => return Ok(lease),
                None => thread::sleep(LOOK),
            }
        }
    }
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
        let shared =
            Arc::new(Shared { lease: Mutex::new(self.take()?), ends: Mutex::default(), changed: Condvar::new() });
        let (bucket, renewed) = (Arc::clone(&self.0), Arc::clone(&shared));
        let renew = move || renewed.renew(&*bucket);
        let thread = thread::Builder::new().name("lock".to_owned()).spawn(renew).map_err(io_at("start", "a thread"))?;
        Ok(Box::new(Renewed { location: self.location(), shared, thread: Some(thread) }))
    }
}

#[derive(Debug)]
struct Shared {
    lease: Mutex<Lease>,
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the end; then the lock is removed.
    fn renew(&self, object: &dyn LockObject) {
        loop {
            let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.changed.wait_timeout_while(ends, RENEWAL, |ends| !*ends);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                break;
            }
            // Only this thread changes it, and a request may take long.
            let mut lease = self.lease().clone();
            lease.renew(object, Instant::now());
            let is_taken = matches!(lease.standing(Instant::now()), Standing::Taken(_));
            *self.lease() = lease;
            if is_taken {
                return;
            }
        }
        if self.lease().standing(Instant::now()) == Standing::Held {
            let _ = object.remove();
        }
    }
}

/// A lock that is renewed.
#[derive(Debug)]
struct Renewed {
    location: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Guard for Renewed {
    fn ensure(&self) -> Result<(), BackupError> {
        let location = self.location.clone();
        match self.shared.lease().standing(Instant::now()) {
            Standing::Held => Ok(()),
            Standing::Taken(holder) => Err(BackupError::Busy { location, holder }),
            Standing::Unsure(since) => {
                let message =
                    format!("the lock could not be renewed for {} s, and another process may take it", since.as_secs());
                Err(Error::Unreachable { location, message }.into())
            }
        }
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        *self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
