//! The seam to a bucket of another store, which one of ours shows as it is. What implements it
//! knows protocols and keys.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::content_cache::Cache;
use crate::error::{ForeignError, ForeignFault};
use crate::{Attributes, Listing, ObjectMeta, PutCondition, StoreError};

/// Between two checks of whether a caller ends.
const POLL: Duration = Duration::from_millis(100);

/// A bucket with objects of others under their own keys. Calls block, and give up after seconds.
/// Of what they return, the store fills in [`ObjectMeta::id`] and [`ObjectMeta::passthrough`].
/// Errors of the bucket are [`StoreError::Foreign`].
pub trait ForeignBucket: fmt::Debug + Send + Sync {
    /// As its user names it.
    fn location(&self) -> String;

    /// The object of a key, if there is one.
    ///
    /// # Errors
    /// The bucket's.
    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError>;

    /// At most `max` objects and common prefixes, as [`crate::Objects::list`] has them, whose keys
    /// come after `after`.
    ///
    /// # Errors
    /// The bucket's.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<Listing, StoreError>;

    /// Bytes of an object; `None`: it has gone, or is another one by now.
    ///
    /// # Errors
    /// The bucket's.
    fn read(&self, meta: &ObjectMeta, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes an object into a file; `false`: it has gone, or is another one by now. Asks meanwhile
    /// whether it is cancelled.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`]; the bucket's, or the file's.
    fn fetch(&self, meta: &ObjectMeta, to: &File, is_cancelled: &dyn Fn() -> bool) -> Result<bool, StoreError>;

    /// Writes an object; it is there, whole, when this returns its ETag.
    ///
    /// # Errors
    /// [`StoreError::PreconditionFailed`]; the bucket's, or the file's.
    fn put(&self, object: NewForeign<'_>) -> Result<String, StoreError>;

    /// Removes an object; that it is not there does not matter.
    ///
    /// # Errors
    /// The bucket's.
    fn remove(&self, key: &str) -> Result<(), StoreError>;
}

/// An object that is to be.
#[derive(Debug)]
pub struct NewForeign<'a> {
    /// Its key.
    pub key: &'a str,
    /// As its writer gave them.
    pub attributes: &'a Attributes,
    /// The whole file is its content.
    pub file: File,
    /// Of the file, in bytes.
    pub size: u64,
    /// What must hold.
    pub condition: &'a PutCondition,
}

/// What is to be sent.
pub(crate) struct Whole<'a> {
    pub(crate) file: &'a Path,
    pub(crate) size: u64,
    pub(crate) attributes: &'a Attributes,
}

/// A bucket that shows one elsewhere.
#[derive(Debug, Clone)]
pub struct Passthrough {
    /// That bucket.
    pub bucket: Arc<dyn ForeignBucket>,
    /// Nothing is written to it.
    pub is_read_only: bool,
}

/// All of them, by name, and what is on the disk of their contents.
#[derive(Debug, Default)]
pub(crate) struct PassthroughBuckets {
    pub(crate) buckets: BTreeMap<String, Passthrough>,
    cache_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    cache: Cache,
    /// Contents that a thread brings here.
    fetching: HashSet<u128>,
}

impl Passthrough {
    /// Whether objects may be written, and removed.
    ///
    /// # Errors
    /// [`ForeignFault::ReadOnly`].
    pub fn may_write(&self, bucket: &str) -> Result<(), StoreError> {
        if !self.is_read_only {
            return Ok(());
        }
        let text = format!(
            "bucket `{bucket}` shows {} and is read-only on this server (read_only of [bucket.{bucket}] in shoal.toml)",
            self.bucket.location()
        );
        Err(ForeignError { fault: ForeignFault::ReadOnly, text }.into())
    }

    /// That something is not done for such a bucket.
    pub fn has_none(&self, bucket: &str, what: &str) -> StoreError {
        let text = format!("bucket `{bucket}` shows {} as it is: {what} (docs/objects.md)", self.bucket.location());
        ForeignError { fault: ForeignFault::Unsupported, text }.into()
    }

    /// Whether an object with these attributes can be written.
    ///
    /// # Errors
    /// [`StoreError::Foreign`].
    pub(crate) fn may_take(&self, bucket: &str, attributes: &Attributes) -> Result<(), StoreError> {
        self.may_write(bucket)?;
        if attributes.encryption.is_some() {
            let why = "contents are encrypted by that store, as it is set up, and under no key of this server (SSE-KMS) \
                       or of a request (SSE-C)";
            return Err(self.has_none(bucket, why));
        }
        match attributes.tags.is_empty() {
            true => Ok(()),
            false => Err(self.has_none(bucket, "its objects have no tags here; copy with TaggingDirective=REPLACE")),
        }
    }
}

impl PassthroughBuckets {
    pub(crate) fn of(buckets: BTreeMap<String, Passthrough>, cache_bytes: u64) -> Self {
        Self { buckets, cache_bytes, ..Self::default() }
    }

    /// A copy is used; returns those that have to go.
    pub(crate) fn used(&self, id: u128, size: u64) -> Vec<u128> {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        state.cache.add(id, size);
        state.cache.shrink(self.cache_bytes)
    }

    /// One thread at a time brings a content.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`].
    pub(crate) fn turn(&self, id: u128, is_cancelled: &dyn Fn() -> bool) -> Result<Turn<'_>, StoreError> {
        let mut state = self.state.lock().expect("no holder of this lock panics");
        while !state.fetching.insert(id) {
            // Its locks are its own.
            drop(state);
            if is_cancelled() {
                return Err(StoreError::Cancelled);
            }
            state = self.state.lock().expect("no holder of this lock panics");
            if state.fetching.contains(&id) {
                state = self.changed.wait_timeout(state, POLL).expect("no holder of this lock panics").0;
            }
        }
        Ok(Turn { buckets: self, id })
    }
}

/// The right to bring a content.
pub(crate) struct Turn<'a> {
    buckets: &'a PassthroughBuckets,
    id: u128,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.buckets.state.lock().expect("no holder of this lock panics").fetching.remove(&self.id);
        self.buckets.changed.notify_all();
    }
}
