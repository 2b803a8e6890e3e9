//! Copies of objects, which share the bytes of their source.

use std::io;

use crate::clock::now_ms;
use crate::object_rows::put_row;
use crate::object_writer::{self, Written};
use crate::{Attributes, ObjectMeta, Objects, PutCondition, StoreError, Version, block_sums, content_seals};

/// The content of a copy to be. It is whole whatever happens to its source from now on.
struct Linked {
    written: Written,
    sums: Option<Vec<u8>>,
    seals: Option<Vec<u8>>,
}

impl Objects {
    /// Makes another object of the same content (and ETag, and key) without copying bytes,
    /// unless one of them is in a bucket elsewhere.
    ///
    /// # Errors
    /// As [`Objects::commit`]; [`StoreError::NoSuchKey`] if the source has gone meanwhile;
    /// [`StoreError::DamagedObject`].
    pub fn copy(
        &self,
        source: (&str, &ObjectMeta),
        bucket: &str,
        key: &str,
        attributes: &Attributes,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        if source.1.passthrough.is_some() || self.passthrough(bucket).is_some() {
            return self.copy_content(source.1, (bucket, key), attributes, condition);
        }
        let linked = self.link(source)?;
        self.commit_copy(linked, source.1, (bucket, key), attributes, condition)
    }

    fn link(&self, (bucket, source): (&str, &ObjectMeta)) -> Result<Linked, StoreError> {
        let gone = || StoreError::NoSuchKey { bucket: bucket.to_owned(), key: source.key.clone() };
        // What a copy is made of is not removed meanwhile.
        let _pin = self.pin(source);
        // They go with the source's row, in one transaction: without its seals nothing opens it.
        let (sums, seals) = self.index.read(|connection| {
            Ok((block_sums::of_file(connection, &source.id)?, content_seals::of_file(connection, &source.id)?))
        })?;
        if source.attributes.encryption.is_some() && seals.is_none() {
            return Err(gone());
        }
        // The copy counts as compared from now on.
        match self.open_stored(source) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Err(gone()),
            opened => drop(opened?),
        }
        let written = object_writer::link(&self.files, &self.path(source))?.ok_or_else(gone)?;
        Ok(Linked { written, sums, seals })
    }

    fn commit_copy(
        &self,
        Linked { written, sums, seals }: Linked,
        source: &ObjectMeta,
        (bucket, key): (&str, &str),
        attributes: &Attributes,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let encryption =
            source.attributes.encryption.as_ref().map(|envelope| self.keys.rewrap(envelope)).transpose()?;
        let mut meta = ObjectMeta {
            key: key.to_owned(),
            modified_ms: now_ms(),
            id: written.id().to_owned(),
            attributes: Attributes { encryption, ..attributes.clone() },
            version: Version::default(),
            ..source.clone()
        };
        let row = self.index.write(|tx| {
            if let Some(sums) = &sums {
                block_sums::keep(tx, &meta.id, sums)?;
            }
            content_seals::keep(tx, &meta.id, seals.as_deref())?;
            self.keep_elsewhere(tx, &meta)?;
            put_row(tx, bucket, &meta, condition)
        });
        let put = written.named(row)?;
        meta.version = put.version;
        self.remove_files(put.removed);
        self.committed(&meta);
        Ok(meta)
    }
}

#[cfg(test)]
mod tests {
    use shoal_encryption::CustomerKey;

    use super::*;
    use crate::deletions::entries;
    use crate::{DataDir, Encryption};

    fn open() -> (tempfile::TempDir, Objects, CustomerKey) {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::open(temp.path()).unwrap()).unwrap();
        objects.create_bucket("b").unwrap();
        (temp, objects, CustomerKey::of(&[5; 32]).unwrap())
    }

    fn put(objects: &Objects, key: &str, content: &[u8], encryption: &Encryption) -> ObjectMeta {
        let mut writer = objects.encrypt(objects.writer().unwrap(), encryption).unwrap();
        writer.append(content).unwrap();
        objects.commit(writer, "b", key, &Attributes::default(), &PutCondition::Always).unwrap()
    }

    fn content(objects: &Objects, key: &str, customer: &CustomerKey) -> Vec<u8> {
        objects.reader_with("b", key, None, Some(customer)).unwrap().read_all().unwrap()
    }

    fn files(objects: &Objects) -> usize {
        entries(&objects.files).unwrap().iter().map(|shard| entries(shard).unwrap().len()).sum()
    }

    #[test]
    fn a_copy_shares_the_content_and_not_its_fate() {
        let (_temp, objects, _) = open();
        let source = objects.put("b", "k", b"content", &Attributes::default()).unwrap();
        let attributes = Attributes { content_type: Some("x/y".to_owned()), ..Attributes::default() };
        let copy = objects.copy(("b", &source), "b", "k2", &attributes, &PutCondition::Always).unwrap();
        assert_eq!((copy.etag.as_str(), copy.size, &copy.attributes), (source.etag.as_str(), 7, &attributes));
        objects.delete("b", "k").unwrap();
        assert_eq!(objects.reader("b", "k2").unwrap().read_all().unwrap(), b"content");
        let gone = objects.copy(("b", &source), "b", "k3", &attributes, &PutCondition::Always);
        assert!(matches!(gone, Err(StoreError::NoSuchKey { .. })));
        assert_eq!(files(&objects), 1);
    }

    /// The source is replaced, or deleted, at each moment of a copy.
    #[test]
    fn a_copy_of_what_goes_meanwhile_is_whole_or_is_none() {
        let (_temp, objects, customer) = open();
        let encryption = Encryption::Customer(customer.clone());
        let long = vec![7; 3_000_000];
        for (written, replaces) in [(&b"short"[..], true), (&long[..], true), (b"short", false), (&long[..], false)] {
            let go = || match replaces {
                true => drop(put(&objects, "k", b"other", &encryption)),
                false => assert!(objects.delete("b", "k").unwrap()),
            };
            let source = put(&objects, "k", written, &encryption);
            let linked = objects.link(("b", &source)).unwrap();
            go();
            let to = ("b", "copy");
            objects.commit_copy(linked, &source, to, &Attributes::default(), &PutCondition::Always).unwrap();
            assert_eq!(content(&objects, "copy", &customer), written);

            let source = put(&objects, "k", written, &encryption);
            // Its file is there for longer than its row.
            let (file, kept) = (objects.path(&source), objects.files.join("kept"));
            std::fs::hard_link(&file, &kept).unwrap();
            go();
            std::fs::rename(&kept, &file).unwrap();
            let gone = objects.copy(("b", &source), "b", "none", &Attributes::default(), &PutCondition::Always);
            assert!(matches!(gone, Err(StoreError::NoSuchKey { .. })), "{gone:?}");
            assert_eq!(objects.get("b", "none").unwrap(), None);
            let unread = objects.open_reader(&source, Some(&customer)).unwrap_err();
            let is_missing =
                matches!(&unread, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
            assert!(is_missing, "{unread}: a reader looks the object up again");
            std::fs::remove_file(&file).unwrap();
        }
    }
}
