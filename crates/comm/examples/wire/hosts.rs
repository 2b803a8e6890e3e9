//! Hosts on one machine: each a process in a network namespace of its own, with one interface,
//! which is linked with the others' by [`super::links`].
//!
//! Nothing has a name outside: a host makes its interface itself and hands it up as a file
//! descriptor, and all is gone when the processes are.

#![expect(unsafe_code, reason = "interfaces are set up by ioctl, namespaces by unshare")]

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::links;

/// The interface of every host.
const INTERFACE: &str = "link0";
/// Jumbo frames: the forwarder is a process, and pays for each packet.
const MTU: u32 = 9000;
/// Where a host finds its socket to the parent.
const SOCKET: &str = "SHOAL_WIRE_SOCKET";

/// Runs a program as `ranks` ranks on each of `count` hosts, and waits for all.
pub(crate) fn run(count: usize, link: links::Link, ranks: usize, command: &[String]) {
    let program = env::current_exe().unwrap();
    let board = env::temp_dir().join(format!("shoal-wire-{}", std::process::id()));
    File::create(&board).unwrap().set_len(4 << 20).unwrap();
    let mut hosts = Vec::new();
    for host in 0..count {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let child = Command::new(&program)
            .args(["host", &host.to_string(), &count.to_string(), &ranks.to_string()])
            .args(command)
            .env(SOCKET, theirs.as_raw_fd().to_string())
            .env("SHF", &board)
            .spawn()
            .unwrap();
        drop(theirs);
        let interface = receive(&ours).unwrap_or_else(|error| panic!("host {host} made no interface: {error}"));
        hosts.push((child, ours, interface));
    }
    let (interfaces, mut hosts): (Vec<_>, Vec<_>) =
        hosts.into_iter().map(|(child, socket, file)| (file, (child, socket))).unzip();
    std::thread::spawn(move || links::forward(&interfaces, link));
    for (_, socket) in &mut hosts {
        socket.write_all(b"g").unwrap();
    }
    let failed = hosts.iter_mut().filter_map(|(child, _)| (!child.wait().unwrap().success()).then_some(())).count();
    fs::remove_file(&board).unwrap();
    assert!(failed == 0, "{failed} hosts failed");
}

/// One host: makes its namespace and interface, then runs its ranks.
pub(crate) fn host(number: usize, count: usize, ranks: usize, command: &[String]) {
    enter_namespace();
    let interface = interface(number).unwrap_or_else(|error| {
        panic!("cannot make an interface ({error}): is there /dev/net/tun, and may you open it?")
    });
    let descriptor: i32 = env::var(SOCKET).unwrap().parse().unwrap();
    // SAFETY: the parent made this descriptor for us, and nobody else here uses it.
    let mut socket = unsafe { UnixStream::from_raw_fd(descriptor) };
    send(&socket, &interface).unwrap();
    drop(interface);
    socket.read_exact(&mut [0]).unwrap();
    let mut children: Vec<Child> = (0..ranks)
        .map(|local| {
            Command::new(&command[0])
                .args(&command[1..])
                .env_remove(SOCKET)
                .env("RANK", (number * ranks + local).to_string())
                .env("LOCAL_RANK", local.to_string())
                .env("WORLD_SIZE", (count * ranks).to_string())
                .env("MASTER_ADDR", "10.77.0.1")
                .env("MASTER_PORT", "29500")
                .env("SHOAL_COMM_SECRET", "known to all in this test")
                .spawn()
                .unwrap_or_else(|error| panic!("cannot start {}: {error}", command[0]))
        })
        .collect();
    let failed = children.iter_mut().filter_map(|child| (!child.wait().unwrap().success()).then_some(())).count();
    assert!(failed == 0, "{failed} ranks of host {number} failed");
}

/// A network of one's own; whoever is not root becomes it in a user namespace.
fn enter_namespace() {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let flags = if user.is_root() { libc::CLONE_NEWNET } else { libc::CLONE_NEWNET | libc::CLONE_NEWUSER };
    // SAFETY: it changes what this process, which has one thread, sees of the network; no memory.
    let entered = unsafe { libc::unshare(flags) };
    assert!(entered == 0, "no network namespace: {}; run as root", io::Error::last_os_error());
    if !user.is_root() {
        fs::write("/proc/self/setgroups", "deny").unwrap();
        fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw())).unwrap();
        fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw())).unwrap();
    }
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// `struct ifreq`: the interface's name, and one value.
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: [u8; 24],
}

fn request(of: &impl AsRawFd, code: u64, name: &str, value: &[u8]) -> io::Result<()> {
    let mut request = Request { name: [0; 16], value: [0; 24] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request.value[..value.len()].copy_from_slice(value);
    // SAFETY: these requests read, and may write, a `struct ifreq`, which this is.
    let done = unsafe { libc::ioctl(of.as_raw_fd(), code as libc::Ioctl, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Codes and flags of linux/sockios.h, linux/if.h and linux/if_tun.h.
const SET_INTERFACE: u64 = 0x4004_54ca;
const SET_FLAGS: u64 = 0x8914;
const SET_ADDRESS: u64 = 0x8916;
const SET_NETMASK: u64 = 0x891c;
const SET_MTU: u64 = 0x8922;
const SET_QUEUE: u64 = 0x8943;
const UP: u16 = 1;
const TUN_WITHOUT_HEADER: u16 = 0x1001;

/// This host's interface with address 10.77.0.(number + 1); what is sent is read from the file.
fn interface(number: usize) -> io::Result<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    rustix::io::ioctl_fionbio(&file, true)?;
    request(&file, SET_INTERFACE, INTERFACE, &TUN_WITHOUT_HEADER.to_ne_bytes())?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let address = |last: [u8; 4]| {
        let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(last);
        bytes
    };
    let own = u8::try_from(number + 1).expect("less than 255 hosts");
    request(&socket, SET_ADDRESS, INTERFACE, &address([10, 77, 0, own]))?;
    request(&socket, SET_NETMASK, INTERFACE, &address([255, 255, 255, 0]))?;
    request(&socket, SET_MTU, INTERFACE, &MTU.to_ne_bytes())?;
    request(&socket, SET_QUEUE, INTERFACE, &2000_u32.to_ne_bytes())?;
    request(&socket, SET_FLAGS, INTERFACE, &UP.to_ne_bytes())?;
    request(&socket, SET_FLAGS, "lo", &UP.to_ne_bytes())?;
    Ok(file.into())
}

fn send(socket: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [std::os::fd::AsFd::as_fd(file)];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is room for one");
    sendmsg(socket, &[IoSlice::new(b"i")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
