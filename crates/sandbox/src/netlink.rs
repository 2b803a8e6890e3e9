//! Just enough rtnetlink to build a bridge with instances on it (linux/rtnetlink.h, rtnetlink(7));
//! needs no `ip` program.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Interface number that we give a network's bridge.
pub(crate) const BRIDGE: i32 = 1000;
/// Interface number that we give an instance's `eth0`.
pub(crate) const ETH0: i32 = 2;
/// Interface number of `lo` in every network namespace.
pub(crate) const LOOPBACK: i32 = 1;

/// Most bytes of a packet on a job's network, the most that its links take. They are this machine's
/// memory, and large packets reach the other instance in a third of the time: at 1500, half a
/// megabyte there and back took 420 us on a machine whose loopback takes 140, with this 170.
const MTU: u32 = 65_535;

// Names as in the kernel's headers.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_QUICKACK: u16 = 15;
const NLA_F_NESTED: u16 = 1 << 15;
const NLM_F_CREATE_NEW: u16 = 0x600;
const NLM_F_CREATE_REPLACE: u16 = 0x500;
const NLMSG_HEADER: usize = 16;

/// A netlink socket; it belongs for ever to the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Netlink> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
        Ok(Netlink { socket })
    }

    /// Adds a bridge under the number [`BRIDGE`] and sets it up.
    pub(crate) fn add_bridge(&self, name: &str) -> io::Result<()> {
        let mut request = Request::link(libc::RTM_NEWLINK, NLM_F_CREATE_NEW, BRIDGE, true);
        request.attribute(IFLA_IFNAME, name.as_bytes());
        request.attribute(IFLA_MTU, &MTU.to_ne_bytes());
        request.nested(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, b"bridge"));
        self.call(request)
    }

    /// Adds a pair of interfaces: `eth0` here, under the number [`ETH0`], and `peer` in another
    /// network namespace.
    pub(crate) fn add_pair(&self, address: [u8; 6], peer: &str, peer_namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut request = Request::link(libc::RTM_NEWLINK, NLM_F_CREATE_NEW, ETH0, false);
        request.attribute(IFLA_IFNAME, b"eth0");
        request.attribute(IFLA_ADDRESS, &address);
        request.attribute(IFLA_MTU, &MTU.to_ne_bytes());
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |other| {
                    other.interface(0, false);
                    other.attribute(IFLA_IFNAME, peer.as_bytes());
                    other.attribute(IFLA_MTU, &MTU.to_ne_bytes());
                    other.attribute(IFLA_NET_NS_FD, &peer_namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.call(request)
    }

    /// Makes the interface of this name a port of the bridge and sets it up.
    pub(crate) fn attach(&self, name: &str) -> io::Result<()> {
        let mut request = Request::link(libc::RTM_NEWLINK, 0, 0, true);
        request.attribute(IFLA_IFNAME, name.as_bytes());
        request.attribute(IFLA_MASTER, &BRIDGE.to_ne_bytes());
        self.call(request)
    }

    /// Sets the interface up.
    pub(crate) fn up(&self, index: i32) -> io::Result<()> {
        self.call(Request::link(libc::RTM_NEWLINK, 0, index, true))
    }

    /// Gives the interface an address.
    pub(crate) fn add_address(&self, index: i32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWADDR, NLM_F_CREATE_NEW);
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        request.bytes.extend_from_slice(&[libc::AF_INET as u8, prefix, 0, 0]);
        request.bytes.extend_from_slice(&index.to_ne_bytes());
        request.attribute(IFA_LOCAL, &address.octets());
        request.attribute(IFA_ADDRESS, &address.octets());
        self.call(request)
    }

    /// Has what comes over the interface with this address acknowledged at once, from its network
    /// and from itself; the interface is up. TCP waits 40 ms for an answer to send the
    /// acknowledgement with, and a program that writes a length and then what is so long waits for
    /// it (Nagle).
    pub(crate) fn acknowledge_at_once(&self, index: i32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let network = Ipv4Addr::from(u32::from(address) & !(u32::MAX.checked_shr(prefix.into()).unwrap_or(0)));
        let to_network = (network, prefix, libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST);
        let to_itself = (address, 32, libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
        for (target, length, table, scope, kind) in [to_network, to_itself] {
            let mut request = Request::new(libc::RTM_NEWROUTE, NLM_F_CREATE_REPLACE);
            // struct rtmsg: family, lengths of target and source, tos, table, who made it, scope,
            // type; flags. As the kernel made the route itself, to replace that one.
            request.bytes.extend_from_slice(&[
                libc::AF_INET as u8,
                length,
                0,
                0,
                table,
                libc::RTPROT_KERNEL,
                scope,
                kind,
            ]);
            request.bytes.extend_from_slice(&0_u32.to_ne_bytes());
            request.attribute(RTA_DST, &target.octets());
            request.attribute(RTA_OIF, &index.to_ne_bytes());
            request.attribute(RTA_PREFSRC, &address.octets());
            request.nested(RTA_METRICS, |metrics| metrics.attribute(RTAX_QUICKACK, &1_u32.to_ne_bytes()));
            self.call(request)?;
        }
        Ok(())
    }

    /// Sends the request and waits for the kernel's answer to it.
    fn call(&self, request: Request) -> io::Result<()> {
        send(self.socket.as_raw_fd(), &request.finish(), MsgFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // struct nlmsghdr, then struct nlmsgerr, which begins with the error: 0, or a negative
        // errno.
        match answer[..length].get(NLMSG_HEADER..NLMSG_HEADER + 4) {
            Some(code) => match i32::from_ne_bytes(code.try_into().expect("four bytes were asked for")) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            },
            None => Err(io::Error::other("the kernel's netlink answer is too short")),
        }
    }
}

/// A netlink message under construction.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: u16) -> Request {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; NLMSG_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Request { bytes }
    }

    fn link(kind: u16, flags: u16, index: i32, up: bool) -> Request {
        let mut request = Request::new(kind, flags);
        request.interface(index, up);
        request
    }

    /// struct ifinfomsg: family, pad, type, index, flags, mask of flags to change.
    fn interface(&mut self, index: i32, up: bool) {
        let flags = if up { libc::IFF_UP as u32 } else { 0 };
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind & !NLA_F_NESTED, |inner| inner.bytes.extend_from_slice(value));
    }

    /// An attribute is its length, its kind, its value, and zeros up to a multiple of four.
    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd, thread};

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// An attribute of a route that acknowledges at once.
    const QUICK: [u8; 8] = [8, 0, RTAX_QUICKACK as u8, 0, 1, 0, 0, 0];

    /// How many of this namespace's routes acknowledge at once: all of them are in the answer's
    /// first part.
    fn quick_routes() -> usize {
        let Netlink { socket } = Netlink::open().unwrap();
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16);
        request.bytes.extend_from_slice(&[libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        send(socket.as_raw_fd(), &request.finish(), MsgFlags::empty()).unwrap();
        let mut answer = [0; 1 << 16];
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
        answer[..length].windows(QUICK.len()).filter(|window| *window == QUICK).count()
    }

    #[test]
    fn an_instances_routes_acknowledge_at_once() {
        // A thread of its own, whose networks nobody else has.
        let routes = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let there = File::open("/proc/thread-self/ns/net").unwrap();
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let (here, address) = (Netlink::open().unwrap(), Ipv4Addr::new(10, 77, 1, 3));
            here.add_pair([2, 0, 10, 77, 1, 3], "peer", there.as_fd()).unwrap();
            here.add_address(ETH0, address, 16).unwrap();
            here.up(ETH0).unwrap();
            let before = quick_routes();
            here.acknowledge_at_once(ETH0, address, 16).unwrap();
            Some((before, quick_routes()))
        });
        match routes.join().unwrap() {
            Some(counted) => assert_eq!(counted, (0, 2)),
            None => println!("skipped: needs root"),
        }
    }
}
