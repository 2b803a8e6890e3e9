//! What expires by a bucket's rules: read and removed in batches, each of which is one transaction.
//! What the rules say is the caller's business; here is ensured that nothing goes that has changed
//! since the caller looked.

use rusqlite::{Connection, OptionalExtension, params};

use crate::clock::now_ms;
use crate::deletions::delete_current;
use crate::object_rows::{BucketRow, bucket_row, forget_file};
use crate::version_rows::current;
use crate::{Objects, StoreError, VersionMeta};

/// Where a walk over a bucket's versions is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionPlace {
    key: String,
    place: i64,
}

impl Default for VersionPlace {
    fn default() -> Self {
        Self { key: String::new(), place: i64::MIN }
    }
}

impl From<&VersionMeta> for VersionPlace {
    fn from(version: &VersionMeta) -> Self {
        Self { key: version.key.clone(), place: version.place }
    }
}

/// A version that has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expired {
    /// The current object: it is deleted as a client deletes it.
    Current {
        /// Its key.
        key: String,
        /// Which object it was.
        id: String,
    },
    /// One that is not current any more: it is removed permanently.
    Noncurrent(VersionPlace),
    /// A delete marker that hides nothing: it goes.
    Marker(VersionPlace),
}

impl Objects {
    /// The next versions of a bucket, in the order of keys, of each key the newest first.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn walk_versions(
        &self,
        bucket: &str,
        after: &VersionPlace,
        max: usize,
    ) -> Result<Vec<VersionMeta>, StoreError> {
        self.versions_after(bucket, (&after.key, after.place), max)
    }

    /// Removes what has expired by these rules, in one transaction. Returns how many there were of
    /// what is still as it was when it was read; `None`: the bucket has other rules by now, and
    /// nothing is removed.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn expire(&self, bucket: &str, lifecycle: &str, expired: &[Expired]) -> Result<Option<u64>, StoreError> {
        let now = now_ms();
        let done = self.index.write(|tx| {
            let row = bucket_row(tx, bucket)?;
            let rules: Option<String> = tx
                .prepare_cached("SELECT lifecycle FROM bucket WHERE id = ?")?
                .query_row([row.id], |found| found.get(0))?;
            if rules.as_deref() != Some(lifecycle) {
                return Ok(None);
            }
            let (mut count, mut files) = (0, Vec::new());
            for one in expired {
                let removed = match one {
                    Expired::Current { key, id } => match current(tx, row, key)? {
                        Some(found) if found.file.as_ref() == Some(id) => {
                            Some(delete_current(tx, row, key, Some(found), now)?.1)
                        }
                        _ => None,
                    },
                    Expired::Noncurrent(at) => expire_noncurrent(tx, row, at)?,
                    Expired::Marker(at) => expire_marker(tx, row, at)?.then_some(None),
                };
                count += u64::from(removed.is_some());
                files.extend(removed.flatten());
            }
            Ok(Some((count, files)))
        })?;
        Ok(done.map(|(count, files)| {
            self.remove_files(files);
            count
        }))
    }
}

/// The file of a version that is gone now; the outer `None`: it is current again, or gone already.
fn expire_noncurrent(
    tx: &Connection,
    bucket: BucketRow,
    at: &VersionPlace,
) -> Result<Option<Option<String>>, StoreError> {
    let delete = "DELETE FROM version WHERE bucket = ? AND key = ? AND place = ? AND noncurrent_ms IS NOT NULL \
                  RETURNING file";
    let mut delete = tx.prepare_cached(delete)?;
    let file: Option<Option<String>> =
        delete.query_row(params![bucket.id, at.key, at.place], |row| row.get(0)).optional()?;
    file.iter().flatten().try_for_each(|file| forget_file(tx, file))?;
    Ok(file)
}

fn expire_marker(tx: &Connection, bucket: BucketRow, at: &VersionPlace) -> Result<bool, StoreError> {
    let delete = "DELETE FROM version WHERE bucket = ?1 AND key = ?2 AND place = ?3 AND file IS NULL AND noncurrent_ms \
                  IS NULL AND NOT EXISTS (SELECT 1 FROM version WHERE bucket = ?1 AND key = ?2 AND place <> ?3)";
    Ok(tx.prepare_cached(delete)?.execute(params![bucket.id, at.key, at.place])? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, DataDir, Versioning};

    const RULES: &str = "rules";

    fn open() -> (tempfile::TempDir, DataDir, Objects) {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        objects.set_bucket_lifecycle("b", Some(RULES)).unwrap();
        (temp, dir, objects)
    }

    fn put(objects: &Objects, content: &str) -> String {
        objects.put("b", "k", content.as_bytes(), &Attributes::default()).unwrap().id
    }

    fn places(objects: &Objects) -> Vec<VersionPlace> {
        objects.walk_versions("b", &VersionPlace::default(), 9).unwrap().iter().map(VersionPlace::from).collect()
    }

    #[test]
    fn what_has_changed_since_it_was_read_does_not_expire() {
        let (_temp, _dir, objects) = open();
        let expired = |id: &str| [Expired::Current { key: "k".to_owned(), id: id.to_owned() }];
        let (first, second) = (put(&objects, "1"), put(&objects, "2"));
        assert_eq!(objects.expire("b", RULES, &expired(&first)).unwrap(), Some(0), "it was replaced");
        assert_eq!(objects.expire("b", "others", &expired(&second)).unwrap(), None);
        assert_eq!(objects.expire("b", RULES, &expired(&second)).unwrap(), Some(1));
        assert_eq!(objects.get("b", "k").unwrap(), None);
        assert!(objects.walk_versions("b", &VersionPlace::default(), 9).unwrap().is_empty(), "it left no marker");

        objects.set_versioning("b", Versioning::Enabled).unwrap();
        let (_, newer) = (put(&objects, "3"), put(&objects, "4"));
        let older = places(&objects)[1].clone();
        let id = objects.get("b", "k").unwrap().unwrap().version.id().to_owned();
        objects.delete_if("b", "k", Some(&id), &crate::DeleteCondition::default()).unwrap();
        assert_eq!(objects.expire("b", RULES, &[Expired::Noncurrent(older)]).unwrap(), Some(0), "it is current again");
        assert_eq!(objects.expire("b", RULES, &expired(&newer)).unwrap(), Some(0));
        assert_eq!(objects.reader("b", "k").unwrap().read_all().unwrap(), b"3");
    }

    #[test]
    fn a_marker_goes_with_the_last_version_that_it_hides() {
        let (_temp, _dir, objects) = open();
        objects.set_versioning("b", Versioning::Enabled).unwrap();
        put(&objects, "1");
        put(&objects, "2");
        let id = objects.get("b", "k").unwrap().unwrap().id;
        assert_eq!(objects.expire("b", RULES, &[Expired::Current { key: "k".to_owned(), id }]).unwrap(), Some(1));
        let [marker, second, first] = places(&objects).try_into().unwrap();
        assert_eq!(objects.expire("b", RULES, &[Expired::Marker(marker.clone())]).unwrap(), Some(0));
        let batch = [Expired::Noncurrent(second), Expired::Noncurrent(first.clone()), Expired::Marker(marker)];
        assert_eq!(objects.expire("b", RULES, &batch).unwrap(), Some(3));
        assert_eq!(objects.expire("b", RULES, &[Expired::Noncurrent(first)]).unwrap(), Some(0));
        objects.delete_bucket("b").unwrap();
        assert!(matches!(objects.expire("b", RULES, &[]), Err(StoreError::NoSuchBucket(_))));
    }
}
