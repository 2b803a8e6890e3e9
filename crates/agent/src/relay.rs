//! The server's port for clients, where the server is on another machine: a port of this machine's loopback, each of
//! whose connections is carried over the agent's own way to the server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use shoal_link::{Decoder, Frame, ToAgent, ToServer, encode};

use crate::Options;
use crate::connection::{hello, receive};
use crate::forward::Slots;

/// Connections at a time; more wait in the listener's queue.
const MAX_CONNECTIONS: usize = 64;
const STACK_BYTES: usize = 96 << 10;
/// A server that does not answer meanwhile counts as unreachable.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Accepts until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    /// Listens.
    ///
    /// # Errors
    /// There is no port, or no thread.
    pub(crate) fn start(options: &Arc<Options>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Self { address: listener.local_addr()?, is_over: Arc::default() };
        let (options, is_over) = (options.clone(), relay.is_over.clone());
        let accept = move || {
            let slots = Slots::new(MAX_CONNECTIONS);
            loop {
                slots.wait();
                let accepted = listener.accept();
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let Ok((inside, _)) = accepted else {
                    // Out of descriptors, mostly.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let (slot, options) = (slots.take(), options.clone());
                // Where a thread or the server cannot be had the connection closes, which AWS clients take as a reason
                // to try again.
                let _ = thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES).spawn(move || {
                    let _slot = slot;
                    connect(&options).and_then(|server| carry(inside, server))
                });
            }
        };
        thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES).spawn(accept)?;
        Ok(relay)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread, unless it has ended.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(options: &Options) -> io::Result<UnixStream> {
    let mut stream = options.server.connect()?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&encode(&Frame::Message(ToServer::Forward(hello(options)))).map_err(io::Error::other)?)?;
    match receive(&mut stream, &mut Decoder::default())? {
        ToAgent::Ready => {}
        _ => return Err(io::Error::other("the server carries nothing for this attempt")),
    }
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Both ways until both have ended; the end of one way is passed on, as HTTP clients rely on.
fn carry(inside: TcpStream, server: UnixStream) -> io::Result<()> {
    inside.set_nodelay(true)?;
    let (from, to) = (server.try_clone()?, inside.try_clone()?);
    let (end_of_server, end_of_inside) = (server.try_clone()?, inside.try_clone()?);
    let back = move || copy(from, to, |how| drop(end_of_inside.shutdown(how)));
    let back = thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES).spawn(back)?;
    copy(inside, server, |how| drop(end_of_server.shutdown(how)));
    // It only ends early by panicking, and then its streams are closed all the same.
    let _ = back.join();
    Ok(())
}

fn copy(mut from: impl Read, mut to: impl Write, end: impl Fn(Shutdown)) {
    let is_complete = io::copy(&mut from, &mut to).is_ok();
    end(if is_complete { Shutdown::Write } else { Shutdown::Both });
}
