//! Nobody has a group before all of its ranks have their connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::Error;
use crate::front::Parts;
use crate::node::Node;
use crate::watch::message::Message;

/// The longest single wait for a message of the others: a loss just before a wait does not end it.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Waits until all ranks have their connections.
pub(super) fn settle(
    node: &Node,
    parts: &Parts,
    end: Instant,
    leader: usize,
    epoch: u64,
    nodes: &[usize],
    ready: &mut BTreeMap<usize, u64>,
) -> Result<Option<Parts>, Error> {
    let leads = leader == node.me;
    node.mesh.send(&[leader], &Message::Formed { epoch });
    let mut formed = BTreeSet::from([node.me]);
    while !(leads && formed.len() == nodes.len()) {
        node.check(Some(parts.watch.alarm()), epoch)?;
        match node.mesh.next_reform(end.min(Instant::now() + LONGEST_WAIT)) {
            Some((from, Message::Formed { epoch: of })) if of == epoch => drop(formed.insert(from)),
            Some((from, Message::Go { epoch: of })) if of == epoch && from == leader => return Ok(Some(parts.clone())),
            Some((from, Message::Ready { epoch, .. })) => drop(ready.insert(from, epoch)),
            Some(_) => {}
            None if Instant::now() >= end => {
                let missing: Vec<_> = nodes.iter().filter(|other| !formed.contains(other)).collect();
                return Err(Error::rendezvous(format!(
                    "rank {} waited for ranks {missing:?} to connect with all others in epoch {epoch}: can all hosts \
                     reach each other?",
                    node.me
                )));
            }
            // Whoever has taken leave without saying what is waited for will not say it any more.
            None if leads => nodes
                .iter()
                .filter(|other| !formed.contains(other))
                .try_for_each(|other| node.still_there(*other, epoch))?,
            None => node.still_there(leader, epoch)?,
        }
    }
    node.mesh.send(nodes, &Message::Go { epoch });
    Ok(Some(parts.clone()))
}
