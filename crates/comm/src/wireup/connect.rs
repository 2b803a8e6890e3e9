//! The living and the newcomers that they take in connect as one group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::form::form;
use super::reform::{Formed, Who};
use super::settle::settle;
use crate::Error;
use crate::front::Parts;
use crate::node::Node;
use crate::rendezvous::{Name, Purpose};
use crate::watch::Formation;

/// In what time a newcomer that was taken in has to connect with all others.
pub(super) const CONNECT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Connects with all ranks and makes the group; of those that are left, if some do not come. None
/// if those may not go on by themselves.
pub(super) fn connect(
    node: &Arc<Node>,
    epoch: u64,
    may_go_on: &dyn Fn(&[usize]) -> bool,
) -> Result<Option<Parts>, Error> {
    let end = Instant::now() + CONNECT.min(node.config.patience);
    let name = Name { purpose: Purpose::Control, group: node.group, epoch };
    let all: Vec<_> = (0..node.config.size).collect();
    let mut complete = true;
    for other in all.iter().copied().filter(|other| *other != node.me) {
        match node.reach(other, name, None, end) {
            Ok(stream) => node.watch(other, stream)?,
            // A rank that has not come counts as lost.
            Err(_) => complete = false,
        }
    }
    let reception = Arc::default();
    let whole = || {
        let parts = form(node, &reception, epoch, None)?;
        // Nobody has the group before all have it: a door takes connections of those that nobody
        // expects.
        settle(node, &parts, Instant::now() + node.config.patience, 0, epoch, &all, &mut BTreeMap::new())
    };
    match if complete { whole() } else { Err(Error::Revoked { epoch }) } {
        Err(Error::PeerDied { .. } | Error::PeerHung { .. } | Error::PeerGaveUp { .. } | Error::Revoked { .. })
            if node.mesh.expelled().is_none() =>
        {
            let watch = Arc::new(Formation::new(&node.mesh, node.me, epoch, &all));
            let formed = Formed::new(Arc::clone(node), Arc::clone(&reception), epoch, all, watch);
            if !may_go_on(&formed.living()) {
                return Ok(None);
            }
            let (parts, nodes) = formed.again(Who::Living, node.config.patience, epoch)?;
            Ok(may_go_on(&nodes).then_some(parts))
        }
        formed => formed,
    }
}
