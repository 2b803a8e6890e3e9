//! Buckets that show one elsewhere as it is: its objects are others', so nothing of them is in the
//! index. The index has the bucket itself, with what is this server's of it: its policy, its tags
//! and the parts of unfinished uploads. Every other question goes to the store elsewhere.

mod contents;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::clock::now_ms;
use crate::data_dir::hex;
use crate::error::{ForeignError, ForeignFault};
use crate::foreign::{Passthrough, PassthroughBuckets};
use crate::listing::common_prefix;
use crate::{Listing, ObjectMeta, Objects, StoreError};
pub(crate) use contents::ForeignReader;

/// `bucket.passthrough`: an own bucket, a shown one, and one that the settings do not name now.
const OWN: u8 = 0;
const SHOWN: u8 = 1;
pub(crate) const HIDDEN: u8 = 2;

impl Objects {
    /// With buckets that show others. Copies of contents that jobs read take `cache_bytes` on the
    /// disk. A bucket that was shown before and is not given now is hidden; it has its policy and
    /// its tags when it is given again.
    ///
    /// # Errors
    /// [`StoreError::BucketExists`]: this server has a bucket of its own of that name.
    pub fn with_passthrough(
        mut self,
        buckets: BTreeMap<String, Passthrough>,
        cache_bytes: u64,
    ) -> Result<Self, StoreError> {
        self.index.write(|tx| {
            tx.execute("UPDATE bucket SET passthrough = ? WHERE passthrough = ?", params![HIDDEN, SHOWN])?;
            for name in buckets.keys() {
                let kind = "SELECT passthrough FROM bucket WHERE name = ?";
                match tx.query_row(kind, [name], |row| row.get(0)).optional()? {
                    Some(OWN) => return Err(StoreError::BucketExists(name.clone())),
                    Some(_) => tx.execute("UPDATE bucket SET passthrough = ? WHERE name = ?", params![SHOWN, name])?,
                    None => {
                        let insert = "INSERT INTO bucket (name, created_ms, passthrough) VALUES (?, ?, ?)";
                        tx.execute(insert, params![name, now_ms(), SHOWN])?
                    }
                };
            }
            Ok(())
        })?;
        self.passthrough = PassthroughBuckets::of(buckets, cache_bytes);
        Ok(self)
    }

    /// What the bucket of this name shows, if it shows one elsewhere.
    pub fn passthrough(&self, bucket: &str) -> Option<&Passthrough> {
        self.passthrough.buckets.get(bucket)
    }

    /// Of an object that is in such a bucket.
    pub(crate) fn passthrough_of(&self, meta: &ObjectMeta) -> Result<Option<&Passthrough>, StoreError> {
        let Some(name) = &meta.passthrough else { return Ok(None) };
        self.passthrough(name).map(Some).ok_or_else(|| StoreError::NoSuchBucket(name.to_string()))
    }

    /// The object of a key in such a bucket.
    pub(crate) fn foreign_object(
        &self,
        shown: &Passthrough,
        bucket: &str,
        key: &str,
    ) -> Result<Option<ObjectMeta>, StoreError> {
        Ok(shown.bucket.head(key)?.map(|meta| of_bucket(bucket, &shown.bucket.location(), meta)))
    }

    /// [`Objects::list`] of such a bucket.
    pub(crate) fn foreign_list(
        &self,
        shown: &Passthrough,
        bucket: &str,
        (prefix, start_after): (&str, Option<&str>),
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<Listing, StoreError> {
        if max == 0 {
            return Ok(Listing::default());
        }
        let after = start_after.map(|start| match common_prefix(start, prefix, delimiter) == Some(start) {
            // After all keys that it stands for.
            true => format!("{start}{}", char::MAX),
            false => start.to_owned(),
        });
        let mut listing = shown.bucket.list(prefix, after.as_deref(), delimiter, max)?;
        in_order(&listing, start_after).map_err(|what| {
            let text = format!(
                "bucket `{bucket}` shows {}, whose list cannot be read on: {what} (docs/objects.md)",
                shown.bucket.location()
            );
            StoreError::from(ForeignError { fault: ForeignFault::Rejected, text })
        })?;
        let location = shown.bucket.location();
        listing.objects = listing.objects.into_iter().map(|meta| of_bucket(bucket, &location, meta)).collect();
        Ok(listing)
    }
}

/// What is read on after the last key of a page needs pages in the order of keys, each after the
/// one before: else parts of a list would be left out, or come for ever.
fn in_order(listing: &Listing, start_after: Option<&str>) -> Result<(), String> {
    if let Some(start) = start_after {
        // A common prefix may stand for keys before and after it.
        let is_before =
            |key: &str, may_hold: bool| key <= start && !(may_hold && key != start && start.starts_with(key));
        let keys = listing.objects.iter().map(|meta| (&meta.key, false));
        let mut all = keys.chain(listing.common_prefixes.iter().map(|common| (common, true)));
        if let Some((key, _)) = all.find(|(key, may_hold)| is_before(key, *may_hold)) {
            return Err(format!("asked for what comes after `{start}`, it answers with `{key}`"));
        }
    }
    let is_sorted =
        listing.objects.is_sorted_by(|one, other| one.key < other.key) && listing.common_prefixes.is_sorted();
    if listing.next.is_some() && !is_sorted {
        return Err("it has several pages, and they are not in the order of keys".to_owned());
    }
    Ok(())
}

/// As an object of the bucket that shows it. Its id follows from its content's ETag, or from its
/// time, where the store has none: what has the same id is the same.
fn of_bucket(bucket: &str, location: &str, meta: ObjectMeta) -> ObjectMeta {
    let mut hash = Sha256::new();
    let time = if meta.etag.is_empty() { Some(meta.modified_ms.to_string()) } else { None };
    for part in [location, &meta.key, &meta.etag, &meta.size.to_string()].into_iter().chain(time.as_deref()) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    ObjectMeta { id: hex(&hash.finalize()[..16]), passthrough: Some(bucket.into()), ..meta }
}
