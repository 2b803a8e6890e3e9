//! The port at which a rank takes connections of other ranks: each is let in by the handshake, and
//! kept until somebody here wants it.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::handshake::{self, Hello, PROTOCOL, Purpose, Secret};
use super::listening::Listening;
use super::owner;
use super::tcp_store::{HANDSHAKE, first_of};
use crate::Error;

/// What a connection between two ranks is for: both sides name the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) purpose: Purpose,
    pub(crate) group: u64,
    pub(crate) epoch: u64,
}

/// Strangers that may be shaking hands at a time; more are turned away, so that they cannot take
/// all threads.
const MOST_STRANGERS: usize = 256;

#[derive(Default)]
struct Arrivals {
    waiting: Mutex<Vec<(Hello, TcpStream)>>,
    changed: Condvar,
    strangers: AtomicUsize,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<(Hello, TcpStream)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open port. Dropping it closes it.
pub(crate) struct Door {
    port: Listening,
    arrivals: Arc<Arrivals>,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Door at {}", self.address())
    }
}

impl Door {
    /// Listens at that address of this machine, on a port that the kernel chooses.
    pub(crate) fn open(address: IpAddr, secret: &Secret) -> Result<Self, Error> {
        let listener = TcpListener::bind((address, 0)).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrNotAvailable => Error::config(format!(
                "this machine has no address {address} to listen on: correct SHOAL_COMM_ADDRESS (`ip addr` lists those \
                 that it has)"
            )),
            _ => Error::io(format!("listen on {address} for other ranks"), error),
        })?;
        let arrivals = Arc::new(Arrivals::default());
        let port = Listening::start(listener, "comm-door", &Arc::default(), {
            let (arrivals, secret) = (Arc::clone(&arrivals), secret.clone());
            move |stream, from| receive(stream, from, &arrivals, &secret)
        })
        .map_err(|error| Error::io("start the thread that takes other ranks' connections", error))?;
        Ok(Self { port, arrivals })
    }

    /// Where other ranks connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The connection of that name from that rank, when it comes within `step`. Callers look for
    /// failures between steps.
    pub(crate) fn take(&self, name: Name, rank: u32, step: Duration) -> Option<TcpStream> {
        let end = Instant::now() + step;
        let mut waiting = self.arrivals.lock();
        loop {
            let is_it = |hello: &Hello| {
                hello.purpose == name.purpose
                    && hello.group == name.group
                    && hello.epoch == name.epoch
                    && hello.rank == rank
            };
            // The newest of several: a rank that tried again gave up the others.
            if let Some(found) = waiting.iter().rposition(|(hello, _)| is_it(hello)) {
                let (_, stream) = waiting.remove(found);
                waiting.retain(|(hello, _)| !is_it(hello));
                return Some(stream);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            waiting = self.arrivals.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The first connection of that purpose that comes until `end`, whoever makes it.
    pub(crate) fn take_any(&self, purpose: Purpose, end: Instant) -> Option<(Hello, TcpStream)> {
        let mut waiting = self.arrivals.lock();
        loop {
            if let Some(found) = waiting.iter().position(|(hello, _)| hello.purpose == purpose) {
                return Some(waiting.remove(found));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            waiting = self.arrivals.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes connections of past epochs that nobody took.
    pub(crate) fn forget_before(&self, epoch: u64) {
        self.arrivals.lock().retain(|(hello, _)| hello.epoch >= epoch);
    }
}

/// Shakes hands in a thread of its own, and keeps who may come in.
fn receive(stream: TcpStream, from: SocketAddr, arrivals: &Arc<Arrivals>, secret: &Secret) {
    if arrivals.strangers.fetch_add(1, Ordering::AcqRel) >= MOST_STRANGERS {
        arrivals.strangers.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let (shared, secret) = (Arc::clone(arrivals), secret.clone());
    let spawned = thread::Builder::new().name("comm-handshake".to_owned()).spawn(move || {
        // Who is refused is told so by the handshake.
        if let Ok((hello, stream)) = let_in(stream, from, &secret) {
            shared.lock().push((hello, stream));
            shared.changed.notify_all();
        }
        shared.strangers.fetch_sub(1, Ordering::AcqRel);
    });
    if spawned.is_err() {
        arrivals.strangers.fetch_sub(1, Ordering::AcqRel);
    }
}

fn let_in(mut stream: TcpStream, from: SocketAddr, secret: &Secret) -> Result<(Hello, TcpStream), Error> {
    prepare(&stream).map_err(|error| Error::io(format!("take a connection from {from}"), error))?;
    let hello = handshake::accept(&mut stream, secret, &from.to_string())?;
    owner::check(&stream, secret)?;
    Ok((hello, stream))
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE))?;
    stream.set_write_timeout(Some(HANDSHAKE))
}

/// Connects to another rank's door.
pub(crate) fn knock(
    to: SocketAddr,
    whom: &str,
    secret: &Secret,
    name: Name,
    rank: u32,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    let mut stream = first_of(&[to], timeout.min(HANDSHAKE))
        .map_err(|error| Error::io(format!("connect to {whom} at {to}"), error))?;
    prepare(&stream).map_err(|error| Error::io(format!("connect to {whom} at {to}"), error))?;
    let hello = Hello {
        version: PROTOCOL,
        purpose: name.purpose,
        rank,
        group: name.group,
        epoch: name.epoch,
        nonce: handshake::nonce()?,
    };
    handshake::connect(&mut stream, secret, &hello, &format!("{whom} at {to}"))?;
    owner::check(&stream, secret)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name { purpose: Purpose::Data, group: 3, epoch: 1 };

    #[test]
    fn a_connection_is_kept_until_it_is_wanted() {
        let secret = Secret::new("s");
        let door = Door::open([127, 0, 0, 1].into(), &secret).unwrap();
        let mut theirs = knock(door.address(), "rank 0", &secret, NAME, 2, Duration::from_secs(10)).unwrap();
        assert!(door.take(NAME, 1, Duration::from_millis(1)).is_none(), "another rank");
        assert!(door.take(Name { epoch: 2, ..NAME }, 2, Duration::from_millis(1)).is_none(), "another epoch");
        let mut ours = door.take(NAME, 2, Duration::from_secs(10)).expect("it came");
        std::io::Write::write_all(&mut theirs, b"x").unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut ours, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn strangers_do_not_get_in_and_do_not_block() {
        let secret = Secret::new("s");
        let door = Door::open([127, 0, 0, 1].into(), &secret).unwrap();
        let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(door.address()).unwrap()).collect();
        let error = knock(door.address(), "rank 0", &Secret::new("t"), NAME, 2, Duration::from_secs(10)).unwrap_err();
        assert!(matches!(error, Error::Secret { .. }), "{error}");
        assert!(door.take(NAME, 2, Duration::from_millis(1)).is_none());
        let _theirs = knock(door.address(), "rank 0", &secret, NAME, 2, Duration::from_secs(10)).unwrap();
        assert!(door.take(NAME, 2, Duration::from_secs(10)).is_some());
        drop(silent);
    }
}
