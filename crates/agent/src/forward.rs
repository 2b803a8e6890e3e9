//! The server's endpoint inside the job's network: connections to the instance's own loopback are
//! carried to the server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Connections at a time; more wait in the listener's queue.
const MOST: usize = 64;
const STACK: usize = 96 << 10;
/// Where the server sees programs of jobs come from: what it counts by address, as wrong keys at
/// the console's sign-in, they have not in common with the owner, whose browser comes from
/// 127.0.0.1.
const JOBS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Accepts for as long as this process lives, in a thread of its own.
pub(crate) fn start(listener: TcpListener, server_address: String) -> io::Result<()> {
    serve(listener, Arc::default(), move || connect(&server_address))
}

/// Accepts in a thread of its own, until `is_over` is set and another connection has come; carries
/// each connection to what `connect` opens.
pub(crate) fn serve<S: Duplex>(
    listener: TcpListener,
    is_over: Arc<AtomicBool>,
    connect: impl Fn() -> io::Result<S> + Send + Sync + 'static,
) -> io::Result<()> {
    let connect = Arc::new(connect);
    let accept = move || {
        let slots = Slots::new(MOST);
        loop {
            slots.wait();
            let accepted = listener.accept();
            if is_over.load(Ordering::Acquire) {
                return;
            }
            let Ok((inside, _)) = accepted else {
                // Out of descriptors, mostly; or the listener is closed, and then this costs
                // nothing worth mentioning.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let (slot, connect) = (slots.take(), connect.clone());
            // Where a thread or the server cannot be had the connection closes, which AWS clients
            // take as a reason to try again.
            let _ = thread::Builder::new().name("forward".into()).stack_size(STACK).spawn(move || {
                let _slot = slot;
                connect().and_then(|server| carry(inside, server))
            });
        }
    };
    thread::Builder::new().name("forwarder".into()).stack_size(STACK).spawn(accept).map(drop)
}

/// A connection whose two ways end apart.
pub(crate) trait Duplex: Read + Write + Send + Sized + 'static {
    /// Another handle of the same connection.
    fn another(&self) -> io::Result<Self>;

    /// Ends one way or both.
    fn end(&self, how: Shutdown) -> io::Result<()>;

    /// No byte waits for others.
    fn send_at_once(&self) -> io::Result<()>;
}

impl Duplex for TcpStream {
    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }

    fn send_at_once(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }
}

impl Duplex for UnixStream {
    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self, how: Shutdown) -> io::Result<()> {
        self.shutdown(how)
    }

    fn send_at_once(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the server, on this machine's IPv4 loopback from [`JOBS`].
fn connect(address: &str) -> io::Result<TcpStream> {
    match address.parse() {
        Ok(SocketAddr::V4(server)) if server.ip().is_loopback() => {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // Else the port is chosen before its peer is known, and none that another connection
            // has left may be used again for a minute.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            bind(&socket, &SocketAddrV4::new(JOBS, 0))?;
            rustix::net::connect(&socket, &server)?;
            Ok(socket.into())
        }
        _ => TcpStream::connect(address),
    }
}

/// How many connections are open.
pub(crate) struct Slots {
    open: Arc<AtomicUsize>,
    most: usize,
}

/// One that is.
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// Until there may be another one.
    pub(crate) fn wait(&self) {
        while self.open.load(Ordering::Acquire) >= self.most {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn take(&self) -> Slot {
        self.open.fetch_add(1, Ordering::AcqRel);
        Slot(self.open.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Both ways until both have ended; the end of one way is passed on, as HTTP clients rely on.
pub(crate) fn carry(inside: TcpStream, server: impl Duplex) -> io::Result<()> {
    inside.send_at_once()?;
    server.send_at_once()?;
    let (from, to) = (server.another()?, inside.another()?);
    let back = thread::Builder::new().name("forward".into()).stack_size(STACK).spawn(move || copy(from, to))?;
    copy(inside, server);
    // It only ends early by panicking, and then its streams are closed all the same.
    let _ = back.join();
    Ok(())
}

fn copy(mut from: impl Duplex, mut to: impl Duplex) {
    // On Linux io::copy between sockets is splice: the bytes do not come by here.
    if io::copy(&mut from, &mut to).is_err() {
        let _ = from.end(Shutdown::Both);
    }
    let _ = to.end(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[test]
    fn many_connections_carry_much_both_ways_and_pass_on_the_end() {
        let (server, server_address) = listener();
        let (inside, address) = listener();
        start(inside, server_address).unwrap();
        thread::spawn(move || {
            for stream in server.incoming() {
                // Answers only when the request has ended: what came, twice.
                thread::spawn(move || {
                    let (mut stream, mut request) = (stream.unwrap(), Vec::new());
                    assert_eq!(stream.peer_addr().unwrap().ip(), JOBS, "not the owner's");
                    stream.read_to_end(&mut request).unwrap();
                    stream.write_all(&request).unwrap();
                    stream.write_all(&request).unwrap();
                });
            }
        });
        thread::scope(|scope| {
            for client in 0..2 * MOST {
                let address = &address;
                scope.spawn(move || {
                    let request = vec![client as u8; 300_000];
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.write_all(&request).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).unwrap();
                    assert!(answer == [request.clone(), request].concat());
                });
            }
        });
    }

    #[test]
    fn without_a_server_the_connection_closes() {
        let (gone, nobody) = listener();
        drop(gone);
        let (inside, address) = listener();
        start(inside, nobody).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let end = stream.read(&mut [0; 1]);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
