//! What a rank tells the others of itself, and what tells hosts apart.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::{fs, process};

use super::frame::{Fields, put_bytes};

/// One rank, as it is written in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its number when the group was first formed.
    pub(crate) rank: u32,
    /// How many ranks it thinks there are.
    pub(crate) size: u32,
    /// Random: tells two processes of one number apart.
    pub(crate) incarnation: u64,
    /// Where other ranks connect to.
    pub(crate) address: SocketAddr,
    /// Ranks with equal identities can pass each other memory.
    pub(crate) host: String,
    /// Process id; means something where `pid_namespace` is the same.
    pub(crate) pid: u32,
    /// See `pid`.
    pub(crate) pid_namespace: u64,
    /// Its heartbeat in milliseconds.
    pub(crate) heartbeat: u32,
}

impl Member {
    /// As it is written in the store.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.rank.to_le_bytes());
        out.extend(self.size.to_le_bytes());
        out.extend(self.incarnation.to_le_bytes());
        put_bytes(&mut out, self.address.to_string().as_bytes());
        put_bytes(&mut out, self.host.as_bytes());
        out.extend(self.pid.to_le_bytes());
        out.extend(self.pid_namespace.to_le_bytes());
        out.extend(self.heartbeat.to_le_bytes());
        out
    }

    /// Reads one; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let member = Self {
            rank: fields.u32()?,
            size: fields.u32()?,
            incarnation: fields.u64()?,
            address: fields.text()?.parse().ok()?,
            host: fields.text()?,
            pid: fields.u32()?,
            pid_namespace: fields.u64()?,
            heartbeat: fields.u32()?,
        };
        fields.end()?;
        Some(member)
    }

    /// For messages: `process 17 at 127.0.0.1:4711`.
    pub(crate) fn text(&self) -> String {
        format!("process {} at {}", self.pid, self.address)
    }
}

/// The running kernel, the network namespace (abstract sockets belong to it) and the user: who
/// shares all three can pass memory.
pub(crate) fn host_identity() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let uid = fs::metadata("/proc/self").map_or(0, |about| about.uid());
    if boot.trim().is_empty() {
        // Nothing to go by: a host of its own, which is slower and never wrong.
        return format!("process {} {}", process::id(), rand_word());
    }
    format!("{} net {} uid {uid}", boot.trim(), inode("/proc/self/ns/net"))
}

/// Which process ids mean the same: of one namespace of one running kernel.
pub(crate) fn pid_namespace() -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| rand_word().to_string());
    // FNV-1a: the initial namespace has the same number on every machine.
    boot.bytes().fold(0xcbf2_9ce4_8422_2325 ^ inode("/proc/self/ns/pid"), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn inode(path: &str) -> u64 {
    fs::metadata(path).map_or(0, |about| about.ino())
}

/// A random word; from the clock where the system gives none.
pub(crate) fn rand_word() -> u64 {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        return now.as_nanos() as u64 ^ u64::from(process::id()) << 40;
    }
    u64::from_le_bytes(bytes)
}

/// An address of this machine on the way to another: nothing is sent.
pub(crate) fn towards(target: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back() {
        let member = Member {
            rank: 3,
            size: 4,
            incarnation: 9,
            address: "10.0.0.1:77".parse().unwrap(),
            host: host_identity(),
            pid: 5,
            pid_namespace: pid_namespace(),
            heartbeat: 500,
        };
        let bytes = member.encode();
        assert_eq!(Member::decode(&bytes), Some(member.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(Member::decode(&bytes[..cut]), None);
        }
        assert!(member.pid_namespace != 0 && member.host == host_identity(), "{member:?}");
    }

    #[test]
    fn the_way_to_a_loopback_address_begins_there() {
        assert_eq!(towards("127.0.0.1:9".parse().unwrap()), Some([127, 0, 0, 1].into()));
    }
}
