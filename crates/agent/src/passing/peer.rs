//! Another host of the job, asked for parts.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use shoal_link::{Decoder, Frame, FromPeer, ToPeer, encode};

use crate::Options;
use crate::connection::hello;
use crate::inputs::Part;
use crate::machine_network::Place;
use crate::server::Server;

/// A machine of the same cluster answers at once, or there is no way to it.
const CONNECT: Duration = Duration::from_secs(3);
/// One that sends nothing meanwhile is as good as gone; it answers within less.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to it.
pub(super) struct Peer {
    stream: UnixStream,
    decoder: Decoder,
}

/// What it has of a part.
pub(super) enum Given {
    Part(Vec<u8>),
    Later,
    Absent,
}

impl Peer {
    /// Connects, if the host passes parts on.
    pub(super) fn connect(options: &Options, place: &Place) -> io::Result<Self> {
        let (port, fingerprint) =
            place.passes.as_ref().ok_or_else(|| io::Error::other("it passes no parts of its inputs on"))?;
        let fingerprint = fingerprint.parse().map_err(io::Error::other)?;
        let stream =
            Server::Tls { address: format!("{}:{port}", place.address), fingerprint }.connect_within(CONNECT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut peer = Self { stream, decoder: Decoder::default() };
        peer.send(ToPeer::Hello(hello(options)))?;
        match peer.next()? {
            Frame::Message(FromPeer::Ready) => Ok(peer),
            Frame::Message(FromPeer::Refused { reason }) => Err(io::Error::other(reason)),
            _ => Err(unexpected()),
        }
    }

    /// A handle that ends it from elsewhere.
    pub(super) fn handle(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Asks for a part.
    pub(super) fn part(&mut self, part: Part<'_>) -> io::Result<Given> {
        self.send(ToPeer::Part { id: part.id.to_owned(), offset: part.offset, length: part.length })?;
        match self.next()? {
            Frame::Chunk(content) => Ok(Given::Part(content)),
            Frame::Message(FromPeer::Later) => Ok(Given::Later),
            Frame::Message(FromPeer::Absent) => Ok(Given::Absent),
            _ => Err(unexpected()),
        }
    }

    fn send(&mut self, message: ToPeer) -> io::Result<()> {
        self.stream.write_all(&encode(&Frame::Message(message)).map_err(io::Error::other)?)
    }

    fn next(&mut self) -> io::Result<Frame<FromPeer>> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(frame) = self.decoder.next().map_err(io::Error::other)? {
                return Ok(frame);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::other("it answers with something else than was asked for")
}
