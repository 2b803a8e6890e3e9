//! The ranks of a new group meet.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::place::{Place, find, introduce};
use crate::Error;
use crate::node::Node;
use crate::rendezvous::{Config, Door, Name, Purpose, gather};
use crate::watch::Mesh;

/// Meets the others for the first time and connects to all.
pub(super) fn meet(config: Config) -> Result<Arc<Node>, Error> {
    let end = Instant::now() + config.patience;
    let Place { store, server, secret, towards } = find(&config, config.rank == 0)?;
    let door = Door::open(towards, &secret)?;
    let me = introduce(&config, door.address());
    let members = gather(&*store, &me, end.saturating_duration_since(Instant::now()))?;
    let group = members[0].incarnation;
    let (rank, size, heartbeat) = (config.rank, config.size, config.heartbeat);
    let mesh = Arc::new(Mesh::new(rank, size, heartbeat)?);
    let node = Node::assemble(config, secret, group, members, Arc::new(door), mesh, Arc::new(Mutex::new(server)));
    let name = Name { purpose: Purpose::Control, group, epoch: 0 };
    for other in (0..size).filter(|other| *other != rank) {
        let stream = node.reach(other, name, None, end)?;
        node.watch(other, stream)?;
    }
    Ok(node)
}
