//! Removing objects, under conditions on the present one, and files that no row names.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, params};

use crate::error::io_at;
use crate::object_rows::{bucket_id, file_column, forget_file};
use crate::{Objects, StoreError, object_writer};

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
    fn holds(&self, present: Option<&(String, u64, u64)>) -> bool {
        let Some((etag, size, modified_ms)) = present else { return *self == Self::default() };
        self.etag.as_ref().is_none_or(|wanted| wanted == etag)
            && self.size.is_none_or(|wanted| wanted == *size)
            && self.modified_s.is_none_or(|wanted| wanted == modified_ms / 1000)
    }
}

impl Objects {
    /// Removes what a crash left.
    pub(crate) fn sweep(&self) -> Result<(), StoreError> {
        let named: HashSet<u128> = self.index.read(|connection| {
            let files = file_column(
                connection,
                "SELECT file FROM object UNION ALL SELECT coalesce(shared, file) FROM part",
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

    /// Removes the object of this key; says whether there was one.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn delete(&self, bucket: &str, key: &str) -> Result<bool, StoreError> {
        self.delete_if(bucket, key, &DeleteCondition::default())
    }

    /// The same under a condition on the present object.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::PreconditionFailed`]; then nothing is removed.
    pub fn delete_if(&self, bucket: &str, key: &str, condition: &DeleteCondition) -> Result<bool, StoreError> {
        let removed: Option<String> = self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            if *condition != DeleteCondition::default() {
                let mut select =
                    tx.prepare_cached("SELECT etag, size, modified_ms FROM object WHERE bucket = ? AND key = ?")?;
                let present =
                    select.query_row(params![id, key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
                if !condition.holds(present.as_ref()) {
                    return Err(StoreError::PreconditionFailed { key: key.to_owned() });
                }
            }
            let mut delete = tx.prepare_cached("DELETE FROM object WHERE bucket = ? AND key = ? RETURNING file")?;
            let removed: Option<String> = delete.query_row(params![id, key], |row| row.get(0)).optional()?;
            removed.iter().try_for_each(|file| forget_file(tx, file))?;
            Ok(removed)
        })?;
        let existed = removed.is_some();
        self.remove_files(removed);
        Ok(existed)
    }
}

pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read = || fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    read().map_err(io_at("list", dir))
}
