//! The small files of a data directory: keys, settings, certificates, lists of types and images,
//! environments' lock files, and the journal's snapshot.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use shoal_store::is_left_out;

use crate::BackupError;
use crate::error::io_at;

/// Shows whether a file is the same as before, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A file of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SmallFile {
    pub(crate) mode: u32,
    pub(crate) stamp: Stamp,
}

impl SmallFile {
    pub(crate) fn of(about: &Metadata) -> Self {
        let stamp = Stamp { inode: about.ino(), bytes: about.len(), modified: (about.mtime(), about.mtime_nsec()) };
        Self { mode: about.mode() & 0o777, stamp }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.stamp.bytes
    }

    /// Whether this is the earlier file with something behind it: logs are only appended to.
    pub(crate) fn appended_to(&self, earlier: &Self, path: &str) -> Option<u64> {
        let grew = self.stamp.inode == earlier.stamp.inode && self.stamp.bytes > earlier.stamp.bytes;
        (grew && path.ends_with(".log")).then_some(earlier.stamp.bytes)
    }
}

/// All of them, by their paths in the data directory.
pub(crate) fn small_files(root: &Path) -> Result<BTreeMap<String, SmallFile>, BackupError> {
    let mut found = BTreeMap::new();
    walk(root, root, &mut found)?;
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, SmallFile>) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder).map_err(io_at("list", folder.display()))? {
        let path = entry.map_err(io_at("list", folder.display()))?.path();
        let Ok(relative) = path.strip_prefix(root) else { continue };
        if is_left_out(relative) {
            continue;
        }
        // A link to a file is copied as the file (settings are kept elsewhere, say), one to a
        // directory is not followed.
        let about = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            about => about.map_err(io_at("read", path.display()))?,
        };
        if about.is_dir() && path.is_symlink() {
            continue;
        }
        if about.is_dir() {
            walk(root, &path, found)?;
        } else if about.is_file()
            && let Some(name) = relative.to_str()
        {
            found.insert(name.to_owned(), SmallFile::of(&about));
        }
    }
    Ok(())
}

/// What a file has from this place on, and what it is; `None`: it is not there any more.
pub(crate) fn read_from(path: &Path, at: u64) -> Result<Option<(SmallFile, Vec<u8>)>, BackupError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io_at("open", path.display()))?,
    };
    read_open(&mut file, at).map(Some).map_err(io_at("read", path.display()))
}

/// The same of an open file.
pub(crate) fn read_open(file: &mut File, at: u64) -> io::Result<(SmallFile, Vec<u8>)> {
    let mut about = SmallFile::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.read_to_end(&mut bytes)?;
    // It may have grown meanwhile.
    about.stamp.bytes = at + bytes.len() as u64;
    Ok((about, bytes))
}
