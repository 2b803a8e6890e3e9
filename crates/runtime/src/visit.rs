//! A visit to a running instance: a command in it, whose client writes and reads over HTTP, and
//! whose bytes come and go on a connection that the agent opens for it.
//!
//! - A client holds its visit by asking: once its connection ends while it waits, or it has not
//!   asked for `CLIENT_TIMEOUT`, the visit is over, and its command is killed.
//! - Both directions are bounded. The agent is read no further while `MAX_BYTES` of output wait;
//!   a client sends input again for which there was no room.
//! - Bytes stay with the driver; the machine counts them.

use std::time::Duration;

use shoal_link::VisitEnd;

use crate::{ConnId, Mono, Now};

/// How long a visit lives without its client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an agent may take to connect for it.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a request for output, or one with input, is held.
const HOLD: Duration = Duration::from_secs(3);
/// Bytes that may wait in each direction before no more are taken.
const MAX_BYTES: usize = 1 << 20;

/// Number of a client's request, unique in a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The client waits for the agent; answered by [`Io::Started`].
    Awaited(RequestId),
    /// The client asks for output; answered by [`Io::Deliver`].
    OutputWanted(RequestId),
    /// The client has this number of bytes of input; answered by [`Io::Take`] or [`Io::Repeat`].
    InputOffered(RequestId, usize),
    /// The client's connection ended before this request was answered.
    Abandoned(RequestId),
    /// The client leaves.
    Left,
    /// The attempt's agent has connected for the visit.
    Arrived(ConnId),
    /// This number of bytes of output has arrived; the driver holds them.
    OutputArrived(usize),
    /// This number of bytes of input has been sent to the agent.
    InputSent(usize),
    /// The agent reports how the command ended, or its connection was lost.
    Ended(VisitEnd),
    /// [`Visit::deadline`] has passed.
    Timeout,
}

/// What the driver does.
#[derive(Debug, PartialEq, Eq)]
pub enum Io {
    /// Tell the client whether the agent is there.
    Started(RequestId, bool),
    /// Answer with all output that is held, and with the end if there is one.
    Deliver(RequestId, Option<VisitEnd>),
    /// Accept the input of this request, and send it to the agent after what was accepted before.
    Take(RequestId),
    /// There is no room for the input of this request: the client is to send it again.
    Repeat(RequestId),
    /// Serve this connection: it is the visit's.
    Serve(ConnId),
    /// Another connection is the visit's, or the visit is over.
    Refuse(ConnId),
    /// Read on until output arrives.
    Read,
    /// End the agent's connection.
    Close,
}

/// A request that is held.
#[derive(Debug)]
struct Held<T> {
    request: RequestId,
    until: Mono,
    of: T,
}

/// One visit, from the client's first request on.
#[derive(Debug)]
pub struct Visit {
    conn: Option<ConnId>,
    arrival: Option<Held<()>>,
    read: Option<Held<()>>,
    /// With their number of bytes, in order.
    offers: Vec<Held<usize>>,
    output_bytes: usize,
    input_bytes: usize,
    /// The agent's connection is not read: too much output waits.
    is_paused: bool,
    end: Option<VisitEnd>,
    /// When the client last asked for output, or was answered.
    asked: Mono,
}

impl Visit {
    /// A visit whose client has just asked for it.
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self {
            conn: None,
            arrival: None,
            read: None,
            offers: Vec::new(),
            output_bytes: 0,
            input_bytes: 0,
            is_paused: false,
            end: None,
            asked: now.mono,
        }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        let now = now.mono;
        match event {
            Event::Awaited(request) => match self.conn.is_some() || self.end.is_some() {
                true => vec![Io::Started(request, self.conn.is_some())],
                false => {
                    let before = self.arrival.replace(Held { request, until: now + ARRIVAL_TIMEOUT, of: () });
                    before.map(|held| Io::Started(held.request, false)).into_iter().collect()
                }
            },
            Event::OutputWanted(request) => self.on_output_wanted(request, now),
            Event::InputOffered(request, bytes) => {
                self.offers.push(Held { request, until: now + HOLD, of: bytes });
                self.take()
            }
            Event::Abandoned(request) => {
                self.offers.retain(|held| held.request != request);
                let arrival = self.arrival.take_if(|held| held.request == request);
                let read = self.read.take_if(|held| held.request == request);
                if arrival.or(read).is_some() { self.on_left(now) } else { Vec::new() }
            }
            Event::Left => self.on_left(now),
            Event::Arrived(conn) if self.conn.is_some() || self.end.is_some() => vec![Io::Refuse(conn)],
            Event::Arrived(conn) => {
                self.conn = Some(conn);
                let started = self.arrival.take().map(|held| Io::Started(held.request, true));
                [Io::Serve(conn), Io::Read].into_iter().chain(started).collect()
            }
            Event::OutputArrived(bytes) => {
                self.output_bytes += bytes;
                self.is_paused = true;
                self.deliver(now)
            }
            Event::InputSent(bytes) => {
                self.input_bytes = self.input_bytes.saturating_sub(bytes);
                self.take()
            }
            Event::Ended(end) => self.on_ended(end, now),
            Event::Timeout => self.on_timeout(now),
        }
    }

    /// When [`Event::Timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let held = self.arrival.iter().chain(&self.read).map(|held| held.until);
        let offers = self.offers.iter().map(|held| held.until);
        // One that is over is read to its end, or forgotten by its driver.
        let client = self.end.is_none().then(|| self.asked + CLIENT_TIMEOUT);
        held.chain(offers).chain(client).min()
    }

    /// Whether the client has been silent for longer than a visit lives without it.
    #[must_use]
    pub fn is_abandoned(&self, now: Now) -> bool {
        self.read.is_none() && now.mono.since(self.asked) >= CLIENT_TIMEOUT
    }

    fn on_output_wanted(&mut self, request: RequestId, now: Mono) -> Vec<Io> {
        self.asked = now;
        let before = self.read.replace(Held { request, until: now + HOLD, of: () });
        let superseded = before.map(|held| Io::Deliver(held.request, None));
        superseded.into_iter().chain(self.deliver(now)).collect()
    }

    fn on_left(&mut self, now: Mono) -> Vec<Io> {
        self.on_ended(VisitEnd::Broken { reason: "its client has left".to_owned() }, now)
    }

    /// The first end counts: closing the connection makes another one.
    fn on_ended(&mut self, end: VisitEnd, now: Mono) -> Vec<Io> {
        if self.end.is_some() {
            return Vec::new();
        }
        self.end = Some(end);
        let started = self.arrival.take().map(|held| Io::Started(held.request, self.conn.is_some()));
        let closed = self.conn.map(|_| Io::Close);
        started.into_iter().chain(closed).chain(self.deliver(now)).chain(self.take()).collect()
    }

    fn on_timeout(&mut self, now: Mono) -> Vec<Io> {
        let mut io = Vec::new();
        if self.arrival.as_ref().is_some_and(|held| held.until <= now) {
            io.extend(self.on_ended(VisitEnd::Broken { reason: "its agent has not connected".to_owned() }, now));
        }
        if let Some(held) = self.read.take_if(|held| held.until <= now) {
            self.asked = now;
            io.push(Io::Deliver(held.request, None));
        }
        io.extend(self.offers.extract_if(.., |held| held.until <= now).map(|held| Io::Repeat(held.request)));
        if now.since(self.asked) >= CLIENT_TIMEOUT {
            io.extend(self.on_ended(VisitEnd::Broken { reason: "nobody has asked for its output".to_owned() }, now));
        }
        io
    }

    /// Answers the request that waits, if there is output or the end; reads on if there is room.
    fn deliver(&mut self, now: Mono) -> Vec<Io> {
        let mut io = Vec::new();
        if (self.output_bytes > 0 || self.end.is_some())
            && let Some(held) = self.read.take()
        {
            self.asked = now;
            self.output_bytes = 0;
            io.push(Io::Deliver(held.request, self.end.clone()));
        }
        if self.is_paused && self.end.is_none() && self.output_bytes < MAX_BYTES {
            self.is_paused = false;
            io.push(Io::Read);
        }
        io
    }

    /// Accepts input while there is room. Once the visit is over it is accepted, too: its reader
    /// learns of the end.
    fn take(&mut self) -> Vec<Io> {
        let mut io = Vec::new();
        while !self.offers.is_empty() && (self.input_bytes < MAX_BYTES || self.end.is_some()) {
            let held = self.offers.remove(0);
            self.input_bytes += held.of;
            io.push(Io::Take(held.request));
        }
        io
    }
}

#[cfg(test)]
mod tests;
