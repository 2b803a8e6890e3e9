//! Contents that are not on the local disk: brought there, or read where they are.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Elsewhere, name_of, number_of, rows};
use crate::data_dir::random_hex;
use crate::error::io_at;
use crate::integrity::damage;
use crate::object_writer::{FILE_MODE, file_path};
use crate::{ObjectMeta, StoreError};

/// Read at once where a reader goes from block to block.
const READ_AHEAD: u64 = 8 << 20;

/// Keeps a local file, and the store's copy, for a reader.
#[derive(Debug)]
pub(crate) struct Pin {
    elsewhere: Arc<Elsewhere>,
    id: u128,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.elsewhere.lock();
        state.cache.unpin(self.id);
        self.elsewhere.evict(&mut state, 0);
        if std::mem::take(&mut state.waits_for_readers) {
            state.has_unnamed = true;
            self.elsewhere.changed.notify_all();
        }
    }
}

/// A content that is read where it is.
#[derive(Debug)]
pub(crate) struct Remote {
    pin: Pin,
    name: String,
    size: u64,
    /// What was read last, and where it begins.
    ahead: Mutex<(u64, Vec<u8>)>,
}

impl Remote {
    /// These bytes. For one that continues, more is read than it asks for.
    pub(crate) fn read(&self, start: u64, end: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let mut ahead = self.ahead.lock().expect("no holder of this lock panics");
        let (at, bytes) = &*ahead;
        let ahead_end = at + bytes.len() as u64;
        let cut = |at: u64, bytes: &[u8]| {
            let place = |position: u64| usize::try_from(position - at).unwrap_or(usize::MAX);
            bytes.get(place(start)..place(end)).map(<[u8]>::to_vec)
        };
        if *at <= start && end <= ahead_end {
            return Ok(cut(*at, bytes));
        }
        let is_sequential = start == ahead_end && !bytes.is_empty();
        let upto = if is_sequential { end.max((start + READ_AHEAD).min(self.size)) } else { end };
        let length = usize::try_from(upto - start).unwrap_or(usize::MAX);
        let Some(bytes) = self.pin.elsewhere.store.read(&self.name, start, length)? else { return Ok(None) };
        let found = cut(start, &bytes);
        *ahead = (start, bytes);
        Ok(found)
    }
}

impl Elsewhere {
    /// Keeps a content where it is until the pin is dropped.
    pub(crate) fn pin(self: &Arc<Self>, meta: &ObjectMeta) -> Pin {
        let id = number_of(&meta.id);
        self.lock().cache.pin(id);
        Pin { elsewhere: Arc::clone(self), id }
    }

    /// A local file is used.
    pub(crate) fn touch(&self, meta: &ObjectMeta) {
        self.lock().cache.touch(number_of(&meta.id));
    }

    /// The SHA-256 of a content that the store has.
    pub(crate) fn sha256(&self, meta: &ObjectMeta) -> Result<Option<[u8; 32]>, StoreError> {
        self.index.read(|connection| rows::sha256(connection, &meta.id))
    }

    /// A content for being read where it is; `None`: the store does not have it.
    pub(crate) fn remote(self: &Arc<Self>, meta: &ObjectMeta) -> Result<Option<Remote>, StoreError> {
        let pin = self.pin(meta);
        let remote = Remote { pin, name: name_of(&meta.id), size: meta.size, ahead: Mutex::default() };
        Ok(self.sha256(meta)?.map(|_| remote))
    }

    /// Drops a local file that is damaged; `false`: there is no other copy.
    pub(crate) fn discard(&self, meta: &ObjectMeta) -> Result<bool, StoreError> {
        if self.sha256(meta)?.is_none() {
            return Ok(false);
        }
        self.lock().cache.remove(number_of(&meta.id));
        let path = file_path(&self.files, &meta.id);
        match fs::remove_file(&path) {
            Err(error) if !super::is_missing(&error) => Err(io_at("remove", &path)(error)),
            _ => Ok(true),
        }
    }

    /// Makes a content's file one of the local disk again, compared with what was written; `false`:
    /// the store does not have it.
    pub(crate) fn fetch(&self, meta: &ObjectMeta, sums: Option<&[u8]>) -> Result<bool, StoreError> {
        let (id, path) = (number_of(&meta.id), file_path(&self.files, &meta.id));
        let _turn = self.turn(id);
        if path.exists() {
            return Ok(true);
        }
        if self.sha256(meta)?.is_none() {
            return Ok(false);
        }
        self.reserve.ensure()?;
        self.evict(&mut self.lock(), meta.size);
        let draft = path.with_extension(random_hex::<8>()?);
        let placed = self.bring(meta, sums, &draft).and_then(|()| {
            fs::rename(&draft, &path).map_err(io_at("rename", &draft))?;
            // The object may have gone since, and its file before this one came.
            if self.sha256(meta)?.is_some() {
                self.lock().cache.add(id, meta.size);
                return Ok(true);
            }
            fs::remove_file(&path).map_err(io_at("remove", &path)).map(|()| false)
        });
        if placed.is_err() {
            let _ = fs::remove_file(&draft);
        }
        placed
    }

    fn bring(&self, meta: &ObjectMeta, sums: Option<&[u8]>, draft: &Path) -> Result<(), StoreError> {
        let lost = |detail: String| StoreError::DamagedObject { key: meta.key.clone(), detail };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(draft);
        let file = file.map_err(io_at("create", draft))?;
        file.set_permissions(fs::Permissions::from_mode(FILE_MODE)).map_err(io_at("set the mode of", draft))?;
        let location = self.store.location();
        if self.store.fetch(&name_of(&meta.id), &file)?.is_none() {
            return Err(lost(format!("{location} does not have its content, {}", name_of(&meta.id))));
        }
        match damage(&file, meta, sums).map_err(io_at("read", draft))? {
            Some(detail) => Err(lost(format!("{detail}, in {location}"))),
            None => Ok(()),
        }
    }

    /// One thread at a time brings a content.
    fn turn(&self, id: u128) -> Turn<'_> {
        let mut state = self.lock();
        while !state.fetching.insert(id) {
            state = self.changed.wait(state).expect("no holder of this lock panics");
        }
        Turn { elsewhere: self, id }
    }
}

struct Turn<'a> {
    elsewhere: &'a Elsewhere,
    id: u128,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.elsewhere.lock().fetching.remove(&self.id);
        self.elsewhere.changed.notify_all();
    }
}
