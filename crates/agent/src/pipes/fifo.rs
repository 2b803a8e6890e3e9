//! A named pipe in a directory that the program can change: it is reached by descriptors alone, so
//! nothing that the program puts in its place is opened.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat, open, openat, unlinkat};
use rustix::pipe::fcntl_setpipe_size;

/// The program's user is another one.
const MODE: u32 = 0o666;
/// Bytes of the kernel's buffer, where it grants them.
const BUFFER: usize = 1 << 20;
/// Between two looks at whether the program has ended, while it reads nothing.
const LOOK: Duration = Duration::from_millis(250);

/// The directory of the pipes.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// Makes a pipe; one of that name is replaced.
    pub(super) fn make(&self, name: &str) -> io::Result<Fifo> {
        self.remove(name)?;
        mknodat(&self.0, name, FileType::Fifo, Mode::from_raw_mode(MODE), 0)?;
        let inode = openat(&self.0, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let fifo = Fifo { inode };
        if !fs::metadata(fifo.path())?.file_type().is_fifo() {
            return Err(io::Error::other("the program has put something else in the place of the pipe"));
        }
        // The mode that it was made with lacks what the process's mask takes away.
        fs::set_permissions(fifo.path(), Permissions::from_mode(MODE))?;
        Ok(fifo)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// A pipe that the program opens by its name.
#[derive(Debug)]
pub(super) struct Fifo {
    inode: OwnedFd,
}

impl Fifo {
    /// The descriptor by a path, which follows no name in the directory.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.inode.as_raw_fd()).into()
    }

    /// Waits for a reader, the program or [`Fifo::reader`].
    pub(super) fn writer(&self) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).open(self.path())?;
        // The kernel's limits for a user may deny it.
        let _ = fcntl_setpipe_size(&file, BUFFER);
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
        Ok(Writer { file })
    }

    /// Opens the reading end, which unblocks a writer.
    pub(super) fn reader(&self) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(self.path())
    }

    /// Ends what is opened now by readers that have found the name before it was removed: without a
    /// writer they would wait.
    pub(super) fn release_readers(&self) {
        let _ = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(self.path());
    }
}

/// The end of a pipe that the program reads from.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
}

impl Writer {
    /// Writes all of it; gives whether it did, or the program has ended before. `BrokenPipe` is a
    /// program that has closed the pipe.
    pub(super) fn write(&mut self, mut bytes: &[u8], is_over: &dyn Fn() -> bool) -> io::Result<bool> {
        while !bytes.is_empty() {
            if is_over() {
                return Ok(false);
            }
            match self.file.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
                    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
                    match poll(&mut fds, Some(&look)) {
                        Err(error) if error != rustix::io::Errno::INTR => return Err(error.into()),
                        _ => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
