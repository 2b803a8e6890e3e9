//! Contents of objects elsewhere: read there piece by piece for clients, and copied to the disk for
//! jobs, which read files. A copy lies where an own object's file would, under an id that follows
//! from the ETag; the least recently used go first, and a start removes all of them.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::data_dir::{has_room, random_hex};
use crate::error::io_at;
use crate::foreign::{ForeignBucket, Passthrough};
use crate::object_writer::{FILE_MODE, file_path};
use crate::{ObjectMeta, Objects, StoreError};

/// Read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Reads an object where it is.
#[derive(Debug)]
pub(crate) struct ForeignReader(Arc<dyn ForeignBucket>);

impl ForeignReader {
    pub(crate) fn of(shown: &Passthrough) -> Self {
        Self(Arc::clone(&shown.bucket))
    }

    /// Bytes from `at` to `end`, or as many as come at once.
    pub(crate) fn read(&self, meta: &ObjectMeta, at: u64, end: u64) -> Result<Vec<u8>, StoreError> {
        let length = usize::try_from(PIECE_BYTES.min(end - at)).expect("a piece fits in memory");
        if length == 0 {
            return Ok(Vec::new());
        }
        self.0.read(meta, at, length)?.ok_or_else(|| gone(meta))
    }
}

fn gone(meta: &ObjectMeta) -> StoreError {
    StoreError::ObjectGone { key: meta.key.clone() }
}

impl Objects {
    /// Does something with the copy of an object's content on this disk, which is made if it is not
    /// there. Nothing stays of what breaks off.
    ///
    /// # Errors
    /// [`StoreError::ObjectGone`]; [`StoreError::Cancelled`]; the bucket's; I/O;
    /// [`StoreError::Full`].
    pub(crate) fn with_copy<T>(
        &self,
        shown: &Passthrough,
        meta: &ObjectMeta,
        is_cancelled: &dyn Fn() -> bool,
        using: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let (path, id) = (file_path(&self.files, &meta.id), number_of(&meta.id));
        let _turn = self.passthrough.turn(id, is_cancelled)?;
        let done = match using(&path) {
            // One that another thread has removed to make room is brought again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.reserve.ensure()?;
                self.bring(shown, meta, &path, is_cancelled)?;
                using(&path)
            }
            done => done,
        };
        let done = done.map_err(io_at("open", &path))?;
        for id in self.passthrough.used(id, meta.size) {
            let _ = fs::remove_file(file_path(&self.files, &format!("{id:032x}")));
        }
        Ok(done)
    }

    fn bring(
        &self,
        shown: &Passthrough,
        meta: &ObjectMeta,
        path: &Path,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        if !has_room(&self.files, meta.size) {
            return Err(StoreError::Full(format!(
                "the data directory, and a job reads object `{}` of {}, {} bytes",
                meta.key,
                shown.bucket.location(),
                meta.size
            )));
        }
        let draft = path.with_extension(random_hex::<8>()?);
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&draft);
        let file = made.map_err(io_at("create", &draft))?;
        let filled = file
            .set_permissions(Permissions::from_mode(FILE_MODE))
            .map_err(io_at("set the mode of", &draft))
            .and_then(|()| if shown.bucket.fetch(meta, &file, is_cancelled)? { Ok(()) } else { Err(gone(meta)) })
            // A tree that has its name after a crash has its files, too.
            .and_then(|()| file.sync_data().map_err(io_at("sync", &draft)))
            .and_then(|()| fs::rename(&draft, path).map_err(io_at("rename", &draft)));
        if filled.is_err() {
            let _ = fs::remove_file(&draft);
        }
        filled
    }

    /// The copy of an object's content as a file.
    pub(crate) fn open_copy(&self, shown: &Passthrough, meta: &ObjectMeta) -> Result<File, StoreError> {
        self.with_copy(shown, meta, &|| false, |path| File::open(path))
    }
}

fn number_of(id: &str) -> u128 {
    u128::from_str_radix(id, 16).unwrap_or_default()
}
