//! A process comes to the meeting place of a group that runs, and waits until the group takes it in
//! (`grow`).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::connect::{CONNECT, connect};
use super::place::{Place, find, introduce};
use super::ticket::{LOOK_INTERVAL, Ticket, newcomer, seat, ticket, torn};
use crate::Error;
use crate::front::Parts;
use crate::node::Node;
use crate::rendezvous::{Config, Door, Member};
use crate::watch::Mesh;

/// What a newcomer waits in one step for its number.
const LISTEN: Duration = Duration::from_secs(1);

/// The newcomer's part: says that it is there, and waits until a group takes it in.
pub(super) fn arrive(config: &Config) -> Result<Parts, Error> {
    let end = Instant::now() + config.patience;
    loop {
        if let Some(parts) = come(config.clone(), end)? {
            return Ok(parts);
        }
    }
}

/// None if those that took it in went back without it.
fn come(mut config: Config, end: Instant) -> Result<Option<Parts>, Error> {
    let (place, door, me, answer) = loop {
        let mut within = config.clone();
        within.patience = end.saturating_duration_since(Instant::now());
        let place = find(&within, false)?;
        let door = Door::open(place.towards, &place.secret)?;
        let me = introduce(&config, door.address());
        match queue_up(&place, &me, end) {
            Ok(answer) => break (place, door, me, answer),
            // The server of the meeting place is gone; another rank serves it anew.
            Err(Error::Io { .. } | Error::Rendezvous { .. }) if Instant::now() + LISTEN < end => {
                thread::sleep(LOOK_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    };
    let (rank, size, living, epoch, formation) = match answer {
        Ticket::Taken { rank, size, living, epoch, formation } => (rank, size, living, epoch, formation),
        Ticket::Refused(why) => {
            return Err(Error::rendezvous(format!(
                "this process came to {} to join the group, which did not take it in: {why}",
                place.store.place()
            )));
        }
    };
    let mut members = Vec::new();
    for rank in 0..size {
        let bytes = place.store.wait(&seat(formation, rank), CONNECT)?;
        members.push(bytes.as_deref().and_then(Member::decode).ok_or_else(torn)?);
    }
    if members[rank].incarnation != me.incarnation {
        return Err(torn());
    }
    (config.rank, config.size, config.joins) = (rank, size, false);
    let mesh = Arc::new(Mesh::new(rank, size, config.heartbeat)?);
    let node = Node::assemble(config, place.secret, formation, members, Arc::new(door), mesh, Arc::default());
    connect(&node, epoch, &|ranks| ranks.iter().any(|rank| *rank < living))
}

/// Waits for the answer to a newcomer.
fn queue_up(place: &Place, me: &Member, end: Instant) -> Result<Ticket, Error> {
    for number in 0.. {
        if place.store.put(&newcomer(number), &me.encode())? == me.encode() {
            break;
        }
    }
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if let Some(bytes) = place.store.wait(&ticket(me), left.min(LISTEN))? {
            return Ticket::decode(&bytes).ok_or_else(torn);
        }
        if left.is_zero() {
            return Err(Error::rendezvous(format!(
                "this process came to {} to join the group, and no group took it in: \
                 start the first ranks, and let them call `commit` (shoal.elastic) or `grow` (ProcessGroup) in between",
                place.store.place()
            )));
        }
    }
}
