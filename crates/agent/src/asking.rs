//! A connection on which one side asks and waits for each answer. Gigabytes of objects come this
//! way: the thread that waits decrypts them itself, and a chunk is read to where it stays.

use std::borrow::Cow;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use shoal_link::{FRAME_HEADER_BYTES, Frame, FrameHeader, encode};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// rustls asks a socket for 4 KiB at a time.
const READ_BYTES: usize = 128 << 10;

/// The connection.
#[derive(Debug)]
pub(crate) struct Asking(BufReader<Stream>);

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
pub(crate) struct Handle(OwnedFd);

impl Handle {
    pub(crate) fn end(&self) {
        // One that has ended already needs nothing more.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

impl Asking {
    /// Reads and writes that take longer than `timeout` are errors.
    pub(crate) fn new(stream: Stream, timeout: Duration) -> io::Result<Self> {
        let timeout = Some(timeout);
        match &stream {
            Stream::Socket(socket) => {
                socket.set_read_timeout(timeout)?;
                socket.set_write_timeout(timeout)?;
            }
            Stream::Tls(tls) => {
                tls.sock.0.get_ref().set_read_timeout(timeout)?;
                tls.sock.0.get_ref().set_write_timeout(timeout)?;
            }
        }
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn handle(&self) -> io::Result<Handle> {
        let socket = match self.0.get_ref() {
            Stream::Socket(socket) => socket.as_fd(),
            Stream::Tls(tls) => tls.sock.0.get_ref().as_fd(),
        };
        Ok(Handle(socket.try_clone_to_owned()?))
    }

    pub(crate) fn ask(&mut self, message: impl Serialize) -> io::Result<()> {
        self.0.get_mut().write_all(&encode(&Frame::Message(message)).map_err(io::Error::other)?)
    }

    /// The next frame of the answer.
    pub(crate) fn next<M: DeserializeOwned>(&mut self) -> io::Result<Frame<M>> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.0.read_exact(&mut header)?;
        let header = FrameHeader::decode(header).map_err(io::Error::other)?;
        let mut body = vec![0; header.body_bytes];
        self.0.read_exact(&mut body)?;
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
