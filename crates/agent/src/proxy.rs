//! The way from an instance to hosts outside of its job: an HTTP proxy in the agent's own network.
//! The program's connections to its own loopback are accepted here, outside of its namespaces, so
//! it can neither change the rules nor go around them.
//!
//! Requests are CONNECT, which carries any TCP, and plain HTTP with a whole URL. A destination's
//! name is resolved here, and only where the rules name it; what is connected to is the address
//! that was checked.

mod head;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use shoal_link::{Denied, Destination, Egress, EgressPolicy, ReportBody};

use crate::forward::{Slots, carry};
use crate::outbox::Outbox;
use crate::own_log::say;
use head::Head;

/// Connections at a time; further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 256;
/// The C library's resolver needs more than copying does.
const STACK_BYTES: usize = 512 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Different refusals that are noted in the job's log.
const MAX_NOTES: usize = 20;

/// What all connections of an instance share.
struct Proxy {
    policy: EgressPolicy,
    outbox: Arc<Outbox>,
    noted: Mutex<BTreeSet<String>>,
}

/// Why a request is not carried.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0} {1}")]
    Denied(Destination, Denied),
    #[error("{0} cannot be resolved: {1}")]
    Unresolved(Destination, io::Error),
    #[error("{0} cannot be reached: {1}")]
    Unreachable(Destination, io::Error),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Self::Denied(..) => 403,
            Self::Unresolved(..) => 502,
            Self::Unreachable(_, error) if error.kind() == io::ErrorKind::TimedOut => 504,
            Self::Unreachable(..) => 502,
        }
    }
}

/// Accepts for as long as this process lives, in a thread of its own. `server`: the address of the
/// server, which is not reached this way.
///
/// # Errors
/// An entry of the list is wrong, or there is no thread.
pub(crate) fn start(
    listener: TcpListener,
    egress: &Egress,
    server: Option<&str>,
    outbox: Arc<Outbox>,
) -> io::Result<()> {
    let server_port = server.and_then(|address| address.rsplit_once(':')?.1.parse().ok());
    let policy = EgressPolicy::new(egress, server_port).map_err(io::Error::other)?;
    let proxy = Arc::new(Proxy { policy, outbox, noted: Mutex::default() });
    let accept = move || {
        let slots = Slots::new(MAX_CONNECTIONS);
        loop {
            slots.wait();
            let Ok((inside, _)) = listener.accept() else {
                // Out of descriptors, mostly; or the listener is closed, and then this costs
                // nothing worth mentioning.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let (slot, proxy) = (slots.take(), proxy.clone());
            // Where a thread cannot be had the connection closes.
            let _ = thread::Builder::new().name("proxy".into()).stack_size(STACK_BYTES).spawn(move || {
                let _slot = slot;
                // The client has closed its connection: nobody is left to be answered.
                let _ = proxy.serve(inside);
            });
        }
    };
    thread::Builder::new().name("proxy".into()).stack_size(STACK_BYTES).spawn(accept).map(drop)
}

impl Proxy {
    fn serve(&self, mut inside: TcpStream) -> io::Result<()> {
        let head = match Head::read(&mut inside)? {
            Ok(head) => head,
            Err(error) => return answer(&mut inside, error.status(), &error.to_string()),
        };
        match self.connect(&head.destination) {
            Ok(mut outside) => {
                if head.is_connect {
                    inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
                }
                outside.write_all(&head.forwarded)?;
                carry(inside, outside)
            }
            Err(refusal) => {
                self.note(&refusal);
                answer(&mut inside, refusal.status(), &refusal.to_string())
            }
        }
    }

    fn connect(&self, destination: &Destination) -> Result<TcpStream, Refusal> {
        let denied = |denied| Refusal::Denied(destination.clone(), denied);
        self.policy.check_name(destination).map_err(denied)?;
        let addresses: Vec<IpAddr> = match (destination.address(), destination.name()) {
            (Some(address), _) => vec![address],
            (None, name) => (name.unwrap_or_default(), destination.port)
                .to_socket_addrs()
                .map_err(|error| Refusal::Unresolved(destination.clone(), error))?
                .map(|it| it.ip())
                .collect(),
        };
        let mut failure = Refusal::Unresolved(destination.clone(), io::Error::other("the name has no address"));
        for address in addresses {
            if let Err(why) = self.policy.check_address(destination, address, is_own(address)) {
                failure = denied(why);
                continue;
            }
            match TcpStream::connect_timeout(&SocketAddr::new(address, destination.port), CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Refusal::Unreachable(destination.clone(), error),
            }
        }
        Err(failure)
    }

    /// Tells the job's log, once of each.
    fn note(&self, refusal: &Refusal) {
        let text = format!("no connection to the network outside: {refusal}");
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < MAX_NOTES && noted.insert(text.clone()) {
            drop(noted);
            if self.outbox.report(ReportBody::Note { text }).is_err() {
                say("a refused connection is not noted: the outbox is closed");
            }
        }
    }
}

/// Whether the machine has this address: only then can a socket be bound to it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The sentence is the reason phrase, too: that is what most clients show.
fn answer(inside: &mut TcpStream, status: u16, sentence: &str) -> io::Result<()> {
    let reason: String =
        sentence.chars().map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' }).collect();
    let length = reason.len() + 1;
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n"
    );
    inside.write_all(format!("{head}{reason}\n").as_bytes())
}

#[cfg(test)]
mod tests;
