//! Buckets: the top level of the objects' names.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::clock::now_ms;
use crate::content_keys;
use crate::multipart::remove_upload;
use crate::object_rows::{bucket_id, bucket_row, file_column, from_json, to_json};
use crate::passthrough::HIDDEN;
use crate::{Objects, StoreError, Versioning};

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketMeta {
    /// Its name.
    pub name: String,
    /// When it was created, in milliseconds since the epoch.
    pub created_ms: u64,
}

impl Objects {
    /// Makes a bucket.
    ///
    /// # Errors
    /// [`StoreError::BucketExists`].
    pub fn create_bucket(&self, bucket: &str) -> Result<(), StoreError> {
        let rest = self.index.write(|tx| {
            let hidden = "SELECT id FROM bucket WHERE name = ? AND passthrough = ?";
            let hidden: Option<i64> = tx.query_row(hidden, params![bucket, HIDDEN], |row| row.get(0)).optional()?;
            let rest = hidden.map(|id| remove(tx, id)).transpose()?;
            let insert = "INSERT INTO bucket (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING";
            if tx.execute(insert, params![bucket, now_ms()])? == 0 {
                return Err(StoreError::BucketExists(bucket.to_owned()));
            }
            Ok(rest)
        })?;
        rest.into_iter().for_each(|rest| self.clear_uploads(rest));
        Ok(())
    }

    fn clear_uploads(&self, Uploads { ids, files }: Uploads) {
        self.remove_files(files);
        ids.iter().for_each(|upload| self.remove_files(self.places.end(upload)));
    }

    /// Tags of a bucket; none, if there are none.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn bucket_tags(&self, bucket: &str) -> Result<BTreeMap<String, String>, StoreError> {
        self.index.read(|connection| {
            let id = bucket_id(connection, bucket)?;
            let tags: String =
                connection.prepare_cached("SELECT tags FROM bucket WHERE id = ?")?.query_row([id], |row| row.get(0))?;
            from_json(&tags)
        })
    }

    /// Replaces a bucket's tags.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn set_bucket_tags(&self, bucket: &str, tags: &BTreeMap<String, String>) -> Result<(), StoreError> {
        self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            tx.execute("UPDATE bucket SET tags = ? WHERE id = ?", params![to_json(tags), id])?;
            Ok(())
        })
    }

    /// The policy of a bucket, as it was set.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn bucket_policy(&self, bucket: &str) -> Result<Option<String>, StoreError> {
        self.index.read(|connection| {
            let id = bucket_id(connection, bucket)?;
            let mut select = connection.prepare_cached("SELECT policy FROM bucket WHERE id = ?")?;
            Ok(select.query_row([id], |row| row.get(0))?)
        })
    }

    /// Replaces a bucket's policy; none removes it.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn set_bucket_policy(&self, bucket: &str, policy: Option<&str>) -> Result<(), StoreError> {
        self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            tx.execute("UPDATE bucket SET policy = ? WHERE id = ?", params![policy, id])?;
            Ok(())
        })
    }

    /// Whether a bucket keeps versions.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn versioning(&self, bucket: &str) -> Result<Versioning, StoreError> {
        self.index.read(|connection| Ok(bucket_row(connection, bucket)?.versioning))
    }

    /// Has a bucket keep versions from now on, or no more. One that ever kept some has its earlier
    /// ones still, and does not become [`Versioning::Never`] again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn set_versioning(&self, bucket: &str, versioning: Versioning) -> Result<(), StoreError> {
        self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            let update = "UPDATE bucket SET versioning = ?2 WHERE id = ?1 AND (versioning = 0 OR ?2 <> 0)";
            tx.execute(update, params![id, versioning.column()])?;
            Ok(())
        })
    }

    /// The rules by which a bucket's objects expire, as they were set.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn bucket_lifecycle(&self, bucket: &str) -> Result<Option<String>, StoreError> {
        self.index.read(|connection| {
            let mut select = connection.prepare_cached("SELECT lifecycle FROM bucket WHERE name = ?")?;
            let found = select.query_row([bucket], |row| row.get(0)).optional()?;
            found.ok_or_else(|| StoreError::NoSuchBucket(bucket.to_owned()))
        })
    }

    /// Replaces these rules; none removes them.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn set_bucket_lifecycle(&self, bucket: &str, lifecycle: Option<&str>) -> Result<(), StoreError> {
        self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            tx.execute("UPDATE bucket SET lifecycle = ? WHERE id = ?", params![lifecycle, id])?;
            Ok(())
        })
    }

    /// The buckets that have such rules, with them.
    ///
    /// # Errors
    /// The storage's.
    pub fn lifecycles(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.index.read(|connection| {
            let sql = "SELECT name, lifecycle FROM bucket WHERE lifecycle IS NOT NULL ORDER BY name";
            let mut select = connection.prepare_cached(sql)?;
            let found = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(found.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Removes an empty bucket and its unfinished uploads. One with earlier versions or delete
    /// markers is not empty.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::BucketNotEmpty`].
    pub fn delete_bucket(&self, bucket: &str) -> Result<(), StoreError> {
        if let Some(shown) = self.passthrough(bucket) {
            return Err(shown.has_none(bucket, "it is removed by taking [bucket.NAME] out of shoal.toml"));
        }
        let rest = self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            let any = "SELECT EXISTS (SELECT 1 FROM object WHERE bucket = ?1) OR EXISTS (SELECT 1 FROM version WHERE \
                       bucket = ?1)";
            if tx.query_row(any, [id], |row| row.get(0))? {
                return Err(StoreError::BucketNotEmpty(bucket.to_owned()));
            }
            remove(tx, id)
        })?;
        self.clear_uploads(rest);
        Ok(())
    }

    /// The bucket of this name, if there is one.
    ///
    /// # Errors
    /// The storage's.
    pub fn bucket(&self, bucket: &str) -> Result<Option<BucketMeta>, StoreError> {
        Ok(self.buckets()?.into_iter().find(|meta| meta.name == bucket))
    }

    /// All buckets, by name.
    ///
    /// # Errors
    /// The storage's.
    pub fn buckets(&self) -> Result<Vec<BucketMeta>, StoreError> {
        self.index.read(|connection| {
            let mut select =
                connection.prepare_cached("SELECT name, created_ms FROM bucket WHERE passthrough < 2 ORDER BY name")?;
            let buckets = select.query_map([], |row| Ok(BucketMeta { name: row.get(0)?, created_ms: row.get(1)? }))?;
            Ok(buckets.collect::<rusqlite::Result<_>>()?)
        })
    }
}

/// Unfinished uploads of a bucket that is removed, and the files of their parts.
struct Uploads {
    ids: Vec<String>,
    files: Vec<String>,
}

/// Removes the row of a bucket without objects, and all that belongs to it.
fn remove(tx: &Connection, bucket: i64) -> Result<Uploads, StoreError> {
    let ids = file_column(tx, "SELECT id FROM upload WHERE bucket = ?", [bucket])?;
    let parts = ids.iter().map(|upload| remove_upload(tx, upload)).collect::<Result<Vec<_>, _>>()?;
    content_keys::forget_bucket(tx, bucket)?;
    tx.execute("DELETE FROM bucket WHERE id = ?", [bucket])?;
    Ok(Uploads { ids, files: parts.into_iter().flatten().map(|part| part.holder).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, DataDir};

    #[test]
    fn buckets_come_and_go() {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::open(temp.path()).unwrap()).unwrap();
        objects.create_bucket("b").unwrap();
        assert!(matches!(objects.create_bucket("b"), Err(StoreError::BucketExists(_))));
        assert_eq!(objects.bucket_tags("b").unwrap(), BTreeMap::new());
        let tags = BTreeMap::from([("kind".to_owned(), "raw".to_owned())]);
        objects.set_bucket_tags("b", &tags).unwrap();
        assert_eq!(objects.bucket_tags("b").unwrap(), tags);
        assert_eq!(objects.bucket_policy("b").unwrap(), None);
        objects.set_bucket_policy("b", Some("{}")).unwrap();
        assert_eq!(objects.bucket_policy("b").unwrap().as_deref(), Some("{}"));
        objects.set_bucket_policy("b", None).unwrap();
        assert_eq!(objects.bucket_policy("b").unwrap(), None);
        assert!(matches!(objects.bucket_policy("c"), Err(StoreError::NoSuchBucket(_))));
        objects.put("b", "k", b"", &Attributes::default()).unwrap();
        assert!(matches!(objects.delete_bucket("b"), Err(StoreError::BucketNotEmpty(_))));
        objects.delete("b", "k").unwrap();
        let upload = objects.create_upload("b", "k", &Attributes::default(), None).unwrap();
        objects.commit_part(objects.writer().unwrap(), &upload, 1, &BTreeMap::new()).unwrap();
        objects.delete_bucket("b").unwrap();
        assert_eq!(objects.buckets().unwrap(), Vec::new());
        assert!(matches!(objects.get("b", "k"), Err(StoreError::NoSuchBucket(_))));
        // A new bucket of the old name knows nothing of it.
        objects.create_bucket("b").unwrap();
        assert_eq!(objects.uploads("b", "").unwrap(), Vec::new());
        assert_eq!(objects.bucket_tags("b").unwrap(), BTreeMap::new());
    }
}
