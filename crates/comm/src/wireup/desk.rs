//! The meeting place as those reach it that have formed a group: who came since.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::place::find;
use super::ticket::{newcomer, ticket};
use crate::Error;
use crate::node::Node;
use crate::rendezvous::{Meeting, Member, Store};
use crate::watch::Fate;

/// The desk that growing uses; it is opened once, when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Reception(Mutex<Option<Arc<Desk>>>);

impl Reception {
    pub(super) fn desk(&self, node: &Node) -> Result<Arc<Desk>, Error> {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*desk {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(Desk::open(node)?);
        *desk = Some(Arc::clone(&open));
        Ok(open)
    }
}

/// Where replacements come to: the meeting place, or the same made anew where the rank that served
/// it is lost.
pub(super) struct Desk {
    pub(super) store: Box<dyn Store>,
    /// The newcomers that are taken in.
    pub(super) queue: Queue,
    /// Replacements that were found dead.
    refused: Mutex<BTreeSet<u64>>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desk at {}", self.store.place())
    }
}

impl Desk {
    pub(super) fn open(node: &Node) -> Result<Self, Error> {
        let mut server = node.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Self { store: Box::new(server.local()), queue: Queue::default(), refused: Mutex::default() });
        }
        let zero_lives = node.me != 0 && node.mesh.fate(0) == Fate::Alive;
        let serves = matches!(node.config.meeting, Meeting::Tcp { .. }) && !zero_lives;
        let place = find(&node.config, serves)?;
        *server = place.server;
        Ok(Self { store: place.store, queue: Queue::default(), refused: Mutex::default() })
    }

    /// The newest replacement of that rank, if one has come.
    pub(super) fn look(&self, node: &Node, place: usize) -> Result<Option<Member>, Error> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let past = node.members()[place].incarnation;
        let mut newest = None;
        for number in 0.. {
            let Some(bytes) = self.store.wait(&replacement(place, number), Duration::ZERO)? else { break };
            newest = Member::decode(&bytes)
                .filter(|member| member.incarnation != past && !refused.contains(&member.incarnation));
        }
        if let Some(member) = &newest
            && std::net::TcpStream::connect_timeout(&member.address, Duration::from_secs(2)).is_err()
        {
            refused.insert(member.incarnation);
            return Ok(None);
        }
        Ok(newest)
    }
}

/// Who waits at the meeting place.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those before this number have been told.
    told: Mutex<usize>,
}

impl Queue {
    /// The processes that came and have not been told anything, in the order in which they came.
    pub(super) fn waiting(&self, store: &dyn Store) -> Result<Vec<Member>, Error> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = Vec::new();
        for number in *told.. {
            let Some(bytes) = store.wait(&newcomer(number), Duration::ZERO)? else { break };
            let open = match Member::decode(&bytes) {
                Some(member) if store.wait(&ticket(&member), Duration::ZERO)?.is_none() => Some(member),
                // It has been told, or was not written by this version of the library.
                _ => None,
            };
            match open {
                Some(member) => waiting.push(member),
                None if waiting.is_empty() => *told = number + 1,
                None => {}
            }
        }
        Ok(waiting)
    }
}

pub(super) fn replacement(place: usize, number: usize) -> String {
    format!("replacement/{place}/{number}")
}
