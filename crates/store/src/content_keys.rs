//! Under which key a new content is encrypted: what its writer asks for, or else the default of its
//! bucket, or else none.

use std::io;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use shoal_encryption::{CustomerKey, DataKey, Envelope, Holder, KeyError, KeyRing};

use crate::content_seals::{self, Opener};
use crate::error::io_at;
use crate::object_rows::{bucket_id, from_json, to_json};
use crate::{Attributes, ObjectMeta, ObjectWriter, Objects, StoreError, UploadChecksum, UploadMeta};

/// How a content is encrypted.
#[derive(Debug, Clone, Default)]
pub enum Encryption {
    /// It is stored as it is.
    #[default]
    None,
    /// Under a key of the owner.
    Kms(BucketEncryption),
    /// Under a key that comes with each request.
    Customer(CustomerKey),
}

/// The key of the owner that a content is encrypted under; of a bucket, for those whose writers ask
/// for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketEncryption {
    /// The key's name.
    pub kms: String,
    /// AWS's bucket key: it is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bucket_key: bool,
}

impl From<Option<BucketEncryption>> for Encryption {
    fn from(rule: Option<BucketEncryption>) -> Self {
        rule.map_or(Self::None, Self::Kms)
    }
}

/// Why an object elsewhere is under no key of the owner.
const NO_KEYS: &str =
    "its contents are encrypted as that store is set up, and not under a key of this server (SSE-KMS)";

/// The rule of a bucket that is removed.
pub(crate) fn forget_bucket(connection: &Connection, bucket: i64) -> Result<(), StoreError> {
    connection.execute("DELETE FROM bucket_encryption WHERE bucket = ?", [bucket])?;
    Ok(())
}

impl Objects {
    /// With keys of the owner, under which contents are encrypted.
    #[must_use]
    pub fn with_keys(mut self, keys: Arc<KeyRing>) -> Self {
        self.keys = keys;
        self
    }

    /// The owner's keys.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// The key for contents of a bucket whose writers ask for nothing.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn bucket_encryption(&self, bucket: &str) -> Result<Option<BucketEncryption>, StoreError> {
        self.index.read(|connection| {
            let id = bucket_id(connection, bucket)?;
            let mut select = connection.prepare_cached("SELECT rule FROM bucket_encryption WHERE bucket = ?")?;
            let rule: Option<String> = select.query_row([id], |row| row.get(0)).optional()?;
            rule.map(|rule| from_json(&rule)).transpose()
        })
    }

    /// Sets that key; none removes it. What is stored already stays as it is.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn set_bucket_encryption(&self, bucket: &str, rule: Option<&BucketEncryption>) -> Result<(), StoreError> {
        self.index.write(|tx| {
            let id = bucket_id(tx, bucket)?;
            match rule {
                None => forget_bucket(tx, id),
                Some(rule) => {
                    let insert = "INSERT OR REPLACE INTO bucket_encryption (bucket, rule) VALUES (?, ?)";
                    tx.execute(insert, params![id, to_json(rule)])?;
                    Ok(())
                }
            }
        })
    }

    /// How an object of this bucket is encrypted whose writer asks for this key of the owner, or
    /// for none.
    ///
    /// # Errors
    /// The storage's. A bucket that is not there has no default: the commit fails.
    pub fn encryption_for(&self, bucket: &str, kms: Option<&str>) -> Result<Encryption, StoreError> {
        match kms {
            Some(_) if let Some(shown) = self.passthrough(bucket) => Err(shown.has_none(bucket, NO_KEYS)),
            Some(name) => Ok(Encryption::Kms(BucketEncryption { kms: name.to_owned(), bucket_key: false })),
            None => match self.bucket_encryption(bucket) {
                Err(StoreError::NoSuchBucket(_)) => Ok(Encryption::None),
                rule => Ok(rule?.into()),
            },
        }
    }

    /// Has a new writer encrypt what is written to it.
    ///
    /// # Errors
    /// [`StoreError::Key`].
    pub fn encrypt(&self, writer: ObjectWriter, encryption: &Encryption) -> Result<ObjectWriter, StoreError> {
        writer.under(self.new_key(encryption)?)
    }

    /// Has the new writer of an object of this bucket encrypt what is written to it under a key of
    /// the owner, or else as the bucket's default is.
    ///
    /// # Errors
    /// [`StoreError::Key`].
    pub fn seal(&self, writer: ObjectWriter, bucket: &str, kms: Option<&str>) -> Result<ObjectWriter, StoreError> {
        self.encrypt(writer, &self.encryption_for(bucket, kms)?)
    }

    fn new_key(&self, encryption: &Encryption) -> Result<Option<(DataKey, Envelope)>, StoreError> {
        Ok(match encryption {
            Encryption::None => None,
            Encryption::Customer(key) => Some(key.new_data_key()?),
            Encryption::Kms(rule) => {
                let (data, envelope) = self.keys.new_data_key(&rule.kms)?;
                Some((data, Envelope { bucket_key: rule.bucket_key, ..envelope }))
            }
        })
    }

    /// Begins an upload whose parts are encrypted, all under one data key; returns its id.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::Key`].
    pub fn create_encrypted_upload(
        &self,
        bucket: &str,
        key: &str,
        attributes: &Attributes,
        checksum: Option<&UploadChecksum>,
        encryption: &Encryption,
    ) -> Result<String, StoreError> {
        let envelope = self.new_key(encryption)?.map(|(_, envelope)| envelope);
        let attributes = Attributes { encryption: envelope, ..attributes.clone() };
        self.begin_upload(bucket, key, &attributes, checksum)
    }

    /// Has the new writer of a part of this upload encrypt what is written to it, if the upload is
    /// encrypted.
    ///
    /// # Errors
    /// [`StoreError::Key`]: the customer's key is missing or another one, or the owner's cannot be
    /// had.
    pub fn seal_part(
        &self,
        writer: ObjectWriter,
        upload: &UploadMeta,
        customer: Option<&CustomerKey>,
    ) -> Result<ObjectWriter, StoreError> {
        let Some(envelope) = &upload.attributes.encryption else { return Ok(writer) };
        let data = match &envelope.holder {
            Holder::Kms(_) => self.keys.open_envelope(envelope)?,
            Holder::Customer => customer.ok_or(KeyError::NoCustomerKey)?.open(envelope)?,
        };
        writer.under(Some((data, envelope.clone())))
    }
}

impl Objects {
    /// What decrypts an object; `None`: it is not encrypted.
    pub(crate) fn opener(
        &self,
        meta: &ObjectMeta,
        customer: Option<&CustomerKey>,
    ) -> Result<Option<Opener>, StoreError> {
        let Some(envelope) = &meta.attributes.encryption else { return Ok(None) };
        let data = match &envelope.holder {
            Holder::Kms(_) => self.keys.open_envelope(envelope)?,
            Holder::Customer => customer.ok_or(KeyError::NoCustomerKey)?.open(envelope)?,
        };
        // They are removed with the row, so the object was replaced: the reader looks it up again.
        let gone = || io_at("open", &self.path(meta))(io::ErrorKind::NotFound.into());
        let seals = self.index.read(|connection| content_seals::of_file(connection, &meta.id))?.ok_or_else(gone)?;
        Ok(Some(Opener::new(data, seals)))
    }

    /// Whether the content of this id is encrypted.
    pub(crate) fn has_seals(&self, id: &str) -> Result<bool, StoreError> {
        self.index.read(|connection| Ok(content_seals::of_file(connection, id)?.is_some()))
    }
}
