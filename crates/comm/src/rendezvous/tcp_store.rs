//! The store over TCP: rank 0 serves it from a thread, the others hold one connection each.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Decoder, Fields, Frame, encode, put_bytes};
use super::handshake::{self, Hello, PROTOCOL, Purpose, Secret};
use super::listening::Listening;
use super::owner;
use super::store::{LocalStore, Store};
use crate::{Error, guard::UNLIMITED};

const PUT: u8 = 1;
const WAIT: u8 = 2;
const VALUE: u8 = 3;
const NOTHING: u8 = 4;

/// How long a handshake may take: a peer that runs answers in milliseconds.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// A question to the store's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Set a key that is not set yet.
    Put {
        /// Which.
        key: String,
        /// To what.
        value: Vec<u8>,
    },
    /// Its value, as soon as there is one.
    Wait {
        /// Which.
        key: String,
        /// At most so long.
        millis: u32,
    },
}

impl Question {
    /// As a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Put { key, value } => {
                put_bytes(&mut out, key.as_bytes());
                put_bytes(&mut out, value);
                encode(PUT, &out)
            }
            Self::Wait { key, millis } => {
                put_bytes(&mut out, key.as_bytes());
                out.extend(millis.to_le_bytes());
                encode(WAIT, &out)
            }
        }
    }

    /// What a frame asks; `None` if it is none that we know.
    pub(crate) fn decode(frame: &Frame) -> Option<Self> {
        let mut fields = Fields(&frame.payload);
        let question = match frame.kind {
            PUT => Self::Put { key: fields.text()?, value: fields.bytes()?.to_vec() },
            WAIT => Self::Wait { key: fields.text()?, millis: fields.u32()? },
            _ => return None,
        };
        fields.end()?;
        Some(question)
    }
}

/// The serving side. Dropping it closes the port; connections end with their clients.
#[derive(Debug)]
pub struct StoreServer {
    port: Listening,
    map: LocalStore,
}

impl StoreServer {
    /// Listens on `host:port`; port 0 lets the kernel choose ([`address`](Self::address) tells).
    ///
    /// # Errors
    /// [`Error::Rendezvous`] or [`Error::Io`]: the name has no address here, or the port is
    /// taken or not allowed.
    pub fn serve(host: &str, port: u16, secret: &Secret) -> Result<Self, Error> {
        let listener = listen(host, port)?;
        let (map, closing) = (LocalStore::default(), Arc::new(AtomicBool::new(false)));
        let port = Listening::start(listener, "comm-store", &closing, {
            let (map, closing, secret) = (map.clone(), Arc::clone(&closing), secret.clone());
            move |stream, from| {
                let (map, secret, closing) = (map.clone(), secret.clone(), Arc::clone(&closing));
                let served = thread::Builder::new().name("comm-store-client".to_owned()).spawn(move || {
                    // Who fails here is told so by the handshake; who goes away needs nothing more.
                    drop(serve_one(stream, from, &map, &secret, &closing));
                });
                drop(served);
            }
        })
        .map_err(|error| Error::io("start the store's thread", error))?;
        Ok(Self { port, map })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The same store without a connection, for the rank that serves it.
    pub fn local(&self) -> LocalStore {
        self.map.clone()
    }
}

fn listen(host: &str, port: u16) -> Result<TcpListener, Error> {
    let addresses = resolve(host, port)?;
    TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::rendezvous(format!(
            "rank 0 cannot listen on {host}:{port}: the address is in use, by another group or program, or by a second \
             process with \
             RANK 0. Set MASTER_PORT to a free port on all ranks, or end what holds this one (`ss -ltnp` names it)"
        )),
        io::ErrorKind::AddrNotAvailable => Error::rendezvous(format!(
            "rank 0 cannot listen on {host}:{port}: this machine has no such address. MASTER_ADDR must be an address \
             of the machine on \
             which rank 0 runs"
        )),
        io::ErrorKind::PermissionDenied => Error::rendezvous(format!(
            "rank 0 may not listen on {host}:{port}: ports below 1024 are for the superuser. Set MASTER_PORT to one \
             above"
        )),
        _ => Error::io(format!("listen on {host}:{port}"), error),
    })
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let found = (host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    match found {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(Error::rendezvous(format!("MASTER_ADDR {host:?} has no address: check its spelling"))),
        Err(error) => Err(Error::rendezvous(format!(
            "MASTER_ADDR {host:?} cannot be resolved ({error}): check its spelling and the name service"
        ))),
    }
}

fn serve_one(
    mut stream: TcpStream,
    from: SocketAddr,
    map: &LocalStore,
    secret: &Secret,
    closing: &AtomicBool,
) -> Result<(), Error> {
    let lost = |error| Error::io(format!("serve the store to {from}"), error);
    stream.set_nodelay(true).map_err(lost)?;
    stream.set_read_timeout(Some(HANDSHAKE)).map_err(lost)?;
    stream.set_write_timeout(Some(HANDSHAKE)).map_err(lost)?;
    let hello = handshake::accept(&mut stream, secret, &from.to_string())?;
    owner::check(&stream, secret)?;
    if hello.purpose != Purpose::Store {
        return Err(Error::rendezvous(format!("{from} wants {:?} from the store", hello.purpose)));
    }
    // A client may be silent as long as it likes; that it looks again now and then lets the thread
    // end with the server.
    stream.set_read_timeout(Some(Duration::from_millis(200))).map_err(lost)?;
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    while !closing.load(Ordering::Acquire) {
        while let Some(question) =
            decoder.next().map_err(|_| Error::rendezvous(format!("{from} sent a boundless question")))?
        {
            let answer = match Question::decode(&question) {
                Some(Question::Put { key, value }) => Some(map.set(&key, &value)),
                Some(Question::Wait { key, millis }) => {
                    map.get(&key, Duration::from_millis(u64::from(millis.min(1000))))
                }
                None => return Err(Error::rendezvous(format!("{from} asked what the store does not know"))),
            };
            let frame = answer.map_or_else(|| encode(NOTHING, &[]), |value| encode(VALUE, &value));
            stream.write_all(&frame).map_err(lost)?;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(lost(error)),
        }
    }
    Ok(())
}

/// The asking side.
#[derive(Debug)]
pub(crate) struct TcpStore {
    place: String,
    connection: Mutex<(TcpStream, Decoder)>,
    local: SocketAddr,
}

impl TcpStore {
    /// Connects to the rank that serves, which may come later: tries until `timeout`.
    pub(crate) fn connect(host: &str, port: u16, secret: &Secret, rank: u32, timeout: Duration) -> Result<Self, Error> {
        let place = format!("{host}:{port}");
        let end = Instant::now() + timeout;
        let mut pause = Duration::from_millis(5);
        let mut said = Instant::now();
        loop {
            let tried = resolve(host, port).and_then(|addresses| {
                let left = end.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(100), HANDSHAKE);
                first_of(&addresses, left).map_err(|error| Error::io(format!("connect to {place}"), error))
            });
            let error = match tried {
                Ok(stream) => return Self::greet(stream, place, secret, rank),
                Err(error) => error,
            };
            if Instant::now() >= end {
                return Err(Error::rendezvous(format!(
                    "rank {rank} found nobody at {place} in {:.0} s ({error}): rank 0 has not come. Is it running, are \
                     MASTER_ADDR and \
                     MASTER_PORT the same on all ranks, and does no firewall stand between?",
                    timeout.as_secs_f64()
                )));
            }
            if said.elapsed() >= super::STALL {
                said = Instant::now();
                eprintln!("shoal-comm: rank {rank} waits for rank 0 at {place} ({error})");
            }
            thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn greet(mut stream: TcpStream, place: String, secret: &Secret, rank: u32) -> Result<Self, Error> {
        let lost = |error| Error::io(format!("talk to the store at {place}"), error);
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_read_timeout(Some(HANDSHAKE)).map_err(lost)?;
        stream.set_write_timeout(Some(HANDSHAKE)).map_err(lost)?;
        let hello =
            Hello { version: PROTOCOL, purpose: Purpose::Store, rank, group: 0, epoch: 0, nonce: handshake::nonce()? };
        handshake::connect(&mut stream, secret, &hello, &format!("rank 0 at {place}"))?;
        owner::check(&stream, secret)?;
        let local = stream.local_addr().map_err(lost)?;
        Ok(Self { place, connection: Mutex::new((stream, Decoder::default())), local })
    }

    /// Our own address on the way to the store: where other ranks reach us, too.
    pub(crate) fn local_address(&self) -> IpAddr {
        self.local.ip()
    }

    fn ask(&self, question: &Question) -> Result<Option<Vec<u8>>, Error> {
        let lost = |error: io::Error| {
            Error::rendezvous(format!(
                "the connection to rank 0 at {} is lost ({error}): rank 0 has ended, or the network is down",
                self.place
            ))
        };
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, decoder) = &mut *connection;
        stream.write_all(&question.encode()).map_err(lost)?;
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = decoder.next().map_err(|_| lost(io::Error::other("it sent a boundless answer")))? {
                return match frame.kind {
                    VALUE => Ok(Some(frame.payload)),
                    NOTHING => Ok(None),
                    kind => Err(lost(io::Error::other(format!("it sent an answer of unknown kind {kind}")))),
                };
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }
}

/// Connects to the first address that takes it.
pub(crate) fn first_of(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(address, timeout) {
            // A port of this machine's own choosing may meet itself, where nobody listens yet.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Store for TcpStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        let answer = self.ask(&Question::Put { key: key.to_owned(), value: value.to_vec() })?;
        Ok(answer.unwrap_or_default())
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let end = Instant::now() + timeout.min(UNLIMITED);
        loop {
            // In short pieces: the server answers each within a second, so that a silent one is
            // noticed.
            let left = end.saturating_duration_since(Instant::now());
            let millis = u32::try_from(left.as_millis().min(500)).expect("at most 500");
            let answer = self.ask(&Question::Wait { key: key.to_owned(), millis })?;
            if answer.is_some() || Instant::now() >= end {
                return Ok(answer);
            }
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::store;
    use super::*;

    #[test]
    fn the_tcp_store_conforms() {
        let secret = Secret::new("s3cret");
        let server = StoreServer::serve("127.0.0.1", 0, &secret).unwrap();
        let port = server.address().port();
        let store = TcpStore::connect("127.0.0.1", port, &secret, 1, Duration::from_secs(10)).unwrap();
        let other = TcpStore::connect("127.0.0.1", port, &secret, 2, Duration::from_secs(10)).unwrap();
        assert_eq!(store.put("k", b"v").unwrap(), b"v");
        assert_eq!(other.put("k", b"w").unwrap(), b"v");
        assert_eq!(server.local().wait("k", Duration::ZERO).unwrap().unwrap(), b"v");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| other.wait("long", Duration::from_secs(30)).unwrap());
            store.put("long", &vec![1; 60_000]).unwrap();
            assert_eq!(waiter.join().unwrap().unwrap().len(), 60_000);
        });
        store::tests::conforms(&TcpStore::connect("127.0.0.1", port, &secret, 3, Duration::from_secs(10)).unwrap());
        drop(server);
        let error = store.put("k", b"v").unwrap_err().to_string();
        assert!(error.contains("rank 0") && error.contains("lost"), "{error}");
    }

    #[test]
    fn strangers_and_mistakes_are_told_what_to_do() {
        let server = StoreServer::serve("127.0.0.1", 0, &Secret::new("s3cret")).unwrap();
        let port = server.address().port();
        let error =
            TcpStore::connect("127.0.0.1", port, &Secret::new("wrong"), 1, Duration::from_secs(10)).unwrap_err();
        assert!(matches!(error, Error::Secret { .. }), "{error}");
        let error = StoreServer::serve("127.0.0.1", port, &Secret::new("s3cret")).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("MASTER_PORT"), "{error}");
        let error = StoreServer::serve("192.0.2.1", port, &Secret::new("s3cret")).unwrap_err().to_string();
        assert!(error.contains("no such address") && error.contains("MASTER_ADDR"), "{error}");
        drop(server);
        let error = TcpStore::connect("127.0.0.1", port, &Secret::new("s3cret"), 1, Duration::from_millis(50))
            .unwrap_err()
            .to_string();
        assert!(error.contains("rank 0 has not come"), "{error}");
    }

    #[test]
    fn a_program_of_another_kind_is_no_rank() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[b'H'; 200]).unwrap();
            let mut rest = Vec::new();
            drop(stream.read_to_end(&mut rest));
        });
        let error = TcpStore::connect("127.0.0.1", port, &Secret::new("s"), 1, Duration::from_secs(10))
            .unwrap_err()
            .to_string();
        assert!(error.contains("another program has that address"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn questions_come_back() {
        for question in
            [Question::Put { key: "a".into(), value: vec![1, 2] }, Question::Wait { key: "b/c".into(), millis: 9 }]
        {
            let mut decoder = Decoder::default();
            decoder.push(&question.encode());
            assert_eq!(Question::decode(&decoder.next().unwrap().unwrap()), Some(question));
        }
        assert_eq!(Question::decode(&Frame { kind: WAIT, payload: vec![1, 0, b'k'] }), None);
    }
}
