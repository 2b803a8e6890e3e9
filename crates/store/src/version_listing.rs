//! Versions of objects: one of a key, and lists of all.

use rusqlite::{OptionalExtension, Row, params};

use crate::listing::{after_prefix, common_prefix};
use crate::object_rows::{BucketRow, VERSIONED_COLUMNS, bucket_row, versioned_object_of};
use crate::version::place_of;
use crate::version_rows::{by_id, row_of};
use crate::{ObjectMeta, Objects, StoreError, Version, Versioning};

/// A version of an object, or a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMeta {
    /// Its key.
    pub key: String,
    /// Which one it is.
    pub version: Version,
    /// When it was made, in milliseconds since the epoch.
    pub modified_ms: u64,
    /// Since when it is not the current one; `None`: it is.
    pub noncurrent_ms: Option<u64>,
    /// The object; `None`: it is a delete marker.
    pub object: Option<ObjectMeta>,
    pub(crate) place: i64,
}

/// One page of a bucket's versions, in the order of keys, of each key the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionListing {
    /// Versions of keys that do not go on after a delimiter.
    pub versions: Vec<VersionMeta>,
    /// The prefix and what follows up to and with the next delimiter, once each.
    pub common_prefixes: Vec<String>,
    /// What the next page starts after: a key and a version's id, or a common prefix. `None` at the
    /// end.
    pub next: Option<(String, Option<String>)>,
}

/// In the order of a list; `key` and `place` are compared with `(?2, ?3)`.
fn all_versions() -> String {
    format!(
        "SELECT {VERSIONED_COLUMNS}, place, NULL, 1 FROM object WHERE bucket = ?1 AND (key, place) > (?2, ?3) UNION ALL \
         SELECT {VERSIONED_COLUMNS}, place, noncurrent_ms, file IS NOT NULL FROM version WHERE bucket = ?1 AND (key, \
         place) > (?2, ?3) ORDER BY 1, 8"
    )
}

fn version_of(row: &Row<'_>, versioning: Versioning) -> Result<VersionMeta, StoreError> {
    let object = row.get::<_, bool>(9)?.then(|| versioned_object_of(row, versioning)).transpose()?;
    Ok(VersionMeta {
        key: row.get(0)?,
        modified_ms: row.get(4)?,
        version: Version::of(row.get(6)?, versioning),
        place: row.get(7)?,
        noncurrent_ms: row.get(8)?,
        object,
    })
}

impl Objects {
    /// The version of a key with this id; without one the current object.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchKey`], [`StoreError::NoSuchVersion`],
    /// [`StoreError::DeleteMarker`].
    pub fn version(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<ObjectMeta, StoreError> {
        if let Some(shown) = self.passthrough(bucket) {
            let no_key = || StoreError::NoSuchKey { bucket: bucket.to_owned(), key: key.to_owned() };
            let found = self.foreign_object(shown, bucket, key)?.ok_or_else(no_key)?;
            return match version {
                None | Some("null") => Ok(found),
                Some(id) => Err(StoreError::NoSuchVersion { key: key.to_owned(), version: id.to_owned() }),
            };
        }
        self.index.read(|connection| {
            let row = bucket_row(connection, bucket)?;
            // One look where there are no versions.
            if version.is_none() {
                let sql = format!("SELECT {VERSIONED_COLUMNS} FROM object WHERE bucket = ? AND key = ?");
                let mut select = connection.prepare_cached(&sql)?;
                let at = params![row.id, key];
                let found = select.query_row(at, |found| Ok(versioned_object_of(found, row.versioning))).optional()?;
                if let Some(found) = found {
                    return found;
                }
            }
            let found = row_of(connection, bucket, &row, key, version)?;
            let sql =
                format!("SELECT {VERSIONED_COLUMNS} FROM {} WHERE bucket = ? AND key = ? AND place = ?", found.table);
            let at = params![row.id, key, found.place];
            connection.prepare_cached(&sql)?.query_row(at, |found| Ok(versioned_object_of(found, row.versioning)))?
        })
    }

    /// At most `max` versions and common prefixes of a bucket that start with `prefix` and come
    /// after `after`: a key, of which all is left out without a version's id, or a common prefix.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn list_versions(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<(&str, Option<&str>)>,
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<VersionListing, StoreError> {
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
        self.index.read(|connection| {
            let bucket = bucket_row(connection, bucket)?;
            let Some(mut from) = first_candidate(connection, bucket, prefix, after, delimiter)? else {
                return Ok(VersionListing::default());
            };
            let mut listing = VersionListing::default();
            let mut last = None;
            let mut select = connection.prepare_cached(&all_versions())?;
            // One turn per common prefix: its keys are jumped over, not read.
            'jump: loop {
                let mut rows = select.query(params![bucket.id, from.0, from.1])?;
                while let Some(row) = rows.next()? {
                    let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                    if !key.starts_with(prefix) {
                        break;
                    }
                    if listing.versions.len() + listing.common_prefixes.len() >= max {
                        listing.next = last;
                        break;
                    }
                    let Some(common) = common_prefix(key, prefix, delimiter) else {
                        let version = version_of(row, bucket.versioning)?;
                        last = Some((version.key.clone(), Some(version.version.id().to_owned())));
                        listing.versions.push(version);
                        continue;
                    };
                    last = Some((common.to_owned(), None));
                    listing.common_prefixes.push(common.to_owned());
                    let Some(next) = after_prefix(common) else { break };
                    from = (next, i64::MIN);
                    continue 'jump;
                }
                return Ok(listing);
            }
        })
    }

    /// At most `max` versions of a bucket that come after a place, in the order of a list.
    pub(crate) fn versions_after(
        &self,
        bucket: &str,
        after: (&str, i64),
        max: usize,
    ) -> Result<Vec<VersionMeta>, StoreError> {
        self.index.read(|connection| {
            let bucket = bucket_row(connection, bucket)?;
            let mut select = connection.prepare_cached(&format!("{} LIMIT ?4", all_versions()))?;
            let max = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = select
                .query_map(params![bucket.id, after.0, after.1, max], |row| Ok(version_of(row, bucket.versioning)))?;
            rows.map(|row| row?).collect()
        })
    }
}

/// The greatest key and place that may not be listed; `None` if nothing may.
fn first_candidate(
    connection: &rusqlite::Connection,
    bucket: BucketRow,
    prefix: &str,
    after: Option<(&str, Option<&str>)>,
    delimiter: Option<&str>,
) -> Result<Option<(String, i64)>, StoreError> {
    let Some((key, id)) = after.filter(|(key, _)| *key >= prefix) else {
        return Ok(Some((prefix.to_owned(), i64::MIN)));
    };
    if common_prefix(key, prefix, delimiter) == Some(key) {
        return Ok(after_prefix(key).map(|next| (next, i64::MIN)));
    }
    let place = match id {
        None => i64::MAX,
        Some(id) => match place_of(id) {
            Some(place) => place,
            // One that is gone begins the key again: clients delete while they list.
            None => by_id(connection, bucket, key, id)?.map_or(i64::MIN, |row| row.place),
        },
    };
    Ok(Some((key.to_owned(), place)))
}
