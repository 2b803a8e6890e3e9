//! Who writes a file now.
#![allow(unsafe_code, reason = "fcntl's leases have no safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// As in fcntl.h; which signal tells of a lease that is to end.
const F_SETSIG: libc::c_int = 10;

/// Whether anybody has this file, opened for reading only, open for writing. `None` where the file
/// system or the machine does not tell.
///
/// The kernel gives a read lease on a file only while nobody does; the lease is given back at once.
#[must_use]
pub fn is_being_written(file: &File) -> Option<bool> {
    let fd = file.as_raw_fd();
    // SAFETY: the calls take numbers only, and the descriptor is open for as long as `file` is
    // borrowed. Should somebody open the file between the last two, the kernel says so by SIGURG,
    // which is ignored, instead of SIGIO, which would end us.
    unsafe {
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) < 0 {
            return None;
        }
        if libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) < 0 {
            let is_open = std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            return is_open.then_some(true);
        }
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_being_written_until_its_last_writer_closes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let writer = File::create(&path).unwrap();
        let another = writer.try_clone().unwrap();
        let reader = File::open(&path).unwrap();
        if is_being_written(&reader).is_none() {
            println!("skipped: {} tells no leases", path.display());
            return;
        }
        drop(writer);
        assert_eq!(is_being_written(&reader), Some(true));
        drop(another);
        assert_eq!(is_being_written(&reader), Some(false));
        assert_eq!(is_being_written(&File::open(&path).unwrap()), Some(false), "the lease was given back");
    }
}
