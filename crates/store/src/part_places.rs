//! Where the parts of an upload are written: at their places in one file, which becomes the
//! object's without being copied.
//!
//! Clients cut an object into parts of one length and a shorter last one. So part n has a slot that
//! begins n - 1 lengths into the file, and the longest part so far says how long slots are. Other
//! parts have files of their own: those of a length that disks do not have blocks of, those that
//! come again after they were acknowledged, and small ones. A part that is longer than all before
//! begins another file.
//!
//! Two promises make this safe. As long as a row names a slot nothing is written there: a slot is
//! given to one writer, and to another only when the first has failed and what it wrote is cleared.
//! And a file that is becoming an object has no writers: it is closed only while it has none.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use rustix::fs::{FallocateFlags, fallocate};

use crate::StoreError;
use crate::data_dir::{random_hex, sync_parent};
use crate::error::io_at;
use crate::object_writer::{FILE_MODE, SMALL, file_path};
use crate::sqlite::Database;

/// Slots are as long as some of these, so that no two parts share a block of the disk.
const BLOCK_BYTES: u64 = 4096;

/// No slot ends behind this, and no object of S3 does.
const LONGEST_FILE: u64 = 5 << 40;

/// Where a part is that has no file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Names the file.
    pub(crate) file: String,
    /// Bytes from the beginning of one slot to that of the next.
    pub(crate) slot: u64,
}

impl Place {
    /// Where the part of this number begins.
    pub(crate) fn start(&self, number: u32) -> u64 {
        u64::from(number - 1) * self.slot
    }
}

/// The files that parts share, of uploads that are under way.
#[derive(Debug)]
pub(crate) struct Places {
    files: PathBuf,
    /// In the order of their slots' lengths.
    of_upload: Mutex<ByUpload>,
}

type ByUpload = HashMap<String, Vec<Arc<SharedFile>>>;

#[derive(Debug)]
struct SharedFile {
    id: String,
    path: PathBuf,
    slot: u64,
    /// Its name is durable.
    named: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Numbers of the parts that are being written, or were acknowledged: their slots are given to
    /// nobody else.
    taken: BTreeSet<u32>,
    /// How many are being written.
    writers: usize,
    /// There are or were rows that name it, which decide when it goes.
    has_parts: bool,
    /// Slots that are not taken hold nothing.
    is_clear: bool,
    length: u64,
    /// It is becoming the object's.
    closed: bool,
    removed: bool,
}

/// A part's place for one writer. Unless a row names it, what was written goes with this.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<SharedFile>,
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    is_clear: bool,
    kept: bool,
}

/// A shared file without writers, which gets none before this is dropped.
#[derive(Debug)]
pub(crate) struct Closed {
    shared: Arc<SharedFile>,
    length: Option<u64>,
    stays: bool,
}

impl Places {
    pub(crate) fn new(files: &Path) -> Self {
        Self { files: files.to_owned(), of_upload: Mutex::default() }
    }

    /// A place for a part of this length; `None`: it needs a file of its own.
    pub(crate) fn slot(
        &self,
        index: &Database,
        upload: &str,
        number: u32,
        length: u64,
    ) -> Result<Option<Slot>, StoreError> {
        if length <= SMALL as u64 {
            return Ok(None);
        }
        let mut of_upload = lock(&self.of_upload);
        let files = self.known(&mut of_upload, index, upload)?;
        files.retain(|file| !file.is_removed());
        match files.last() {
            Some(file) if length <= file.slot => return Ok(file.take(number, length)),
            _ if !length.is_multiple_of(BLOCK_BYTES) || length > LONGEST_FILE => return Ok(None),
            _ => {}
        }
        let file = SharedFile::create(&self.files, length)?;
        let slot = file.take(number, length);
        files.push(file);
        // Nothing else remembers uploads that had ended when their last writer failed.
        of_upload.retain(|_, files| !files.iter().all(|file| file.is_removed()));
        Ok(slot)
    }

    /// Those of the upload's files that may become its object's: whole parts lie in them, and
    /// nobody writes to them.
    pub(crate) fn close(&self, index: &Database, upload: &str) -> Result<Vec<Closed>, StoreError> {
        let mut of_upload = lock(&self.of_upload);
        Ok(self.known(&mut of_upload, index, upload)?.iter().filter_map(SharedFile::close).collect())
    }

    /// The upload has ended. Returns the files that it had and that go now, if they are still
    /// there.
    pub(crate) fn end(&self, upload: &str) -> Vec<String> {
        let files = lock(&self.of_upload).remove(upload).unwrap_or_default();
        files.iter().map(|file| file.id.clone()).collect()
    }

    fn known<'a>(
        &self,
        of_upload: &'a mut ByUpload,
        index: &Database,
        upload: &str,
    ) -> Result<&'a mut Vec<Arc<SharedFile>>, StoreError> {
        if !of_upload.contains_key(upload) {
            of_upload.insert(upload.to_owned(), self.stored(index, upload)?);
        }
        Ok(of_upload.entry(upload.to_owned()).or_default())
    }

    /// What the rows say, after a start.
    fn stored(&self, index: &Database, upload: &str) -> Result<Vec<Arc<SharedFile>>, StoreError> {
        let rows = index.read(|connection| {
            let sql = "SELECT shared, slot, number FROM part WHERE upload = ? AND shared IS NOT NULL ORDER BY slot, \
                       shared, number";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([upload], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            Ok(rows.collect::<rusqlite::Result<Vec<(String, u64, u32)>>>()?)
        })?;
        let by_file = rows.chunk_by(|one, other| one.0 == other.0);
        Ok(by_file
            .map(|rows| SharedFile::stored(&self.files, &rows[0].0, rows[0].1, rows.iter().map(|row| row.2).collect()))
            .collect())
    }
}

impl SharedFile {
    fn create(files: &Path, slot: u64) -> Result<Arc<Self>, StoreError> {
        let id = random_hex::<16>()?;
        let path = file_path(files, &id);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(io_at("create", &path))?;
        // The umask has had its say at creation.
        file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(io_at("set the mode of", &path))?;
        Ok(Arc::new(Self {
            id,
            path,
            slot,
            named: AtomicBool::new(false),
            state: Mutex::new(State::new(BTreeSet::new(), true)),
        }))
    }

    fn stored(files: &Path, id: &str, slot: u64, taken: BTreeSet<u32>) -> Arc<Self> {
        let state = Mutex::new(State::new(taken, false));
        Arc::new(Self { id: id.to_owned(), path: file_path(files, id), slot, named: AtomicBool::new(true), state })
    }

    fn take(self: &Arc<Self>, number: u32, length: u64) -> Option<Slot> {
        let start = u64::from(number.checked_sub(1)?)
            .checked_mul(self.slot)
            .filter(|start| *start <= LONGEST_FILE - self.slot)?;
        let mut state = lock(&self.state);
        if state.closed || !state.taken.insert(number) {
            return None;
        }
        state.writers += 1;
        Some(Slot { shared: Arc::clone(self), number, start, length, is_clear: state.is_clear, kept: false })
    }

    fn close(self: &Arc<Self>) -> Option<Closed> {
        let mut state = lock(&self.state);
        if state.closed || state.removed || state.writers > 0 || !state.has_parts {
            return None;
        }
        state.closed = true;
        Some(Closed { shared: Arc::clone(self), length: None, stays: false })
    }

    fn is_removed(&self) -> bool {
        lock(&self.state).removed
    }

    /// For one writer alone: an error of the disk is told once to each that had the file open
    /// before.
    fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(&self.path)
    }
}

impl State {
    fn new(taken: BTreeSet<u32>, is_clear: bool) -> Self {
        Self { writers: 0, has_parts: !taken.is_empty(), taken, is_clear, length: 0, closed: false, removed: false }
    }
}

impl Slot {
    /// The file, long enough, and whether zeros may be left out.
    pub(crate) fn open(&self) -> io::Result<(File, bool)> {
        let file = self.shared.open()?;
        let mut state = lock(&self.shared.state);
        let end = self.start + self.length;
        if state.length < end {
            state.length = file.metadata()?.len();
            if state.length < end {
                file.set_len(end)?;
                state.length = end;
            }
        }
        drop(state);
        let is_hole = self.is_clear || punch(&file, self.start, self.length).is_ok();
        Ok((file, is_hole))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shared.path
    }

    pub(crate) fn place(&self) -> Place {
        Place { file: self.shared.id.clone(), slot: self.shared.slot }
    }

    /// Makes the file's name durable.
    pub(crate) fn sync_name(&self) -> Result<(), StoreError> {
        if !self.shared.named.load(Ordering::Acquire) {
            sync_parent(&self.shared.path)?;
            self.shared.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// A row names the part, or may name it.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let cleared = !self.kept && self.shared.open().and_then(|file| punch(&file, self.start, self.length)).is_ok();
        let mut state = lock(&self.shared.state);
        state.writers -= 1;
        state.has_parts |= self.kept;
        if cleared {
            state.taken.remove(&self.number);
        }
        if state.writers == 0 && !state.has_parts {
            state.removed = true;
            // What cannot be removed now is swept at the next start.
            let _ = fs::remove_file(&self.shared.path);
        }
    }
}

impl Closed {
    pub(crate) fn id(&self) -> &str {
        &self.shared.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The file, to copy into it what it lacks. What lies there then counts for nothing unless the
    /// file becomes the object's.
    pub(crate) fn open(&self) -> io::Result<File> {
        lock(&self.shared.state).is_clear = false;
        self.shared.open()
    }

    /// Makes the file as long as the object.
    pub(crate) fn set_length(&mut self, file: &File, length: u64) -> io::Result<()> {
        self.length = Some(length);
        file.set_len(length)
    }

    /// It is the object's, or may be, and never gets writers again.
    pub(crate) fn stay(&mut self) {
        self.stays = true;
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closed = self.stays;
        state.length = self.length.unwrap_or(state.length);
    }
}

/// Gives back the space of what a crash left half written in files that parts share.
///
/// # Errors
/// The index's. What cannot be cleared goes with its upload.
pub(crate) fn clear_rest(files: &Path, index: &Database) -> Result<(), StoreError> {
    let parts = index.read(shared_parts)?;
    for parts in parts.chunk_by(|one, other| one.0 == other.0) {
        let Ok(file) = OpenOptions::new().write(true).open(file_path(files, &parts[0].0)) else { continue };
        let mut at = 0;
        for &(_, start, end) in parts {
            let _ = punch(&file, at, start.saturating_sub(at));
            at = end;
        }
        let _ = file.metadata().and_then(|found| if found.len() > at { file.set_len(at) } else { Ok(()) });
    }
    Ok(())
}

/// File, start and end of each part in a file that parts share, in this order.
fn shared_parts(connection: &Connection) -> Result<Vec<(String, u64, u64)>, StoreError> {
    let sql = "SELECT shared, (number - 1) * slot, size FROM part WHERE shared IS NOT NULL ORDER BY shared, number";
    let mut select = connection.prepare(sql)?;
    let rows = select.query_map([], |row| {
        let (start, size): (u64, u64) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, start, start + size))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Makes a hole, which reads as zeros and takes no room.
pub(crate) fn punch(file: &File, start: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, length)?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
