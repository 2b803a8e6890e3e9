//! The seam to a store elsewhere. What implements it knows protocols and keys; this crate knows
//! which content has which name, and when.

use std::fmt;
use std::fs::File;
use std::time::Duration;

use crate::StoreError;

/// Bytes by name in a store elsewhere. What is sent under a name never changes. Calls block, and
/// give up after seconds: [`StoreError::Elsewhere`].
pub trait ContentStore: fmt::Debug + Send + Sync {
    /// As its user names it.
    fn location(&self) -> String;

    /// Makes the store the data directory's of this id, alone, and tries what keys may do there.
    /// `has_contents`: it must be so already.
    ///
    /// # Errors
    /// [`StoreError::BadElsewhere`] with what its owner can do about it; the store's.
    fn claim(&self, owner: &str, has_contents: bool) -> Result<(), StoreError>;

    /// Writes a content; it is there, and durable, when this returns.
    ///
    /// # Errors
    /// The store's, the reader's, or those of [`Outgoing::begun`].
    fn send(&self, content: Outgoing<'_>) -> Result<(), StoreError>;

    /// Removes the parts of an upload that was begun and did not end. Missing ones do not matter.
    ///
    /// # Errors
    /// The store's.
    fn abort(&self, name: &str, upload: &str) -> Result<(), StoreError>;

    /// Bytes of a content; `None`: the store does not have it.
    ///
    /// # Errors
    /// The store's.
    fn read(&self, name: &str, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes a content into a file; gives its length, or `None`: the store does not have it.
    ///
    /// # Errors
    /// The store's, or the file's.
    fn fetch(&self, name: &str, to: &File) -> Result<Option<u64>, StoreError>;

    /// Removes contents. Missing ones do not matter.
    ///
    /// # Errors
    /// The store's.
    fn remove(&self, names: &[String]) -> Result<(), StoreError>;

    /// An address from which anyone may read a content for this time, if the store has such.
    ///
    /// # Errors
    /// The store's.
    fn address(&self, name: &str, valid: Duration) -> Result<Option<String>, StoreError>;
}

/// Reads bytes from a place of a content, in order.
pub type ReadContent<'a> = dyn FnMut(u64, usize) -> Result<Vec<u8>, StoreError> + 'a;

/// A content on its way to a store.
pub struct Outgoing<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its length.
    pub size: u64,
    /// Reads it, from its beginning to its end.
    pub read: &'a mut ReadContent<'a>,
    /// Notes the id of an upload in parts, before its first part is sent.
    pub begun: &'a dyn Fn(&str) -> Result<(), StoreError>,
    /// Whether the server ends, and the call with it.
    pub is_cancelled: &'a dyn Fn() -> bool,
}
