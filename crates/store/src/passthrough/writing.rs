//! Objects that are written elsewhere: each is whole on this disk before it is sent, held to what
//! its writer promised, and its file goes when the bucket has it.

use std::fs::File;
use std::path::Path;

use super::of_bucket;
use crate::clock::now_ms;
use crate::error::io_at;
use crate::foreign::{NewForeign, Passthrough, Whole};
use crate::multipart::remove_upload;
use crate::{Attributes, DeleteCondition, Deletion, ObjectMeta, Objects, PutCondition, StoreError, Version};

impl Objects {
    /// # Errors
    /// [`StoreError::PreconditionFailed`], [`StoreError::Foreign`]; I/O.
    pub(crate) fn send_foreign(
        &self,
        shown: &Passthrough,
        (bucket, key): (&str, &str),
        whole: &Whole<'_>,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        shown.may_take(bucket, whole.attributes)?;
        // Not every store has conditions.
        let holds = match condition {
            PutCondition::Always => true,
            PutCondition::Absent => shown.bucket.head(key)?.is_none(),
            PutCondition::Matches(etag) => match shown.bucket.head(key)? {
                Some(present) => present.etag == *etag,
                None => return Err(StoreError::NoSuchKey { bucket: bucket.to_owned(), key: key.to_owned() }),
            },
        };
        if !holds {
            return Err(StoreError::PreconditionFailed { key: key.to_owned() });
        }
        let Whole { file, size, attributes } = *whole;
        let opened = File::open(file).map_err(io_at("open", file))?;
        let etag = shown.bucket.put(NewForeign { key, attributes, file: opened, size, condition })?;
        let meta = ObjectMeta {
            key: key.to_owned(),
            size,
            etag,
            modified_ms: now_ms() / 1000 * 1000,
            id: String::new(),
            attributes: attributes.clone(),
            version: Version::default(),
            passthrough: None,
        };
        Ok(of_bucket(bucket, &shown.bucket.location(), meta))
    }

    /// Sends the object that an upload's parts make, which is in this file, and ends the upload.
    pub(crate) fn complete_foreign(
        &self,
        shown: &Passthrough,
        (upload, bucket): (&str, &str),
        file: &Path,
        object: &ObjectMeta,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let whole = Whole { file, size: object.size, attributes: &object.attributes };
        let sent = self.send_foreign(shown, (bucket, &object.key), &whole, condition)?;
        let removed = self.index.write(|tx| remove_upload(tx, upload))?;
        self.remove_files(removed.into_iter().map(|part| part.holder).chain(self.places.end(upload)));
        Ok(sent)
    }

    /// [`Objects::delete_if`] of such a bucket.
    pub(crate) fn delete_foreign(
        &self,
        shown: &Passthrough,
        (bucket, key): (&str, &str),
        condition: &DeleteCondition,
    ) -> Result<Deletion, StoreError> {
        shown.may_write(bucket)?;
        if *condition != DeleteCondition::default() && !condition.holds_of(shown.bucket.head(key)?.as_ref()) {
            return Err(StoreError::PreconditionFailed { key: key.to_owned() });
        }
        shown.bucket.remove(key)?;
        Ok(Deletion { existed: true, ..Deletion::default() })
    }

    /// Another object of the same content as one of which at least one is elsewhere.
    pub(crate) fn copy_content(
        &self,
        source: &ObjectMeta,
        (bucket, key): (&str, &str),
        attributes: &Attributes,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let (reader, mut writer) = (self.open_reader(source, None)?, self.writer()?);
        let mut at = 0;
        while at < source.size {
            let piece = reader.read(at, source.size)?;
            writer.append(&piece)?;
            at += piece.len() as u64;
        }
        self.commit(writer, bucket, key, &Attributes { parts: Vec::new(), ..attributes.clone() }, condition)
    }
}
