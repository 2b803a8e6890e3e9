//! Pieces of the machine that can be put somewhere else: detached mounts (open_tree(2),
//! mount_setattr(2), move_mount(2); Linux 5.12).
//!
//! A piece is taken while the machine's own root is still there, and put into the instance's root
//! later, so no path of one is ever resolved in the other.
#![allow(unsafe_code, reason = "the calls of the new mount interface have no safe wrapper")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// Names as in linux/mount.h.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;

/// How a piece is seen where it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    Writable,
    /// A device, usable.
    Device,
}

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A part of the machine's file tree, with everything mounted below it.
#[derive(Debug)]
pub(crate) struct Piece {
    tree: OwnedFd,
}

impl Piece {
    /// Takes a file or directory. Symbolic links are followed.
    pub(crate) fn take(path: &Path, access: Access) -> io::Result<Piece> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint | libc::AT_RECURSIVE as libc::c_uint;
        // SAFETY: the path is a C string that outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let piece = Piece { tree: unsafe { OwnedFd::from_raw_fd(fd as i32) } };
        let set = match access {
            Access::ReadOnly => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            Access::Writable => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            Access::Device => MOUNT_ATTR_NOSUID,
        };
        // Never shared with the machine's mounts.
        set_attributes(
            piece.tree.as_raw_fd(),
            c"",
            &Attributes { set, propagation: libc::MS_PRIVATE, ..Attributes::default() },
        )?;
        Ok(piece)
    }

    /// What belongs to root of that user namespace on disk is shown as belonging to whom it maps
    /// to. Not all file systems can.
    pub(crate) fn show_as(&self, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
        let user_namespace = user_namespace.as_raw_fd() as u64;
        set_attributes(
            self.tree.as_raw_fd(),
            c"",
            &Attributes { set: MOUNT_ATTR_IDMAP, user_namespace, ..Attributes::default() },
        )
    }

    /// Puts it where it belongs.
    pub(crate) fn put(&self, target: &Path) -> io::Result<()> {
        let name = CString::new(target.as_os_str().as_bytes())?;
        // SAFETY: both paths are C strings that outlive the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_FDCWD,
                name.as_ptr(),
                MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Makes the mount at `path` alone read-only.
pub(crate) fn make_read_only(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    attributes_at(libc::AT_FDCWD, &name, 0, &Attributes { set: MOUNT_ATTR_RDONLY, ..Attributes::default() })
}

fn set_attributes(fd: i32, path: &std::ffi::CStr, attributes: &Attributes) -> io::Result<()> {
    attributes_at(fd, path, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes)
}

fn attributes_at(fd: i32, path: &std::ffi::CStr, flags: libc::c_int, attributes: &Attributes) -> io::Result<()> {
    let pointer = std::ptr::from_ref(attributes);
    // SAFETY: path and attributes outlive the call, which is told the size of the latter.
    let done =
        unsafe { libc::syscall(libc::SYS_mount_setattr, fd, path.as_ptr(), flags, pointer, size_of::<Attributes>()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
