//! Giving up what makes root root, for good.
#![allow(unsafe_code, reason = "capset, capability prctls and clone have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::unistd::{Gid, Pid, Uid, setresgid, setresuid};

use crate::users::PROGRAM_ID;

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Enters the program's user namespace as the program's user, without any capability and without a
/// way to get one back.
pub(crate) fn become_program(user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    leave_keys();
    setns(user_namespace, CloneFlags::CLONE_NEWUSER)?;
    drop_bounding_set();
    let (group, user) = (Gid::from_raw(PROGRAM_ID), Uid::from_raw(PROGRAM_ID));
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    drop_capabilities()?;
    prctl::set_no_new_privs()?;
    // The program has the same user: it must not be able to trace process 1 and speak in its name.
    prctl::set_dumpable(false)?;
    Ok(())
}

/// Whoever has a session keyring may read the keys in it, as whatever user.
fn leave_keys() {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: takes a number and a null pointer, which stands for a new keyring without a name.
    // Fails on kernels without keys.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
}

/// Nothing that is executed from now on can have a capability.
fn drop_bounding_set() {
    // SAFETY: this prctl takes numbers only; it fails with EINVAL after the last capability that
    // the kernel knows.
    while_ok(|capability| unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) });
    // SAFETY: takes numbers only. Fails on kernels without ambient capabilities, which then have
    // none.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
}

fn while_ok(mut call: impl FnMut(libc::c_ulong) -> libc::c_int) {
    let mut number = 0;
    while call(number) == 0 {
        number += 1;
    }
}

fn drop_capabilities() -> io::Result<()> {
    // struct __user_cap_header_struct, and two struct __user_cap_data_struct of effective,
    // permitted, inheritable.
    let header = [CAPABILITY_VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: both point to arrays of the size that this version of the call reads.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The user namespace around another one.
pub(crate) fn parent_namespace(user_namespace: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: this ioctl takes no argument and returns a new descriptor, which nobody else knows.
    unsafe {
        let fd = libc::ioctl(user_namespace.as_fd().as_raw_fd(), libc::NS_GET_PARENT);
        if fd >= 0 { Ok(OwnedFd::from_raw_fd(fd)) } else { Err(io::Error::last_os_error()) }
    }
}

/// Which of the two processes this is.
pub(crate) enum Fork {
    Child,
    Parent(Pid),
}

/// Like fork, but the child's parent is our parent, so that it can wait for it and we can go. The
/// caller has one thread.
pub(crate) fn fork_sibling() -> io::Result<Fork> {
    // SAFETY: without CLONE_VM this is a fork; this process has a single thread, so no lock is held
    // by one that is not copied.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD), 0, 0, 0, 0) };
    match pid {
        0 => Ok(Fork::Child),
        pid if pid > 0 => Ok(Fork::Parent(Pid::from_raw(pid as i32))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Like fork. The caller has one thread.
pub(crate) fn fork_child() -> io::Result<Fork> {
    // SAFETY: this process has a single thread, so the child may do whatever we may.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => Ok(Fork::Child),
        nix::unistd::ForkResult::Parent { child } => Ok(Fork::Parent(child)),
    }
}

/// The program's output is at its end when the program and its children have let go of it, not when
/// we do.
pub(crate) fn forget_output() -> io::Result<()> {
    let nothing = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&nothing)?;
    nix::unistd::dup2_stderr(&nothing)?;
    Ok(())
}
