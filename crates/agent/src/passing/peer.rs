//! Another host of the job, asked for parts.

use std::io;
use std::time::Duration;

use shoal_link::{Frame, FromPeer, ToPeer};

use crate::Options;
use crate::asking::{Asking, Handle};
use crate::connection::hello;
use crate::inputs::Part;
use crate::machine_network::Place;
use crate::server::Server;

/// A machine of the same cluster answers at once, or there is no way to it.
const CONNECT: Duration = Duration::from_secs(3);
/// One that sends nothing meanwhile is as good as gone; it answers within less.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to it.
pub(super) struct Peer(Asking);

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
        let address = format!("{}:{port}", place.address);
        let stream = Server::Tls { address, fingerprint }.connect_to_ask(CONNECT)?;
        let mut asking = Asking::new(stream, TIMEOUT)?;
        asking.ask(ToPeer::Hello(hello(options)))?;
        match asking.next()? {
            Frame::Message(FromPeer::Ready) => Ok(Self(asking)),
            Frame::Message(FromPeer::Refused { reason }) => Err(io::Error::other(reason)),
            _ => Err(unexpected()),
        }
    }

    /// Ends it from elsewhere.
    pub(super) fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Asks for a part.
    pub(super) fn part(&mut self, part: Part<'_>) -> io::Result<Given> {
        self.0.ask(ToPeer::Part { id: part.id.to_owned(), offset: part.offset, length: part.length })?;
        match self.0.next()? {
            Frame::Chunk(content) => Ok(Given::Part(content)),
            Frame::Message(FromPeer::Later) => Ok(Given::Later),
            Frame::Message(FromPeer::Absent) => Ok(Given::Absent),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::other("it answers with something else than was asked for")
}
