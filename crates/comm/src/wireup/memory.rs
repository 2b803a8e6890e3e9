//! Ranks of one host hand each other their shared memory: file descriptors over Unix sockets whose
//! names are in no file system.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::Error;
use crate::guard::Watch;
use crate::node::Node;
use crate::rendezvous::{Hello, Member, PROTOCOL, Purpose, accept, connect, nonce};
use crate::transport::shm::segment::Segment;
use crate::transport::shm::segment_bytes;

/// How often a wait looks whether the others still live.
const LOOK: Duration = Duration::from_millis(5);
/// How long a peer may take to answer, once connected.
const ANSWER: Duration = Duration::from_secs(10);

/// What to look at where ranks of one host do not hand each other memory.
const ADVICE: &str = "do they all run, as the same user, in one network namespace? Different SHOAL_COMM_HOST keep \
                      ranks from sharing memory";

/// Every node's segment, this one's own among them, in the order of `nodes`; all of them are on
/// this host.
pub(super) fn exchange(
    node: &Node,
    nodes: &[usize],
    epoch: u64,
    watch: &dyn Watch,
    end: Instant,
) -> Result<Vec<Arc<Segment>>, Error> {
    let own = Arc::new(Segment::create(segment_bytes(nodes.len()))?);
    let others: Vec<_> = nodes.iter().copied().filter(|other| *other != node.me).collect();
    let listener = UnixListener::bind_addr(&name(&node.member(node.me), epoch)?)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| Error::io("listen for ranks of this host", error))?;
    thread::scope(|scope| {
        let giver = scope.spawn(|| give(node, &listener, &own, &others, epoch, watch, end));
        let segments = nodes
            .iter()
            .map(|other| {
                if *other == node.me {
                    Ok(Arc::clone(&own))
                } else {
                    take(node, *other, epoch, watch, end).map(Arc::new)
                }
            })
            .collect::<Result<Vec<_>, _>>();
        let given = giver.join().expect("giving does not panic");
        segments.and_then(|segments| given.map(|()| segments))
    })
}

/// The name of a rank's socket: nobody else has its number.
fn name(of: &Member, epoch: u64) -> Result<SocketAddr, Error> {
    SocketAddr::from_abstract_name(format!("shoal-comm-{:016x}-{epoch}", of.incarnation))
        .map_err(|error| Error::io("name a socket for ranks of this host", error))
}

fn limits(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))
}

/// Hands our segment to all others.
fn give(
    node: &Node,
    listener: &UnixListener,
    own: &Segment,
    others: &[usize],
    epoch: u64,
    watch: &dyn Watch,
    end: Instant,
) -> Result<(), Error> {
    let mut left = others.to_vec();
    while !left.is_empty() {
        match listener.accept() {
            Ok((mut stream, _)) => {
                let said = limits(&stream)
                    .ok()
                    .and_then(|()| accept(&mut stream, &node.secret, "a process of this host").ok());
                let Some(hello) = said else { continue };
                let expected = hello.purpose == Purpose::Memory && hello.group == node.group && hello.epoch == epoch;
                let Some(place) = left.iter().position(|other| expected && *other == hello.rank as usize) else {
                    continue;
                };
                if send_descriptor(&stream, own).is_ok() {
                    left.swap_remove(place);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                node.check(Some(watch.alarm()), epoch)?;
                left.iter().try_for_each(|other| node.still_there(*other, epoch))?;
                if Instant::now() >= end {
                    return Err(Error::rendezvous(format!(
                        "ranks {left:?} of this host did not ask rank {} for its memory: {ADVICE}",
                        node.me
                    )));
                }
                thread::sleep(LOOK);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("take a connection of a rank of this host", error)),
        }
    }
    Ok(())
}

/// Takes another rank's segment.
fn take(node: &Node, other: usize, epoch: u64, watch: &dyn Watch, end: Instant) -> Result<Segment, Error> {
    let address = name(&node.member(other), epoch)?;
    let rank = u32::try_from(node.me).expect("at most 1024 ranks");
    loop {
        let tried = UnixStream::connect_addr(&address).and_then(|stream| limits(&stream).map(|()| stream));
        let error = match tried {
            Ok(mut stream) => {
                let hello = Hello {
                    version: PROTOCOL,
                    purpose: Purpose::Memory,
                    rank,
                    group: node.group,
                    epoch,
                    nonce: nonce()?,
                };
                let taken = connect(&mut stream, &node.secret, &hello, &format!("rank {other}")).and_then(|()| {
                    receive_descriptor(&stream)
                        .map_err(|error| Error::io(format!("take the memory of rank {other}"), error))
                });
                match taken {
                    Ok(file) => return Segment::map(file),
                    Err(error @ (Error::Secret { .. } | Error::Version { .. })) => return Err(error),
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        node.check(Some(watch.alarm()), epoch)?;
        node.still_there(other, epoch)?;
        if Instant::now() >= end {
            return Err(Error::rendezvous(format!(
                "rank {} could not get the memory of rank {other} on this host: {error}. {ADVICE}",
                node.me
            )));
        }
        thread::sleep(LOOK);
    }
}

fn send_descriptor(stream: &UnixStream, segment: &Segment) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let file = [segment.file()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&file)), "the buffer is made for one descriptor");
    sendmsg(stream.as_fd(), &[IoSlice::new(b"m")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let message = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    found.filter(|_| message.bytes == 1).ok_or_else(|| ErrorKind::UnexpectedEof.into())
}
