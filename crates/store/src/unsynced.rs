//! Small objects whose files the disk has not been made to take one by one. Their content stands in
//! the index as well, in the transaction of their rows, so that one sync makes many objects
//! durable; once in a while the whole file system is synced and the copies are dropped. After a
//! crash the files are written again from them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rusqlite::{Connection, params};

use crate::StoreError;
use crate::error::io_at;
use crate::object_writer::{FILE_MODE, file_path};
use crate::sqlite::Database;

/// So many bytes are worth a sync of the file system.
const ENOUGH: usize = 4 << 20;

/// What is in the index twice at present.
#[derive(Debug)]
pub(crate) struct Unsynced {
    files: PathBuf,
    index: Arc<Database>,
    bytes: Arc<AtomicUsize>,
    under_way: Arc<AtomicBool>,
}

/// Keeps an object's content beside its row.
pub(crate) fn keep(connection: &Connection, file: &str, content: Option<&[u8]>) -> Result<(), StoreError> {
    if let Some(content) = content {
        connection
            .prepare_cached("INSERT INTO unsynced (file, content) VALUES (?, ?)")?
            .execute(params![file, content])?;
    }
    Ok(())
}

impl Unsynced {
    /// Of this directory's files and this index, where nothing is kept twice.
    pub(crate) fn new(files: &Path, index: &Arc<Database>) -> Self {
        Self { files: files.to_owned(), index: Arc::clone(index), bytes: Arc::default(), under_way: Arc::default() }
    }

    /// So many bytes more are kept. When there are enough, a thread makes them durable as files;
    /// nobody waits for it.
    pub(crate) fn grew(&self, bytes: usize) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes < ENOUGH
            || self.under_way.swap(true, Ordering::SeqCst)
        {
            return;
        }
        let (files, index, bytes, under_way) =
            (self.files.clone(), Arc::clone(&self.index), Arc::clone(&self.bytes), Arc::clone(&self.under_way));
        let started = thread::Builder::new().name("sync".to_owned()).spawn(move || {
            let before = bytes.load(Ordering::Relaxed);
            // What cannot be made durable now stays in the index, where it is.
            if drop_synced(&files, &index).is_ok() {
                bytes.fetch_sub(before, Ordering::Relaxed);
            }
            under_way.store(false, Ordering::SeqCst);
        });
        if started.is_err() {
            self.under_way.store(false, Ordering::SeqCst);
        }
    }
}

/// Makes all files durable whose content is kept by now, and drops the copies.
fn drop_synced(files: &Path, index: &Database) -> Result<(), StoreError> {
    // A file is written before its row, so all files up to this row are seen by the sync.
    let last: i64 = index.read(|connection| {
        Ok(connection
            .prepare_cached("SELECT coalesce(max(number), 0) FROM unsynced")?
            .query_row([], |row| row.get(0))?)
    })?;
    let dir = File::open(files).map_err(io_at("open", files))?;
    // It is not asked a second time: what the disk has refused once the kernel may have forgotten.
    rustix::fs::syncfs(&dir).map_err(|error| StoreError::NotDurable(index.fail(files, &error)))?;
    index.write(|tx| {
        tx.prepare_cached("DELETE FROM unsynced WHERE number <= ?")?.execute([last])?;
        Ok(())
    })
}

/// Writes the files again that a crash may have lost, of objects that are still there.
///
/// # Errors
/// The storage's.
pub(crate) fn restore(files: &Path, index: &Database) -> Result<(), StoreError> {
    let lost = index.read(|connection| {
        let sql = "SELECT file, content FROM unsynced WHERE file IN (SELECT file FROM object UNION ALL SELECT file \
                   FROM version UNION ALL SELECT file FROM part)";
        let mut select = connection.prepare(sql)?;
        let mut rows = select.query([])?;
        let mut any = false;
        while let Some(row) = rows.next()? {
            let (file, content): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let path = file_path(files, &file);
            rewrite(&path, &content).map_err(io_at("write", &path))?;
            any = true;
        }
        Ok(any)
    })?;
    if lost { drop_synced(files, index) } else { Ok(()) }
}

/// In place, as trees of links may name the same file; and whatever it seems to hold: after a sync
/// that failed that may be in memory only.
fn rewrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    // The umask has had its say at creation.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE))
}
