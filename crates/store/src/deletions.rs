//! Removing objects, under conditions on the present one, and files that no row names.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::clock::now_ms;
use crate::error::io_at;
use crate::object_rows::{BucketRow, bucket_row, file_column};
use crate::version_rows::{Row, by_id, current, make_way, put_marker, remove_row};
use crate::{ObjectMeta, Objects, StoreError, Version, Versioning, object_writer};

/// What must hold for an object to be deleted; all of what is given. Without anything given, an
/// absent object counts as deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteCondition {
    /// There is an object.
    pub exists: bool,
    /// Its ETag.
    pub etag: Option<String>,
    /// Its length in bytes.
    pub size: Option<u64>,
    /// When it was committed, in whole seconds since the epoch.
    pub modified_s: Option<u64>,
}

impl DeleteCondition {
    fn holds(&self, present: Option<&Row>) -> bool {
        self.is_met(present.map(|row| (row.etag.as_str(), row.size, row.modified_ms)))
    }

    pub(crate) fn holds_of(&self, present: Option<&ObjectMeta>) -> bool {
        self.is_met(present.map(|meta| (meta.etag.as_str(), meta.size, meta.modified_ms)))
    }

    fn is_met(&self, present: Option<(&str, u64, u64)>) -> bool {
        let Some((etag, size, modified_ms)) = present else { return *self == Self::default() };
        self.etag.as_ref().is_none_or(|wanted| wanted == etag)
            && self.size.is_none_or(|wanted| wanted == size)
            && self.modified_s.is_none_or(|wanted| wanted == modified_ms / 1000)
    }
}

/// What a deletion has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// There was an object, or a version with the id.
    pub existed: bool,
    /// The version that is gone, or the delete marker that hides the object now.
    pub version: Version,
    /// That is a delete marker.
    pub is_marker: bool,
}

impl Objects {
    /// Removes what a crash left.
    pub(crate) fn sweep(&self) -> Result<(), StoreError> {
        let named: HashSet<u128> = self.index.read(|connection| {
            let files = file_column(
                connection,
                "SELECT file FROM object UNION ALL SELECT file FROM version WHERE file IS NOT NULL UNION ALL SELECT \
                 coalesce(shared, file) FROM part",
                [],
            )?;
            Ok(files.iter().filter_map(|id| u128::from_str_radix(id, 16).ok()).collect())
        })?;
        for shard in entries(&self.files)? {
            for path in entries(&shard)? {
                let id = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .and_then(|name| u128::from_str_radix(name, 16).ok());
                if !id.is_some_and(|id| named.contains(&id)) {
                    fs::remove_file(&path).map_err(io_at("remove", &path))?;
                }
            }
        }
        Ok(())
    }

    /// Removes files that no row names any more. One that cannot be removed now is swept at the
    /// next start.
    pub(crate) fn remove_files(&self, ids: impl IntoIterator<Item = String>) {
        let ids = Vec::from_iter(ids);
        for id in &ids {
            self.verified.forget(id);
            let _ = fs::remove_file(object_writer::file_path(&self.files, id));
        }
        match self.elsewhere() {
            Some(elsewhere) if !ids.is_empty() => elsewhere.forgot(&ids),
            _ => {}
        }
    }

    /// Removes the object of this key and returns whether there was one. Where its bucket keeps
    /// versions, a delete marker hides it instead.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn delete(&self, bucket: &str, key: &str) -> Result<bool, StoreError> {
        Ok(self.delete_if(bucket, key, None, &DeleteCondition::default())?.existed)
    }

    /// The same under a condition on the present object; or of the version with this id, which is
    /// then removed permanently.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::PreconditionFailed`]; then nothing is removed.
    pub fn delete_if(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        condition: &DeleteCondition,
    ) -> Result<Deletion, StoreError> {
        if let Some(shown) = self.passthrough(bucket) {
            return match version {
                None | Some("null") => self.delete_foreign(shown, (bucket, key), condition),
                Some(id) => Err(StoreError::NoSuchVersion { key: key.to_owned(), version: id.to_owned() }),
            };
        }
        let now = now_ms();
        let (deletion, removed) = self.index.write(|tx| {
            let bucket = bucket_row(tx, bucket)?;
            let present = match version {
                None => current(tx, bucket, key)?,
                Some(id) => by_id(tx, bucket, key, id)?,
            };
            if !condition.holds(present.as_ref().filter(|row| row.file.is_some())) {
                return Err(StoreError::PreconditionFailed { key: key.to_owned() });
            }
            match (version, present) {
                (Some(id), None) => Ok((Deletion { version: Version::Id(id.to_owned()), ..Deletion::default() }, None)),
                (Some(_), Some(row)) => delete_version(tx, bucket, key, row),
                (None, present) => delete_current(tx, bucket, key, present, now),
            }
        })?;
        self.remove_files(removed);
        Ok(deletion)
    }
}

/// What was deleted, and the files to be removed.
pub(crate) type Deleted = (Deletion, Option<String>);

/// Removes a version permanently.
pub(crate) fn delete_version(tx: &Connection, bucket: BucketRow, key: &str, row: Row) -> Result<Deleted, StoreError> {
    remove_row(tx, bucket, key, &row)?;
    let is_marker = row.file.is_none();
    // It was asked for by an id.
    let version = if row.version == Version::Only { Version::Null } else { row.version };
    Ok((Deletion { existed: true, version, is_marker }, row.file))
}

/// Removes the current object as its bucket's versioning has it.
pub(crate) fn delete_current(
    tx: &Connection,
    bucket: BucketRow,
    key: &str,
    present: Option<Row>,
    now_ms: u64,
) -> Result<Deleted, StoreError> {
    let existed = present.as_ref().is_some_and(|row| row.file.is_some());
    if bucket.versioning == Versioning::Never {
        present.iter().try_for_each(|row| remove_row(tx, bucket, key, row))?;
        let removed = present.and_then(|row| row.file);
        return Ok((Deletion { existed, ..Deletion::default() }, removed));
    }
    let mut next = make_way(tx, bucket, key, now_ms)?;
    put_marker(tx, bucket, key, &next, now_ms)?;
    let version = Version::of(next.id, bucket.versioning);
    Ok((Deletion { existed, version, is_marker: true }, next.removed.pop()))
}

pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    read().map_err(io_at("list", dir))
}
