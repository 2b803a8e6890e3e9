//! A network's helper: owner of the user namespaces of its instances and of the network namespace
//! with the bridge. It does nothing once these exist but live as long as the process that started
//! it.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setresgid, setresuid};

use crate::SandboxError;
use crate::netlink::Netlink;
use crate::talk::{Order, Report, receive, send};
use crate::users::PROGRAM_ID;

const BRIDGE_NAME: &str = "br0";

pub(crate) fn run(stream: &UnixStream, _id: &str) -> ! {
    let report = match build(stream) {
        Ok(()) => Report::Up,
        Err(error) => Report::Failed { message: error.chain() },
    };
    if send(stream, &report, &[]).is_ok() {
        // The end of the socket is the end of the owner, whatever killed it.
        while let Ok(Some(_)) = receive::<Order>(stream) {}
    }
    std::process::exit(0)
}

fn build(stream: &UnixStream) -> Result<(), SandboxError> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(SandboxError::io("make a user and a network namespace"))?;
    send(stream, &Report::NeedsMaps, &[]).map_err(SandboxError::io("ask for the user namespace's maps"))?;
    match receive(stream).map_err(SandboxError::io("hear of the user namespace's maps"))? {
        Some((Order::Mapped, _)) => {}
        Some(_) | None => std::process::exit(1),
    }
    become_root_of_namespace().map_err(SandboxError::io("become root of the new user namespace"))?;
    let links = Netlink::open().map_err(SandboxError::io("open a netlink socket"))?;
    links.add_bridge(BRIDGE_NAME).map_err(SandboxError::io("add a bridge (is the kernel's bridge module there?)"))?;

    unshare(CloneFlags::CLONE_NEWUSER).map_err(SandboxError::io("make the program's user namespace"))?;
    write_inner_maps().map_err(SandboxError::io("map the program's user"))?;
    // A program in a user namespace of its own would have every capability there, and with it far
    // more of the kernel to attack. Kernels without the setting are as safe as their user
    // namespaces.
    let _ = fs::write("/proc/sys/user/max_user_namespaces", "0");
    Ok(())
}

fn become_root_of_namespace() -> io::Result<()> {
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))?;
    setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0))?;
    // A change of user hides /proc/self from its own process.
    prctl::set_dumpable(true)?;
    Ok(())
}

/// Whoever is root of the outer namespace is the program's user in the inner one.
fn write_inner_maps() -> io::Result<()> {
    prctl::set_dumpable(true)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{PROGRAM_ID} 0 1"))?;
    fs::write("/proc/self/gid_map", format!("{PROGRAM_ID} 0 1"))
}
