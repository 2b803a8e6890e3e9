//! Objects' files: where they are, opened, and compared with what was written.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::block_sums;
use crate::elsewhere::{Pin, rows};
use crate::error::io_at;
use crate::object_writer::file_path;
use crate::{ObjectMeta, Objects, StoreError};

impl Objects {
    /// The object's file, compared with what was written. Once open it stays readable even if the
    /// object is replaced or deleted. Content that is elsewhere alone is brought here first.
    ///
    /// # Errors
    /// I/O; [`io::ErrorKind::NotFound`] when the object was replaced or deleted since `meta` was
    /// read; [`StoreError::DamagedObject`]; [`StoreError::Elsewhere`]; [`StoreError::Encrypted`].
    pub fn open_file(&self, meta: &ObjectMeta) -> Result<File, StoreError> {
        if meta.attributes.encryption.is_some() {
            return Err(StoreError::Encrypted { key: meta.key.clone() });
        }
        self.open_stored(meta)
    }

    /// The same of any object: of an encrypted one it has the ciphertext.
    pub(crate) fn open_stored(&self, meta: &ObjectMeta) -> Result<File, StoreError> {
        if let Some(shown) = self.passthrough_of(meta)? {
            return self.open_copy(shown, meta);
        }
        let sums = self.sums(meta)?;
        let open = || {
            let file = self.open_here(meta, sums.as_deref())?;
            self.verified.ensure(meta, &file, sums.as_deref(), || self.path(meta))?;
            Ok(file)
        };
        match (open(), self.elsewhere()) {
            (Err(StoreError::DamagedObject { .. }), Some(elsewhere)) if elsewhere.discard(meta)? => open(),
            (opened, _) => opened,
        }
    }

    /// The object's file as it is.
    fn open_here(&self, meta: &ObjectMeta, sums: Option<&[u8]>) -> Result<File, StoreError> {
        let path = self.path(meta);
        let open = || File::open(&path).map_err(io_at("open", &path));
        let Some(elsewhere) = self.elsewhere() else { return open() };
        // It stays here until it is open.
        let _pin = elsewhere.pin(meta);
        match open() {
            Err(error) if is_missing(&error) => {
                if elsewhere.fetch(meta, sums)? {
                    self.verified.set(&meta.id);
                }
                open()
            }
            opened => {
                elsewhere.touch(meta);
                opened
            }
        }
    }

    /// The object of this key with its file open, both of the same commit; compared with what was
    /// written, which may take as long as reading it.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`], [`StoreError::NoSuchKey`]; [`StoreError::DamagedObject`];
    /// [`StoreError::Elsewhere`]; [`StoreError::Encrypted`].
    pub fn read(&self, bucket: &str, key: &str) -> Result<(ObjectMeta, File), StoreError> {
        self.find(key, || self.current(bucket, key), |meta| self.open_file(meta))
    }

    pub(crate) fn current(&self, bucket: &str, key: &str) -> Result<ObjectMeta, StoreError> {
        let gone = || StoreError::NoSuchKey { bucket: bucket.to_owned(), key: key.to_owned() };
        self.get(bucket, key)?.ok_or_else(gone)
    }

    /// The object that `look` finds, and what `open` makes of it, both of the same commit.
    pub(crate) fn find<T>(
        &self,
        key: &str,
        look: impl Fn() -> Result<ObjectMeta, StoreError>,
        open: impl Fn(&ObjectMeta) -> Result<T, StoreError>,
    ) -> Result<(ObjectMeta, T), StoreError> {
        let mut missing: Option<ObjectMeta> = None;
        loop {
            let meta = look()?;
            match open(&meta) {
                Err(error) if is_missing(&error) => {
                    // Replaced between the two steps, unless the row is still the same.
                    if missing.is_some_and(|before| before.id == meta.id) {
                        let and = if meta.attributes.encryption.is_some() { ", or its seals" } else { "" };
                        let detail = format!("its file is missing{and}");
                        return Err(StoreError::DamagedObject { key: key.to_owned(), detail });
                    }
                    missing = Some(meta);
                }
                opened => return opened.map(|opened| (meta, opened)),
            }
        }
    }

    pub(crate) fn sums(&self, meta: &ObjectMeta) -> Result<Option<Vec<u8>>, StoreError> {
        self.index.read(|connection| block_sums::of_file(connection, &meta.id))
    }

    /// Where the object's file is, unless it is elsewhere alone. Others may link or read it, never
    /// write it.
    pub fn path(&self, meta: &ObjectMeta) -> PathBuf {
        file_path(&self.files, &meta.id)
    }

    /// Keeps the object's file where it is until the pin is dropped.
    pub(crate) fn pin(&self, meta: &ObjectMeta) -> Option<Pin> {
        self.elsewhere().map(|elsewhere| elsewhere.pin(meta))
    }

    /// Notes in the transaction of an object's row that its content has to go elsewhere.
    pub(crate) fn keep_elsewhere(&self, connection: &Connection, meta: &ObjectMeta) -> Result<(), StoreError> {
        self.elsewhere().map_or(Ok(()), |_| rows::keep(connection, meta))
    }

    /// An object's row is durable.
    pub(crate) fn committed(&self, meta: &ObjectMeta) {
        self.elsewhere().into_iter().for_each(|elsewhere| elsewhere.committed(meta));
    }
}

fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
