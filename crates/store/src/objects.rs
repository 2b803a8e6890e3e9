//! S3-like buckets of immutable objects. An object is a plain file under an opaque id; its row is
//! the commit point.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use shoal_encryption::KeyRing;

use crate::block_sums;
use crate::clock::now_ms;
use crate::content_seals;
use crate::elsewhere::{self, Elsewhere, ElsewhereOptions, ElsewhereStatus, Movers};
use crate::foreign::{PassthroughBuckets, Whole};
use crate::integrity::Verified;
use crate::object_rows::{VERSIONED_COLUMNS, bucket_row, from_json, put_row, to_json, versioned_object_of};
use crate::object_writer::{self, ObjectWriter};
use crate::part_places::{self, Places};
use crate::reserve::Reserve;
use crate::sent_uploads::SentUploads;
use crate::sqlite::{Database, Schema};
use crate::unsynced::{self, Unsynced};
use crate::version_rows::{Row, row_of};
use crate::{Attributes, DataDir, ObjectMeta, PutCondition, StoreError, Version};

pub(crate) const SCHEMA: Schema = Schema {
    formats: &[
        "
    CREATE TABLE bucket (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL);
    CREATE TABLE object (
        bucket INTEGER NOT NULL, key TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
        modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (bucket, key)) WITHOUT ROWID;
    CREATE TABLE upload (
        id TEXT PRIMARY KEY, bucket INTEGER NOT NULL, key TEXT NOT NULL, created_ms INTEGER NOT NULL,
        attributes TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE part (
        upload TEXT NOT NULL, number INTEGER NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
        modified_ms INTEGER NOT NULL, checksums TEXT NOT NULL, PRIMARY KEY (upload, number)) WITHOUT ROWID;
    ",
        "
    CREATE TABLE unsynced (number INTEGER PRIMARY KEY, file TEXT NOT NULL, content BLOB NOT NULL);
    ",
        "
    ALTER TABLE bucket ADD COLUMN tags TEXT NOT NULL DEFAULT '{}';
    CREATE TABLE block_sums (file TEXT PRIMARY KEY, sums BLOB NOT NULL) WITHOUT ROWID;
    ",
        "
    ALTER TABLE part ADD COLUMN shared TEXT;
    ALTER TABLE part ADD COLUMN slot INTEGER;
    ",
        "
    CREATE TABLE content_elsewhere (
        file TEXT PRIMARY KEY, size INTEGER NOT NULL, state INTEGER NOT NULL, upload TEXT, sha256 BLOB) WITHOUT ROWID;
    CREATE INDEX content_under_way ON content_elsewhere (state) WHERE state <> 2;
    ",
        "
    ALTER TABLE bucket ADD COLUMN policy TEXT;
    ",
        "
    ALTER TABLE bucket ADD COLUMN versioning INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE bucket ADD COLUMN lifecycle TEXT;
    ALTER TABLE object ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE object ADD COLUMN version TEXT NOT NULL DEFAULT '';
    CREATE TABLE version (
        bucket INTEGER NOT NULL, key TEXT NOT NULL, place INTEGER NOT NULL, version TEXT NOT NULL, file TEXT,
        size INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL,
        noncurrent_ms INTEGER, PRIMARY KEY (bucket, key, place)) WITHOUT ROWID;
    CREATE UNIQUE INDEX null_version ON version (bucket, key) WHERE version = '';
    ",
        "
    CREATE TABLE content_seals (file TEXT PRIMARY KEY, seals BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE bucket_encryption (bucket INTEGER PRIMARY KEY, rule TEXT NOT NULL);
    ",
        "
    ALTER TABLE bucket ADD COLUMN passthrough INTEGER NOT NULL DEFAULT 0;
    ",
    ],
    gives_back_space: false,
};

/// The objects of a data directory. All methods may be called from many threads at once.
#[derive(Debug)]
pub struct Objects {
    pub(crate) files: PathBuf,
    pub(crate) index: Arc<Database>,
    pub(crate) unsynced: Unsynced,
    pub(crate) verified: Verified,
    pub(crate) places: Places,
    pub(crate) reserve: Reserve,
    /// The owner's keys.
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) passthrough: PassthroughBuckets,
    pub(crate) sent_uploads: SentUploads,
    movers: Option<Movers>,
}

impl Objects {
    /// Opens the objects of a data directory and removes files that no row names: what a crash left
    /// half written.
    ///
    /// # Errors
    /// The storage's; [`StoreError::ContentsElsewhere`].
    pub fn open(dir: &DataDir) -> Result<Self, StoreError> {
        Self::open_with(dir, None)
    }

    /// The same with a store elsewhere for the contents, which threads send there.
    ///
    /// # Errors
    /// The storage's; [`StoreError::BadElsewhere`], [`StoreError::Elsewhere`].
    pub fn open_with(dir: &DataDir, elsewhere: Option<ElsewhereOptions>) -> Result<Self, StoreError> {
        let path = dir.object_index_path();
        let (files, index) = (dir.objects_path(), Arc::new(Database::open(&path, &SCHEMA)?));
        object_writer::make_shards(&files)?;
        let reserve = Reserve::beside(&path);
        reserve.with_room(|| unsynced::restore(&files, &index))?;
        let (unsynced, places) = (Unsynced::new(&files, &index), Places::new(&files));
        let (verified, keys, passthrough) = (Verified::new(), Arc::default(), PassthroughBuckets::default());
        let (sent_uploads, movers) = (SentUploads::default(), None);
        let mut objects =
            Self { unsynced, verified, places, reserve, keys, files, index, passthrough, sent_uploads, movers };
        objects.sweep()?;
        part_places::clear_rest(&objects.files, &objects.index)?;
        match elsewhere {
            None => elsewhere::leave(&objects.files, &objects.index)?,
            Some(options) => {
                let opened = Elsewhere::open(options, dir, &objects.files, &objects.index, &objects.reserve)?;
                objects.movers = Some(Movers::start(opened)?);
            }
        }
        Ok(objects)
    }

    /// Why nothing can be stored any more until the directory is opened anew, if so.
    pub fn failure(&self) -> Option<&str> {
        self.index.failure()
    }

    pub(crate) fn elsewhere(&self) -> Option<&Arc<Elsewhere>> {
        self.movers.as_ref().map(|movers| &movers.elsewhere)
    }

    /// How far contents are on their way to the store elsewhere, where there is one.
    pub fn elsewhere_status(&self) -> Option<ElsewhereStatus> {
        self.elsewhere().map(|elsewhere| elsewhere.status())
    }

    /// There is room for new work: on the disk, and on the way elsewhere.
    pub(crate) fn ensure_room(&self) -> Result<(), StoreError> {
        self.reserve.ensure()?;
        self.elsewhere().map_or(Ok(()), |elsewhere| elsewhere.ensure_room())
    }

    /// Starts an object's file. Dropping the writer instead of committing it removes the file.
    ///
    /// # Errors
    /// I/O; [`StoreError::Full`] while what is left is kept for what is under way;
    /// [`StoreError::Elsewhere`] while too much waits to be sent.
    pub fn writer(&self) -> Result<ObjectWriter, StoreError> {
        self.ensure_room()?;
        self.writer_to_the_last()
    }

    /// The same whatever waits to be sent elsewhere: for small objects, which stay here, and for
    /// what jobs write.
    ///
    /// # Errors
    /// I/O; [`StoreError::Full`] while what is left is kept for what is under way.
    pub fn writer_here(&self) -> Result<ObjectWriter, StoreError> {
        self.reserve.ensure()?;
        self.writer_to_the_last()
    }

    /// The same for what is under way: takes what room there is.
    ///
    /// # Errors
    /// I/O.
    pub fn writer_to_the_last(&self) -> Result<ObjectWriter, StoreError> {
        ObjectWriter::create(&self.files)
    }

    /// Makes what was written the object of this key, durably. An object that it replaces stays
    /// readable for those who have it open.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::PreconditionFailed`], [`StoreError::Foreign`];
    /// then the file is removed.
    pub fn commit(
        &self,
        writer: ObjectWriter,
        bucket: &str,
        key: &str,
        attributes: &Attributes,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let (written, content) = writer.finish()?;
        debug_assert!(written.place().is_none(), "a part is no object");
        if let Some(shown) = self.passthrough(bucket) {
            let attributes = Attributes { encryption: written.envelope().cloned(), ..attributes.clone() };
            let whole = Whole { file: written.path(), size: written.size(), attributes: &attributes };
            return self.send_foreign(shown, (bucket, key), &whole, condition);
        }
        let mut meta = ObjectMeta {
            key: key.to_owned(),
            size: written.size(),
            etag: written.md5_hex(),
            modified_ms: now_ms(),
            id: written.id().to_owned(),
            attributes: Attributes { encryption: written.envelope().cloned(), ..attributes.clone() },
            version: Version::default(),
            passthrough: None,
        };
        let row = self.index.write(|tx| {
            unsynced::keep(tx, &meta.id, content.as_deref())?;
            content_seals::keep(tx, &meta.id, written.seals())?;
            // A small object is compared whole.
            if content.is_none() {
                block_sums::keep(tx, &meta.id, written.sums())?;
            }
            self.keep_elsewhere(tx, &meta)?;
            put_row(tx, bucket, &meta, condition)
        });
        let put = written.named(row)?;
        meta.version = put.version;
        self.remove_files(put.removed);
        self.committed(&meta);
        self.unsynced.grew(content.map_or(0, |content| content.len()));
        Ok(meta)
    }

    /// Writes a small object in one go.
    ///
    /// # Errors
    /// As [`Objects::commit`].
    pub fn put(
        &self,
        bucket: &str,
        key: &str,
        bytes: &[u8],
        attributes: &Attributes,
    ) -> Result<ObjectMeta, StoreError> {
        let mut writer = self.seal(self.writer()?, bucket, None)?;
        writer.append(bytes)?;
        self.commit(writer, bucket, key, attributes, &PutCondition::Always)
    }

    /// The object of this key, if there is one: its current version.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn get(&self, bucket: &str, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        if let Some(shown) = self.passthrough(bucket) {
            return self.foreign_object(shown, bucket, key);
        }
        self.index.read(|connection| {
            let bucket = bucket_row(connection, bucket)?;
            let mut select = connection
                .prepare_cached(&format!("SELECT {VERSIONED_COLUMNS} FROM object WHERE bucket = ? AND key = ?"))?;
            let found = select
                .query_row(params![bucket.id, key], |row| Ok(versioned_object_of(row, bucket.versioning)))
                .optional()?;
            found.transpose()
        })
    }

    /// Replaces the tags of an object, or of this version of it. Nothing else of it changes, not
    /// even its time. Returns which version that was.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchKey`], [`StoreError::NoSuchVersion`],
    /// [`StoreError::DeleteMarker`].
    pub fn set_tags(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        tags: &BTreeMap<String, String>,
    ) -> Result<Version, StoreError> {
        self.index.write(|tx| {
            let row = bucket_row(tx, bucket)?;
            let Row { table, place, version, .. } = row_of(tx, bucket, &row, key, version)?;
            let at = params![row.id, key, place];
            let select = format!("SELECT attributes FROM {table} WHERE bucket = ? AND key = ? AND place = ?");
            let found: String = tx.prepare_cached(&select)?.query_row(at, |row| row.get(0))?;
            let attributes = Attributes { tags: tags.clone(), ..from_json(&found)? };
            let update = format!("UPDATE {table} SET attributes = ? WHERE bucket = ? AND key = ? AND place = ?");
            tx.prepare_cached(&update)?.execute(params![to_json(&attributes), row.id, key, place])?;
            Ok(version)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::deletions::entries;

    fn open() -> (tempfile::TempDir, DataDir, Objects) {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        (temp, dir, objects)
    }

    fn files(objects: &Objects) -> usize {
        entries(&objects.files).unwrap().iter().map(|shard| entries(shard).unwrap().len()).sum()
    }

    fn text(mut file: File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn an_object_is_replaced_whole_and_its_readers_keep_theirs() {
        let (_temp, _dir, objects) = open();
        let attributes = Attributes { content_type: Some("x/y".to_owned()), ..Attributes::default() };
        let first = objects.put("b", "k", b"first", &attributes).unwrap();
        assert_eq!(first.etag, "8b04d5e3775d298e78455efc5ca404d5");
        let (_, reader) = objects.read("b", "k").unwrap();
        let second = objects.put("b", "k", b"second", &Attributes::default()).unwrap();
        assert_eq!(text(reader), "first");
        assert_eq!(objects.get("b", "k").unwrap(), Some(second.clone()));
        assert_eq!(text(objects.open_file(&second).unwrap()), "second");
        assert!(objects.open_file(&first).is_err());
        assert!(objects.delete("b", "k").unwrap());
        assert!(!objects.delete("b", "k").unwrap());
        assert_eq!(objects.get("b", "k").unwrap(), None);
        assert_eq!(files(&objects), 0);
    }

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let (_temp, _dir, objects) = open();
        let present = objects.put("b", "k", b"present", &Attributes::default()).unwrap();
        let commit = |bucket: &str, key: &str, condition: PutCondition| {
            let mut writer = objects.writer().unwrap();
            writer.append(b"new").unwrap();
            objects.commit(writer, bucket, key, &Attributes::default(), &condition).map(|_| ())
        };
        let failed = |result| matches!(result, Err(StoreError::PreconditionFailed { .. }));
        drop(objects.writer().unwrap());
        assert!(matches!(commit("none", "k", PutCondition::Always), Err(StoreError::NoSuchBucket(_))));
        assert!(failed(commit("b", "k", PutCondition::Absent)));
        assert!(failed(commit("b", "k", PutCondition::Matches("other".to_owned()))));
        assert!(matches!(
            commit("b", "none", PutCondition::Matches(present.etag.clone())),
            Err(StoreError::NoSuchKey { .. })
        ));
        assert_eq!(files(&objects), 1);
        commit("b", "k", PutCondition::Matches(present.etag)).unwrap();
        commit("b", "k2", PutCondition::Absent).unwrap();
        assert_eq!(files(&objects), 2);
    }

    #[test]
    fn tags_change_alone() {
        let (_temp, _dir, objects) = open();
        let tags = |value: &str| BTreeMap::from([("kind".to_owned(), value.to_owned())]);
        let attributes =
            Attributes { content_type: Some("x/y".to_owned()), tags: tags("raw"), ..Attributes::default() };
        let before = objects.put("b", "k", b"content", &attributes).unwrap();
        objects.set_tags("b", "k", None, &tags("clean")).unwrap();
        let expected = ObjectMeta { attributes: Attributes { tags: tags("clean"), ..attributes }, ..before };
        assert_eq!(objects.get("b", "k").unwrap(), Some(expected));
        assert!(matches!(objects.set_tags("b", "none", None, &tags("x")), Err(StoreError::NoSuchKey { .. })));
        assert!(matches!(objects.set_tags("none", "k", None, &tags("x")), Err(StoreError::NoSuchBucket(_))));
    }

    #[test]
    fn readers_and_writers_do_not_meet() {
        let (_temp, _dir, objects) = open();
        objects.put("b", "k", b"0 0", &Attributes::default()).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..2 {
                let (objects, done) = (&objects, &done);
                scope.spawn(move || {
                    for turn in 0..50 {
                        objects.put("b", "k", format!("{writer} {turn}").as_bytes(), &Attributes::default()).unwrap();
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let (meta, file) = objects.read("b", "k").unwrap();
                        assert_eq!(text(file).len() as u64, meta.size);
                        assert_eq!(objects.list("b", "", None, None, 9).unwrap().objects.len(), 1);
                    }
                });
            }
        });
        assert_eq!(files(&objects), 1);
    }

    #[test]
    fn a_crash_of_the_machine_loses_no_small_object() {
        let (_temp, dir, objects) = open();
        let put = |key: &str, content: &[u8]| objects.put("b", key, content, &Attributes::default()).unwrap();
        let (lost, torn, whole, deleted) =
            (put("lost", b"one"), put("torn", b"two"), put("whole", b"three"), put("deleted", b"four"));
        objects.delete("b", "deleted").unwrap();
        // What the disk may have of files that were never synced.
        fs::remove_file(objects.path(&lost)).unwrap();
        fs::write(objects.path(&torn), b"").unwrap();
        drop(objects);
        let objects = Objects::open(&dir).unwrap();
        for (key, expected) in [("lost", "one"), ("torn", "two"), ("whole", "three")] {
            assert_eq!(text(objects.read("b", key).unwrap().1), expected);
        }
        assert!(!objects.path(&deleted).exists());
        assert_eq!(fs::metadata(objects.path(&whole)).unwrap().permissions().mode() & 0o777, 0o666);
        // Once the files are durable nothing stands in the index twice.
        let kept: i64 =
            objects.index.read(|c| Ok(c.query_row("SELECT count(*) FROM unsynced", [], |row| row.get(0))?)).unwrap();
        assert_eq!(kept, 0);
    }

    #[test]
    fn copies_in_the_index_go_once_there_are_many() {
        let (_temp, _dir, objects) = open();
        let content = vec![7; object_writer::SMALL];
        let kept = || -> i64 {
            objects.index.read(|c| Ok(c.query_row("SELECT count(*) FROM unsynced", [], |row| row.get(0))?)).unwrap()
        };
        let most = (0..200).map(|number| {
            objects.put("b", &number.to_string(), &content, &Attributes::default()).unwrap();
            kept()
        });
        assert!(most.max().unwrap() > 0);
        while kept() > 100 {
            thread::sleep(std::time::Duration::from_millis(1));
            objects.put("b", "k", &content, &Attributes::default()).unwrap();
        }
        assert_eq!(objects.read("b", "0").unwrap().0.size, content.len() as u64);
    }

    #[test]
    fn a_missing_file_is_damage() {
        let (_temp, _dir, objects) = open();
        let meta = objects.put("b", "k", b"content", &Attributes::default()).unwrap();
        fs::remove_file(objects.path(&meta)).unwrap();
        let error = objects.read("b", "k").unwrap_err();
        assert!(error.to_string().contains("object `k` is damaged: its file is missing"), "{error}");
    }
}
