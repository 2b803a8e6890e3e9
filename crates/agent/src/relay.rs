//! The server's port for clients, where the server is on another machine: a port of this machine's
//! loopback, each of whose connections is carried over the agent's own way to the server.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shoal_link::{Decoder, Frame, ToAgent, ToServer, encode};

use crate::Options;
use crate::connection::{hello, receive};
use crate::forward;

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
        let options = options.clone();
        forward::serve(listener, relay.is_over.clone(), move || connect(&options))?;
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
