//! One process's place among the others: its port and its control connections.

use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::error::At;
use crate::guard::{Alarm, Fault};
use crate::rendezvous::{Config, Door, Member, Name, Secret, StoreServer, knock};
use crate::watch::{Fate, Mesh};

/// How often a wait for a connection looks whether its rank still lives.
const LOOK: Duration = Duration::from_millis(20);

/// One process's place among the others.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) secret: Secret,
    pub(crate) me: usize,
    /// Drawn by the first rank 0.
    pub(crate) group: u64,
    members: Mutex<Vec<Member>>,
    pub(crate) door: Arc<Door>,
    pub(crate) mesh: Arc<Mesh>,
    /// The meeting place of replacements and newcomers, if this rank serves it; kept when the group
    /// grows.
    pub(crate) server: Arc<Mutex<Option<StoreServer>>>,
}

impl Node {
    pub(crate) fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn member(&self, node: usize) -> Member {
        self.members()[node].clone()
    }

    pub(crate) fn watch(&self, node: usize, stream: TcpStream) -> Result<(), Error> {
        let (they, we) = (self.member(node), self.member(self.me));
        self.mesh.attach(node, stream, (they.pid_namespace == we.pid_namespace).then_some(they.pid))
    }

    /// A node that is complete but for its connections.
    pub(crate) fn assemble(
        config: Config,
        secret: Secret,
        group: u64,
        members: Vec<Member>,
        door: Arc<Door>,
        mesh: Arc<Mesh>,
        server: Arc<Mutex<Option<StoreServer>>>,
    ) -> Arc<Self> {
        let me = config.rank;
        Arc::new(Self { config, secret, me, group, members: Mutex::new(members), door, mesh, server })
    }

    /// The connection of that name that the node makes, whatever its number.
    pub(crate) fn admit(&self, node: usize, name: Name, end: Instant) -> Result<TcpStream, Error> {
        loop {
            if let Some(stream) = self.door.take(name, u32::try_from(node).expect("at most 1024 ranks"), LOOK) {
                return Ok(stream);
            }
            if Instant::now() >= end {
                return Err(Error::rendezvous(format!(
                    "rank {node} ({}) did not connect with rank {}: does it run, and can the two hosts reach each \
                     other on every port?",
                    self.member(node).text(),
                    self.me
                )));
            }
        }
    }

    /// The connection of that name with that node: the lower number takes, the higher one comes.
    pub(crate) fn reach(
        &self,
        node: usize,
        name: Name,
        alarm: Option<&Alarm>,
        end: Instant,
    ) -> Result<TcpStream, Error> {
        let they = self.member(node);
        let comes = self.me > node;
        loop {
            let failed = if comes {
                let left = end.saturating_duration_since(Instant::now()).max(LOOK);
                let me = u32::try_from(self.me).expect("at most 1024 ranks");
                match knock(they.address, &format!("rank {node}"), &self.secret, name, me, left) {
                    Ok(stream) => return Ok(stream),
                    Err(error @ (Error::Secret { .. } | Error::Version { .. })) => return Err(error),
                    Err(error) => Some(error),
                }
            } else {
                if let Some(stream) = self.door.take(name, u32::try_from(node).expect("at most 1024 ranks"), LOOK) {
                    return Ok(stream);
                }
                None
            };
            self.check(alarm, name.epoch)?;
            if Instant::now() >= end {
                let why = failed.map_or_else(|| "it has not come".to_owned(), |error| error.to_string());
                return Err(Error::rendezvous(format!(
                    "rank {} could not connect with rank {node} ({}): {why}. Can the two hosts reach each other on \
                     every port? Set \
                     SHOAL_COMM_ADDRESS where a host has several addresses",
                    self.me,
                    they.text()
                )));
            }
            if comes {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// What an alarm says while connections are made.
    pub(crate) fn check(&self, alarm: Option<&Alarm>, epoch: u64) -> Result<(), Error> {
        let at = || At { operation: "forming the group".to_owned(), number: epoch };
        if let Some(why) = self.mesh.expelled() {
            return Err(Error::PeerGaveUp { rank: self.me, why, at: at() });
        }
        match alarm.and_then(Alarm::fault) {
            None => Ok(()),
            Some(Fault::Died { rank, how }) => Err(Error::PeerDied { rank, how, at: at() }),
            Some(Fault::Hung { rank, milliseconds }) => Err(Error::PeerHung { rank, milliseconds, at: at() }),
            Some(Fault::GaveUp { rank, why }) => Err(Error::PeerGaveUp { rank, why, at: at() }),
            Some(Fault::Revoked | Fault::Dispute { .. } | Fault::Within { .. }) => Err(Error::Revoked { epoch }),
        }
    }

    /// An error if that node, for which this one waits to form a group, has ended by itself.
    pub(crate) fn still_there(&self, node: usize, epoch: u64) -> Result<(), Error> {
        if self.mesh.fate(node) != Fate::Left {
            return Ok(());
        }
        let why = "it ended before the group was formed; what it wrote says why".to_owned();
        Err(Error::PeerGaveUp { rank: node, why, at: At { operation: "forming the group".to_owned(), number: epoch } })
    }
}
