//! Whose process is at the other end of a connection over loopback. Where there is no secret, that
//! decides who may join.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::{fs, io};

use super::handshake::Secret;
use crate::Error;

/// Without a secret, the other end must be a process of the same user of this machine. Called when
/// the handshake is over: then the other side has taken the connection, and the system knows whose
/// it is.
pub(super) fn check(stream: &TcpStream, secret: &Secret) -> Result<(), Error> {
    if !secret.is_empty() {
        return Ok(());
    }
    let (ours, theirs) = stream
        .local_addr()
        .and_then(|ours| Ok((ours, stream.peer_addr()?)))
        .map_err(|error| Error::io("look who is at the other end of a connection", error))?;
    let secret = "set SHOAL_COMM_SECRET to the same random text on all ranks (`openssl rand -hex 16` makes one)";
    let refused = |why: String| Err(Error::Secret { problem: format!("{why}, and there is no secret: {secret}") });
    match (owner(ours, theirs), owner(theirs, ours)) {
        (Ok(Some(we)), Ok(Some(they))) if we == they => Ok(()),
        (Ok(Some(we)), Ok(Some(they))) => refused(format!(
            "the process at {theirs} belongs to another user of this machine (uid {they}, this one to {we})"
        )),
        (Ok(_), Ok(_)) => refused(format!("nobody on this machine has the other end of the connection with {theirs}")),
        (Err(error), _) | (_, Err(error)) => refused(format!("cannot tell whose process is at {theirs} ({error})")),
    }
}

/// The user who has the end `local` of the connection with `remote`, if it is on this machine. An
/// end of an IPv4 connection may be an IPv6 socket (one that a listener at `::` took): the kernel
/// has it in the other table, with mapped addresses, whatever the other end is.
fn owner(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let (local, remote) = (canonical(local), canonical(remote));
    if local.is_ipv4()
        && let Some(user) = find(&fs::read_to_string("/proc/net/tcp")?, local, remote)
    {
        return Ok(Some(user));
    }
    match fs::read_to_string("/proc/net/tcp6") {
        Ok(table) => Ok(find(&table, mapped(local), mapped(remote))),
        // A kernel without IPv6 has only the first.
        Err(error) if error.kind() == io::ErrorKind::NotFound && local.is_ipv4() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The IPv4 address that an IPv6 one maps; others as they are.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// As an IPv6 socket sees it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The user of a connection in the kernel's table (proc_net_tcp.txt in its documentation).
fn find(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let (local, remote) = (written(local), written(remote));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        (fields.next() == Some(local.as_str()) && fields.next() == Some(remote.as_str())).then_some(())?;
        // State, queues, timer and retransmissions are between.
        fields.nth(4)?.parse().ok()
    })
}

/// An address as that table has it: words in the machine's own order of bytes, in hexadecimal.
fn written(address: SocketAddr) -> String {
    let words = |bytes: &[u8]| -> String {
        bytes
            .chunks_exact(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_kernel_tells_whose_each_end_is() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (other, _) = listener.accept().unwrap();
            for stream in [&one, &other] {
                check(stream, &Secret::new("")).unwrap();
                check(stream, &Secret::new("s")).unwrap();
            }
        }
    }

    #[test]
    fn a_listener_at_every_address_takes_ipv4_too() {
        let Ok(listener) = TcpListener::bind(("::", 0)) else { return println!("skipped: needs IPv6") };
        let port = listener.local_addr().unwrap().port();
        // Some machines let such listeners take IPv6 alone.
        for host in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let Ok(one) = TcpStream::connect((host, port)) else { continue };
            let (other, _) = listener.accept().unwrap();
            for stream in [&one, &other] {
                check(stream, &Secret::new("")).unwrap_or_else(|error| panic!("{host}: {error}"));
            }
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout \
                     inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0 100 0 0 \
                     10 0\n   \
             1: 0100007F:1F90 0100007F:8235 01 00000000:00000000 00:00000000 00000000  1000        0 5678 1 0 20 4 30 \
                     10 -1\n";
        let (a, b) = ("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:33333".parse().unwrap());
        assert_eq!((find(table, a, b), find(table, b, a), find("", a, b)), (Some(1000), None, None));
        assert_eq!(written("[::1]:80".parse().unwrap()), "00000000000000000000000001000000:0050");
        assert_eq!(written(mapped(a)), "0000000000000000FFFF00000100007F:1F90");
        assert_eq!((canonical(mapped(a)), canonical("[::1]:80".parse().unwrap())), (a, "[::1]:80".parse().unwrap()));
    }
}
