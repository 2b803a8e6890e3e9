//! The connection to the server: kept, lost, made again until the lease is over.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use shoal_link::{Decoder, Frame, Hello, PROTOCOL, ReportBody, ToAgent, ToServer, encode};

use crate::Options;
use crate::clock;
use crate::events::Event;
use crate::node;
use crate::outbox::Outbox;
use crate::server::{Server, is_refusal};

/// How long a first welcome may take; the lease is not known before it.
const FIRST_CONTACT: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A server that answers nothing, or takes nothing, for so long is as good as gone: connect anew.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// How a connection ended.
enum End {
    Lost,
    Refused(String),
}

/// Keeps a connection until the server refuses it or stays away for longer than the lease; then
/// closes the outbox and says why.
pub(crate) fn keep(options: &Options, outbox: &Outbox, events: &Sender<Event>) {
    let mut line = Line { options, outbox, events, lease: FIRST_CONTACT, grace: Duration::ZERO, welcomed: false };
    let mut seen = Instant::now();
    let (mut pause, mut failure) = (SHORTEST_PAUSE, String::new());
    let last = loop {
        match line.hold() {
            Ok(End::Refused(reason)) => break Event::Refused { reason },
            Ok(End::Lost) => {
                seen = Instant::now();
                pause = SHORTEST_PAUSE;
            }
            Err(error) if is_refusal(&error) => break Event::Refused { reason: error.to_string() },
            Err(error) => {
                pause = (2 * pause).min(LONGEST_PAUSE);
                failure = error.to_string();
            }
        }
        if outbox.is_closed() {
            // The attempt is over, and nobody listens.
            return;
        }
        let left = line.lease.saturating_sub(seen.elapsed());
        if left.is_zero() {
            break Event::LeaseOver { reason: line.absence(&failure), grace: line.grace };
        }
        thread::sleep(pause.min(left));
    };
    outbox.close();
    // If nobody listens the agent has ended already.
    let _ = events.send(last);
}

struct Line<'a> {
    options: &'a Options,
    outbox: &'a Outbox,
    events: &'a Sender<Event>,
    lease: Duration,
    grace: Duration,
    welcomed: bool,
}

impl Line<'_> {
    /// Why the server is given up. `failure`: of the last connection.
    fn absence(&self, failure: &str) -> String {
        let seconds = self.lease.as_secs();
        match &self.options.server {
            Server::Tls { address, .. } if !self.welcomed => format!(
                "the server at {address} has not answered for {seconds} s ({failure}): set agents_address in shoal.toml to \
                 its machine's address as this node reaches it, and open the port of agents_listen in firewalls"
            ),
            _ => format!("no server for {seconds} s: the lease is over"),
        }
    }

    /// One connection, from hello to its end. An error means that it did not come to a welcome.
    fn hold(&mut self) -> io::Result<End> {
        let mut stream = self.options.server.connect()?;
        let before = clock::now_ms();
        stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
        stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
        stream.write_all(&encode(&Frame::Message(ToServer::Hello(hello(self.options)))).map_err(io::Error::other)?)?;
        let mut decoder = Decoder::default();
        let (acked, assignment, alive_ms, server_ms) = match receive(&mut stream, &mut decoder)? {
            ToAgent::Welcome { acked, assignment, alive_ms, now_ms } => (acked, assignment, alive_ms, now_ms),
            ToAgent::Refused { reason } => return Ok(End::Refused(reason)),
            _ => return Err(io::Error::other("the server does not begin with a welcome")),
        };
        stream.set_read_timeout(None)?;
        self.lease = Duration::from_secs(assignment.lease_s);
        self.grace = Duration::from_secs(assignment.grace_s.into());
        let position = self.outbox.connect(acked);
        if !self.welcomed {
            self.welcomed = true;
            let doubt = |server_ms| clock::doubt(before, clock::now_ms(), server_ms, &node::name().unwrap_or_default());
            if let Some(text) = server_ms.and_then(doubt) {
                // The outbox is closed when the attempt is over.
                let _ = self.outbox.report(ReportBody::Note { text });
            }
            // If nobody listens any more the process is about to end, and this thread with it.
            let _ = self.events.send(Event::Assigned { assignment, acked });
        }
        let incoming = stream.try_clone()?;
        let (outbox, events) = (self.outbox, self.events);
        Ok(thread::scope(|scope| {
            let listener = scope.spawn(move || {
                let end = listen(incoming, decoder, outbox, events);
                outbox.disconnect();
                end
            });
            send(&mut stream, position, outbox, alive_ms.map(Duration::from_millis));
            // Wakes the listener if it was the sending that failed; otherwise it is done already.
            let _ = stream.shutdown(Shutdown::Both);
            listener.join().unwrap_or(End::Lost)
        }))
    }
}

/// Sends what the outbox has from `position` on, until the connection breaks. Sends a sign of life
/// at the beginning, and whenever there was nothing to send for the interval `alive`.
fn send(stream: &mut UnixStream, mut position: u64, outbox: &Outbox, alive: Option<Duration>) {
    let sign = encode(&Frame::Message(ToServer::Alive)).expect("a word without members always serialises");
    if alive.is_some() && stream.write_all(&sign).is_err() {
        return;
    }
    let mut buffer = vec![0; 64 << 10];
    while let Some(count) = outbox.next(position, &mut buffer, alive.unwrap_or(SERVER_TIMEOUT)) {
        let bytes = if count > 0 {
            &buffer[..count]
        } else if alive.is_some() {
            &sign
        } else {
            &[][..]
        };
        if stream.write_all(bytes).is_err() {
            return;
        }
        position += count as u64;
    }
}

/// Takes acknowledgements and orders until the connection ends.
fn listen(mut stream: UnixStream, mut decoder: Decoder, outbox: &Outbox, events: &Sender<Event>) -> End {
    loop {
        match receive(&mut stream, &mut decoder) {
            Ok(ToAgent::Ack { seq }) => outbox.acknowledge(seq),
            Ok(ToAgent::Order(order)) => {
                if events.send(Event::Order(order)).is_err() {
                    return End::Lost;
                }
            }
            Ok(ToAgent::Network { handle }) => {
                if events.send(Event::Network { handle }).is_err() {
                    return End::Lost;
                }
            }
            Ok(ToAgent::Visit { id, visit }) => {
                if events.send(Event::Visit { id, visit }).is_err() {
                    return End::Lost;
                }
            }
            Ok(ToAgent::Refused { reason }) => return End::Refused(reason),
            // What belongs on another connection.
            Ok(_) | Err(_) => return End::Lost,
        }
    }
}

/// What every connection begins with.
pub(crate) fn hello(options: &Options) -> Hello {
    Hello {
        protocol: PROTOCOL,
        attempt: options.attempt.clone(),
        host: options.host,
        token: options.token.clone(),
        pid: std::process::id(),
        visits: true,
        sampling: true,
        profiler_rules: true,
    }
}

/// The server's next message.
pub(crate) fn receive(stream: &mut UnixStream, decoder: &mut Decoder) -> io::Result<ToAgent> {
    let mut buffer = [0; 4 << 10];
    loop {
        match decoder.next::<ToAgent>().map_err(io::Error::other)? {
            Some(Frame::Message(message)) => return Ok(message),
            Some(Frame::Part { .. } | Frame::Chunk(_)) => return Err(io::Error::other("a server sends no artifacts")),
            None => match stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
        }
    }
}
