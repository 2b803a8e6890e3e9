//! Copies of files that keep their holes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::object_writer::FILE_MODE;

/// A hard link; where the file system allows none (another disk, too many links) a copy, which
/// shares the blocks where it can.
pub(crate) fn link_or_copy(source: &Path, target: &Path) -> io::Result<()> {
    match fs::hard_link(source, target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => copy(source, target),
    }
}

pub(crate) fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let mut from = File::open(source)?;
    let mut to = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(target)?;
    to.set_permissions(Permissions::from_mode(FILE_MODE))?;
    let size = from.metadata()?.len();
    copy_data(&mut from, 0, size, &mut to, 0)?;
    to.set_len(size)?;
    to.sync_all()
}

/// Copies bytes of a file to a place of another one where nothing lies, but for their holes: the
/// other stands behind all of it then, and may be shorter.
pub(crate) fn copy_data(from: &mut File, start: u64, size: u64, to: &mut File, target: u64) -> io::Result<()> {
    let end = start + size;
    if from.metadata()?.len() < end {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut at = start;
    while at < end {
        let data = match seek(&*from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(_) => at,
            Ok(data) if data >= end => break,
            Ok(data) => data,
        };
        let hole = seek(&*from, SeekFrom::Hole(data)).unwrap_or(end).clamp(data, end);
        copy_bytes(from, data, hole - data, to, target + (data - start))?;
        at = hole.max(data + 1);
    }
    to.seek(io::SeekFrom::Start(target + size))?;
    Ok(())
}

/// The same with zeros for holes, whatever lies there.
pub(crate) fn copy_bytes(from: &mut File, start: u64, size: u64, to: &mut File, target: u64) -> io::Result<()> {
    from.seek(io::SeekFrom::Start(start))?;
    to.seek(io::SeekFrom::Start(target))?;
    if io::copy(&mut (&mut *from).take(size), to)? < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
