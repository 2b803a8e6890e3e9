//! Multipart uploads: objects that come in parts, in any order.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::block_sums;
use crate::clock::now_ms;
use crate::content_seals;
use crate::data_dir::{hex, random_hex};
use crate::object_rows::{bucket_id, file_column, from_json, to_json};
use crate::object_writer::ObjectWriter;
use crate::part_places::Place;
use crate::unsynced;
use crate::{Attributes, ObjectMeta, Objects, PutCondition, StoreError};

/// An upload that is neither complete nor aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadMeta {
    /// Names it.
    pub id: String,
    /// Bucket of the object to be.
    pub bucket: String,
    /// Key of the object to be.
    pub key: String,
    /// When it was begun, in milliseconds since the epoch.
    pub created_ms: u64,
    /// What its object will have.
    pub attributes: Attributes,
    /// The checksum that its parts have and its object will have.
    pub checksum: Option<UploadChecksum>,
}

/// Which checksum an upload's object will have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadChecksum {
    /// Lower-case algorithm (`crc32`).
    pub algorithm: String,
    /// Of the parts' checksums, and not of the whole content.
    pub composite: bool,
}

/// How an upload's row keeps what is known of its object.
#[derive(Serialize, Deserialize)]
struct ToBe {
    #[serde(flatten)]
    attributes: Attributes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<UploadChecksum>,
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartMeta {
    /// From 1.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// MD5 in hexadecimal.
    pub etag: String,
    /// When it was stored, in milliseconds since the epoch.
    pub modified_ms: u64,
    /// Checksums, base64 by lower-case algorithm.
    pub checksums: BTreeMap<String, String>,
    /// Names its sums, and its file if it has one of its own.
    pub(crate) id: String,
    /// Where it is if not.
    pub(crate) place: Option<Place>,
}

impl PartMeta {
    /// The file that has its bytes, and where they begin there.
    pub(crate) fn bytes(&self) -> (&str, u64) {
        self.place.as_ref().map_or((&self.id, 0), |place| (&place.file, place.start(self.number)))
    }
}

/// The ETag of an object that was uploaded in these parts (number and ETag): the MD5 of the parts'
/// MD5s, a hyphen and their count. None: a part's ETag is no MD5.
pub fn uploaded_etag(parts: &[(u32, String)]) -> Option<String> {
    let mut md5 = Md5::new();
    for (_, etag) in parts {
        md5.update(u128::from_str_radix(etag, 16).ok()?.to_be_bytes());
    }
    Some(format!("{}-{}", hex(&md5.finalize()), parts.len()))
}

impl Objects {
    /// Begins an upload, which is encrypted only if that is its bucket's default, and returns its
    /// id.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::Key`].
    pub fn create_upload(
        &self,
        bucket: &str,
        key: &str,
        attributes: &Attributes,
        checksum: Option<&UploadChecksum>,
    ) -> Result<String, StoreError> {
        self.create_encrypted_upload(bucket, key, attributes, checksum, &self.encryption_for(bucket, None)?)
    }

    pub(crate) fn begin_upload(
        &self,
        bucket: &str,
        key: &str,
        attributes: &Attributes,
        checksum: Option<&UploadChecksum>,
    ) -> Result<String, StoreError> {
        if let Some(shown) = self.passthrough(bucket) {
            shown.may_take(bucket, attributes)?;
        }
        let now = now_ms();
        // Ids of one key come in the order of time, which is S3's order of listing.
        let upload = format!("{now:012x}{}", random_hex::<10>()?);
        let to_be = ToBe { attributes: attributes.clone(), checksum: checksum.cloned() };
        self.index.write(|tx| {
            let bucket = bucket_id(tx, bucket)?;
            let insert = "INSERT INTO upload (id, bucket, key, created_ms, attributes) VALUES (?, ?, ?, ?, ?)";
            tx.execute(insert, params![upload, bucket, key, now, to_json(&to_be)])?;
            Ok(())
        })?;
        Ok(upload)
    }

    /// The upload of this id.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`].
    pub fn upload(&self, upload: &str) -> Result<UploadMeta, StoreError> {
        self.index.read(|connection| upload_row(connection, upload))
    }

    /// Unfinished uploads of a bucket to keys with this prefix, by key and id.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn uploads(&self, bucket: &str, prefix: &str) -> Result<Vec<UploadMeta>, StoreError> {
        self.index.read(|connection| {
            let sql = "SELECT id FROM upload WHERE bucket = ? ORDER BY key, id";
            let ids = file_column(connection, sql, [bucket_id(connection, bucket)?])?;
            let uploads = ids.iter().map(|id| upload_row(connection, id)).collect::<Result<Vec<_>, _>>()?;
            Ok(uploads.into_iter().filter(|upload| upload.key.starts_with(prefix)).collect())
        })
    }

    /// Starts a part of an upload that will have at most `length` bytes, if that is known: then it
    /// may be written where the object has it.
    ///
    /// # Errors
    /// As [`Objects::writer`].
    pub fn part_writer(&self, upload: &str, number: u32, length: Option<u64>) -> Result<ObjectWriter, StoreError> {
        self.ensure_room()?;
        let slot = length.map(|length| self.places.slot(&self.index, upload, number, length)).transpose()?.flatten();
        match slot.map(ObjectWriter::in_slot) {
            Some(Ok(writer)) => Ok(writer),
            // The upload has ended meanwhile, or the file system has no files of that length.
            Some(Err(_)) | None => self.writer_to_the_last(),
        }
    }

    /// Makes what was written part `number` of the upload, durably. The last one of a number
    /// counts.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`]; then the file is removed.
    pub fn commit_part(
        &self,
        writer: ObjectWriter,
        upload: &str,
        number: u32,
        checksums: &BTreeMap<String, String>,
    ) -> Result<PartMeta, StoreError> {
        let (written, content) = writer.finish()?;
        debug_assert!(written.number().is_none_or(|own| own == number), "a part is committed under its own number");
        let part = PartMeta {
            number,
            size: written.size(),
            etag: written.md5_hex(),
            modified_ms: now_ms(),
            checksums: checksums.clone(),
            id: written.id().to_owned(),
            place: written.place(),
        };
        let row = self.index.write(|tx| {
            // Nothing of an encrypted object is stored as it is.
            let to_be = upload_row(tx, upload)?.attributes.encryption;
            if to_be.as_ref() != written.envelope() {
                return Err(StoreError::InvalidPart(number));
            }
            unsynced::keep(tx, &part.id, content.as_deref())?;
            content_seals::keep(tx, &part.id, written.seals())?;
            // What it replaces in a shared file stays there until the upload's end.
            let same = "SELECT file FROM part WHERE upload = ? AND number = ?";
            let replaced = file_column(tx, same, params![upload, number])?;
            replaced.iter().try_for_each(|file| forget_part(tx, file))?;
            block_sums::keep(tx, &part.id, written.sums())?;
            let insert =
                format!("INSERT OR REPLACE INTO part (upload, {PART_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
            let checksums = to_json(&part.checksums);
            let (shared, slot) = part.place.as_ref().map(|place| (&place.file, place.slot)).unzip();
            tx.execute(
                &insert,
                params![upload, number, part.id, part.size, part.etag, part.modified_ms, checksums, shared, slot],
            )?;
            Ok(replaced)
        });
        self.remove_files(written.named(row)?);
        self.unsynced.grew(content.map_or(0, |content| content.len()));
        Ok(part)
    }

    /// The upload's parts, by number.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`].
    pub fn parts(&self, upload: &str) -> Result<Vec<PartMeta>, StoreError> {
        self.index.read(|connection| {
            upload_row(connection, upload)?;
            let sql = format!("SELECT {PART_COLUMNS} FROM part WHERE upload = ? ORDER BY number");
            let mut select = connection.prepare_cached(&sql)?;
            let parts = select.query_map([upload], |row| Ok(part_of(row)))?;
            parts.map(|part| part?).collect()
        })
    }

    /// Ends the upload and drops its parts. One whose object is being sent to a bucket elsewhere
    /// ends by itself if that succeeds.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`].
    pub fn abort_upload(&self, upload: &str) -> Result<(), StoreError> {
        match self.passthrough(&self.upload(upload)?.bucket) {
            Some(_) => self.sent_uploads.abort(upload, || self.drop_upload(upload)),
            None => self.drop_upload(upload),
        }
    }

    fn drop_upload(&self, upload: &str) -> Result<(), StoreError> {
        let removed = self.index.write(|tx| {
            upload_row(tx, upload)?;
            remove_upload(tx, upload)
        })?;
        self.remove_files(removed.into_iter().map(|part| part.holder));
        self.remove_files(self.places.end(upload));
        Ok(())
    }
}

const PART_COLUMNS: &str = "number, file, size, etag, modified_ms, checksums, shared, slot";

pub(crate) fn upload_row(connection: &Connection, upload: &str) -> Result<UploadMeta, StoreError> {
    let sql = "SELECT upload.id, name, key, upload.created_ms, attributes FROM upload JOIN bucket ON bucket.id = \
               bucket WHERE upload.id = ?";
    let mut select = connection.prepare_cached(sql)?;
    let row = select.query_row([upload], |row| {
        let to_be: String = row.get(4)?;
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, to_be))
    });
    let (id, bucket, key, created_ms, to_be) =
        row.optional()?.ok_or_else(|| StoreError::NoSuchUpload(upload.to_owned()))?;
    let ToBe { attributes, checksum } = from_json(&to_be)?;
    Ok(UploadMeta { id, bucket, key, created_ms, attributes, checksum })
}

fn part_of(row: &Row<'_>) -> Result<PartMeta, StoreError> {
    Ok(PartMeta {
        number: row.get(0)?,
        id: row.get(1)?,
        size: row.get(2)?,
        etag: row.get(3)?,
        modified_ms: row.get(4)?,
        checksums: from_json(row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?,
        place: row.get::<_, Option<String>>(6)?.zip(row.get(7)?).map(|(file, slot)| Place { file, slot }),
    })
}

/// No row names this part any more.
fn forget_part(connection: &Connection, id: &str) -> Result<(), StoreError> {
    block_sums::forget(connection, id)?;
    content_seals::forget(connection, id)
}

/// A part whose row is gone.
pub(crate) struct Removed {
    /// The part's [`PartMeta::id`].
    pub(crate) id: String,
    /// The file that has its bytes.
    pub(crate) holder: String,
}

/// Returns the parts.
pub(crate) fn remove_upload(connection: &Connection, upload: &str) -> Result<Vec<Removed>, StoreError> {
    let mut delete =
        connection.prepare_cached("DELETE FROM part WHERE upload = ? RETURNING file, coalesce(shared, file)")?;
    let removed = delete.query_map([upload], |row| Ok(Removed { id: row.get(0)?, holder: row.get(1)? }))?;
    let removed = removed.collect::<rusqlite::Result<Vec<_>>>()?;
    removed.iter().try_for_each(|part| forget_part(connection, &part.id))?;
    connection.execute("DELETE FROM upload WHERE id = ?", [upload])?;
    Ok(removed)
}

impl Objects {
    /// Makes the parts (number and ETag, ascending) the upload's object and ends the upload. Its
    /// ETag is the MD5 of the parts' MD5s, a hyphen and their count; of an object that is sent to a
    /// bucket elsewhere, that store's. Of several calls for such an upload one sends it.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`], [`StoreError::InvalidPart`], [`StoreError::InvalidPartOrder`],
    /// [`StoreError::PreconditionFailed`], [`StoreError::Foreign`]; then the upload is as it was.
    pub fn complete_upload(
        &self,
        upload: &str,
        chosen: &[(u32, String)],
        checksums: &BTreeMap<String, String>,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let complete = || self.join_upload(upload, chosen, checksums, condition);
        match self.passthrough(&self.upload(upload)?.bucket) {
            Some(_) => self.sent_uploads.once(upload, uploaded_etag(chosen).as_deref(), condition, complete),
            None => complete(),
        }
    }

    /// The object that these parts of an upload became some minutes ago, or less, in a bucket that
    /// shows one elsewhere: for a client that repeats its request. Its ETag there may be another
    /// one than the parts' own.
    pub fn sent_upload(&self, upload: &str, chosen: &[(u32, String)]) -> Option<ObjectMeta> {
        self.sent_uploads.known(upload, uploaded_etag(chosen).as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::{DataDir, PutCondition};

    #[test]
    fn parts_come_in_any_order_and_are_joined_in_theirs() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let attributes = Attributes { content_type: Some("x/y".to_owned()), ..Attributes::default() };
        let upload = objects.create_upload("b", "k", &attributes, None).unwrap();
        let put = |number: u32, bytes: &[u8]| {
            let mut writer = objects.writer().unwrap();
            writer.append(bytes).unwrap();
            (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
        };
        let (third, late, first) = (put(3, b"three"), put(1, b"zero"), put(1, b"one"));
        assert_eq!(
            objects.parts(&upload).unwrap().iter().map(|part| (part.number, part.size)).collect::<Vec<_>>(),
            [(1, 3), (3, 5)]
        );

        // The chosen parts and what is wrong with them.
        for (chosen, expected) in [
            (vec![late, third.clone()], "part 1 was not uploaded or its ETag differs"),
            (vec![first.clone(), (2, first.1.clone())], "part 2 was not uploaded"),
            (vec![third.clone(), first.clone()], "part 1 is not in ascending order"),
            (vec![first.clone(), first.clone()], "part 1 is not in ascending order"),
        ] {
            let error = objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let chosen = [first, third];
        let meta = objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
        // md5(md5("one") + md5("three")), as S3 has it.
        assert_eq!(meta.etag, "d9dbeca7fdcc1b4d6b67737c6997fd3c-2");
        assert_eq!((meta.size, meta.attributes), (8, Attributes { parts: vec![(1, 3), (1, 5)], ..attributes.clone() }));
        let mut text = String::new();
        objects.read("b", "k").unwrap().1.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onethree");
        let error = objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap_err();
        assert!(matches!(error, StoreError::NoSuchUpload(_)), "{error}");

        let upload = objects.create_upload("b", "k", &attributes, None).unwrap();
        objects.abort_upload(&upload).unwrap();
        assert!(matches!(objects.abort_upload(&upload), Err(StoreError::NoSuchUpload(_))));
        assert!(objects.uploads("b", "").unwrap().is_empty());
    }

    /// Of identical completions one joins the parts. The others learn that the upload has ended,
    /// and the object is there by then.
    #[test]
    fn completions_at_the_same_time_see_one_object() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        for turn in 0..10 {
            let key = format!("k{turn}");
            let upload = objects.create_upload("b", &key, &Attributes::default(), None).unwrap();
            let mut writer = objects.writer().unwrap();
            writer.append(&[turn; 100_000]).unwrap();
            let chosen = [(1, objects.commit_part(writer, &upload, 1, &BTreeMap::new()).unwrap().etag)];
            let complete = || {
                let result = objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always);
                (result.map(|meta| meta.etag), objects.get("b", &key).unwrap().map(|meta| meta.etag))
            };
            let answers: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..12).map(|_| scope.spawn(complete)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let etag = uploaded_etag(&chosen);
            assert_eq!(answers.iter().filter(|(result, _)| result.is_ok()).count(), 1, "{answers:?}");
            for (result, present) in answers {
                assert!(matches!(&result, Ok(_) | Err(StoreError::NoSuchUpload(_))), "{result:?}");
                assert_eq!(present, etag, "{result:?} was answered before the object was there");
            }
        }
    }
}
