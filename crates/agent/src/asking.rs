//! A connection on which one side asks and waits for each answer. Gigabytes of objects come this
//! way: the thread that waits decrypts them itself, and a chunk is read to where it stays.

use std::borrow::Cow;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::net::sockopt::{self, Timeout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shoal_link::{FRAME_HEADER_BYTES, Frame, FrameHeader, encode};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// rustls asks a socket for 4 KiB at a time.
const READ_BYTES: usize = 128 << 10;

/// The connection, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Asking {
    stream: BufReader<Stream>,
    /// The same socket.
    socket: Arc<OwnedFd>,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Socket(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, Buffered>>),
}

/// A socket that is read in large pieces.
#[derive(Debug)]
pub(crate) struct Buffered(BufReader<TcpStream>);

impl Stream {
    /// After the handshake.
    pub(crate) fn tls(session: ClientConnection, socket: TcpStream) -> Self {
        Self::Tls(Box::new(StreamOwned::new(session, Buffered(BufReader::with_capacity(READ_BYTES, socket)))))
    }
}

/// Ends a connection from elsewhere: who waits for it gets an error.
#[derive(Debug)]
pub(crate) struct Handle(Weak<OwnedFd>);

impl Handle {
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn end(&self) {
        if let Some(socket) = self.0.upgrade() {
            shut_down(&socket);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        shut_down(&self.socket);
    }
}

fn shut_down(socket: &OwnedFd) {
    // One that has ended already needs nothing more.
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

impl Asking {
    /// Reads and writes that take longer than `timeout` are errors.
    pub(crate) fn new(stream: Stream, timeout: Duration) -> io::Result<Self> {
        let socket = match &stream {
            Stream::Socket(socket) => socket.as_fd(),
            Stream::Tls(tls) => tls.sock.0.get_ref().as_fd(),
        };
        let socket = Arc::new(socket.try_clone_to_owned()?);
        for of in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&socket, of, Some(timeout))?;
        }
        Ok(Self { stream: BufReader::new(stream), socket })
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.socket))
    }

    pub(crate) fn ask(&mut self, message: impl Serialize) -> io::Result<()> {
        self.stream.get_mut().write_all(&encode(&Frame::Message(message)).map_err(io::Error::other)?)
    }

    /// The next frame of the answer.
    pub(crate) fn next<M: DeserializeOwned>(&mut self) -> io::Result<Frame<M>> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let header = FrameHeader::decode(header).map_err(io::Error::other)?;
        let mut body = vec![0; header.body_bytes];
        self.stream.read_exact(&mut body)?;
        header.frame(Cow::Owned(body)).map_err(io::Error::other)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use rcgen::generate_simple_self_signed;
    use sha2::{Digest, Sha256};
    use shoal_link::{FromPeer, ToPeer};
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::{ServerConfig, ServerConnection};

    use super::*;
    use crate::server::{CONNECT_TIMEOUT, Server};

    /// A server that greets, and answers one question: by this many bytes of a chunk, and nothing
    /// more.
    fn silent(length: usize) -> Server {
        let made = generate_simple_self_signed(["shoal-agents".to_owned()]).unwrap();
        let fingerprint = hex_simd::encode_to_string(Sha256::digest(made.cert.der()), hex_simd::AsciiCase::Lower);
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), socket);
            let mut asked = [0; FRAME_HEADER_BYTES];
            tls.read_exact(&mut asked).unwrap();
            let frame = encode(&Frame::<ToPeer>::Chunk(vec![7; 3 << 20])).unwrap();
            tls.write_all(&frame[..length]).unwrap();
            tls.flush().unwrap();
            // Until the other side ends it.
            while tls.read(&mut asked).is_ok_and(|count| count > 0) {}
        });
        Server::Tls { address, fingerprint: fingerprint.parse().unwrap() }
    }

    fn asked(length: usize, timeout: Duration) -> Asking {
        let stream = silent(length).connect_to_ask(CONNECT_TIMEOUT).unwrap();
        let mut asking = Asking::new(stream, timeout).unwrap();
        asking.ask(ToPeer::Part { id: "aa".to_owned(), offset: 0, length: 1 }).unwrap();
        asking
    }

    #[test]
    fn a_chunk_comes_whole_and_what_is_cut_off_is_an_error() {
        let whole = FRAME_HEADER_BYTES + (3 << 20);
        let mut asking = asked(whole, Duration::from_secs(60));
        assert!(asking.next::<FromPeer>().unwrap() == Frame::Chunk(vec![7; 3 << 20]));
        for length in [0, 3, whole - 1] {
            let error = asked(length, Duration::from_millis(50)).next::<FromPeer>().unwrap_err();
            assert!([io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()), "{error}");
        }
    }

    #[test]
    fn who_waits_is_ended_from_elsewhere() {
        for length in [0, 1 << 20] {
            let mut asking = asked(length, Duration::from_secs(600));
            let handle = asking.handle();
            let waiting = thread::spawn(move || asking.next::<FromPeer>().map(drop));
            thread::sleep(Duration::from_millis(50));
            handle.end();
            assert!(waiting.join().unwrap().is_err());
            assert!(!handle.is_open(), "it went with the connection");
        }
    }
}
