//! The part of a process that replaces a lost rank.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::desk::replacement;
use super::form::form;
use super::place::{find, introduce};
use super::settle::settle;
use crate::Error;
use crate::front::Parts;
use crate::node::Node;
use crate::rendezvous::{Config, Door, Name, Purpose};
use crate::watch::message::Message;
use crate::watch::{Fate, Mesh};

/// The replacement's part: says that it is there, and waits until the living take it in.
pub(super) fn replace(config: Config) -> Result<Parts, Error> {
    let end = Instant::now() + config.patience;
    let place = find(&config, false)?;
    let door = Door::open(place.towards, &place.secret)?;
    let me = introduce(&config, door.address());
    for number in 0.. {
        if place.store.put(&replacement(config.rank, number), &me.encode())? == me.encode() {
            break;
        }
    }
    let (rank, size, heartbeat) = (config.rank, config.size, config.heartbeat);
    let mut members = vec![me; size];
    let mut newcomers = Vec::new();
    let mesh = Arc::new(Mesh::new(rank, size, heartbeat)?);
    let nobody = || {
        Error::rendezvous(format!(
            "rank {rank} came as a replacement to {}, and nobody took it in for {:.0} s: the others must call rejoin",
            place.store.place(),
            config.patience.as_secs_f64()
        ))
    };
    // The leader says who the others are.
    let (hello, stream) = door.take_any(Purpose::Lead, end).ok_or_else(nobody)?;
    let (leader, group, epoch) = (hello.rank as usize, hello.group, hello.epoch);
    if leader >= size || leader == rank {
        return Err(Error::rendezvous(format!(
            "rank {leader} knocked at rank {rank}'s door: set the same WORLD_SIZE on all ranks"
        )));
    }
    mesh.attach(leader, stream, None)?;
    let nodes: Vec<_> = loop {
        match mesh.next_reform(end) {
            Some((_, Message::Newcomer { member, fresh, .. })) if (member.rank as usize) < size => {
                let place = member.rank as usize;
                if fresh && place != rank {
                    newcomers.push(place);
                }
                members[place] = member;
            }
            Some((_, Message::Form { nodes, .. })) => break nodes.into_iter().map(|node| node as usize).collect(),
            Some(_) => {}
            None if mesh.fate(leader) != Fate::Alive || Instant::now() >= end => return Err(nobody()),
            None => {}
        }
    };
    let node = Node::assemble(config, place.secret, group, members, Arc::new(door), mesh, Arc::default());
    let name = Name { purpose: Purpose::Control, group, epoch };
    for other in nodes.iter().filter(|other| **other != rank && **other != leader) {
        // Those that lived come to us; two replacements meet by their numbers.
        let stream = if newcomers.contains(other) {
            node.reach(*other, name, None, end)?
        } else {
            node.admit(*other, name, end)?
        };
        node.watch(*other, stream)?;
    }
    let parts = form(&node, &Arc::default(), epoch, Some(&nodes))?;
    let mut ready = BTreeMap::new();
    settle(&node, &parts, end, leader, epoch, &nodes, &mut ready)?.ok_or_else(|| {
        Error::rendezvous(format!("a rank was lost while rank {rank} joined as a replacement: start it again"))
    })
}
