//! The seam to somebody else's bucket. What implements it knows protocols and keys.

use std::fmt;
use std::fs::File;

use crate::{Attributes, Listing, ObjectMeta, PutCondition, StoreError};

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

    /// Writes an object into a file; `false`: it has gone, or is another one by now.
    ///
    /// # Errors
    /// The bucket's, or the file's.
    fn fetch(&self, meta: &ObjectMeta, to: &File) -> Result<bool, StoreError>;

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
    /// What its writer says about it.
    pub attributes: &'a Attributes,
    /// The whole file is its content.
    pub file: File,
    /// Of the file, in bytes.
    pub size: u64,
    /// What must hold.
    pub condition: &'a PutCondition,
}
