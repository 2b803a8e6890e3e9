//! A group grows: processes that came to the meeting place are taken in behind the ranks that live.
//!
//! The living agree on who they are, as in `shrink`. Their rank 0 looks who waits at the meeting place, and tells the others in a broadcast whom it takes; when all have heard
//! it, it writes each newcomer its number there. Then all connect as a group of that size, under the next epoch. Who is lost on the way is lost as in
//! any group: the others go on without it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::node::{Node, Place, find, introduce};
use super::reform::{Desk, Formed, Who};
use crate::front::{Front, Parts};
use crate::guard::UNLIMITED;
use crate::rendezvous::frame::{Fields, put_bytes};
use crate::rendezvous::{Config, Door, MOST_RANKS, Member, Name, Purpose, Store, rand_word};
use crate::watch::{Formation, Mesh};
use crate::{Error, ProcessGroup, ProcessGroupExt};

/// How often rank 0 looks for newcomers while it waits for some.
const STEP: Duration = Duration::from_millis(20);
/// How long it looks before it shows the others that it lives.
const SLICE: Duration = Duration::from_millis(500);
/// In what time a newcomer that was taken in has to connect with all others.
const CONNECT: Duration = Duration::from_secs(10);
/// What a newcomer waits in one step for its number.
const LISTEN: Duration = Duration::from_secs(1);

/// What a newcomer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ticket {
    /// It is taken in, as this rank of so many.
    Taken { rank: usize, size: usize, group: u64, epoch: u64, formation: u64 },
    /// It is not, and why.
    Refused(String),
}

impl Ticket {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Taken { rank, size, group, epoch, formation } => {
                let mut out = vec![1];
                for number in [*rank as u64, *size as u64, *group, *epoch, *formation] {
                    out.extend(number.to_le_bytes());
                }
                out
            }
            Self::Refused(why) => {
                let mut out = vec![0];
                put_bytes(&mut out, why.as_bytes());
                out
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let ticket = match fields.byte()? {
            0 => Self::Refused(fields.text()?),
            1 => {
                let (rank, size) = (usize::try_from(fields.u64()?).ok()?, usize::try_from(fields.u64()?).ok()?);
                let ticket = Self::Taken { rank, size, group: fields.u64()?, epoch: fields.u64()?, formation: fields.u64()? };
                (rank < size && size <= MOST_RANKS).then_some(ticket)?
            }
            _ => return None,
        };
        fields.end()?;
        Some(ticket)
    }
}

fn newcomer(number: usize) -> String {
    format!("newcomer/{number}")
}

fn ticket(member: &Member) -> String {
    format!("ticket/{:016x}", member.incarnation)
}

fn seat(formation: u64, rank: usize) -> String {
    format!("formation/{formation:016x}/{rank}")
}

/// Who waits at the meeting place.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those before this number have been told.
    told: Mutex<usize>,
}

impl Queue {
    /// The processes that came and have not been told anything, in the order in which they came.
    fn waiting(&self, store: &dyn Store) -> Result<Vec<Member>, Error> {
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

/// A place among those that come to take part, or an address at which nobody listens any more.
fn is_there(member: &Member) -> bool {
    std::net::TcpStream::connect_timeout(&member.address, Duration::from_secs(2)).is_ok()
}

fn number(value: usize) -> u32 {
    u32::try_from(value).expect("at most 1024 ranks")
}

impl Formed {
    /// How many processes wait to be taken in.
    pub(super) fn queued(&self) -> Result<usize, Error> {
        let desk = self.node.desk()?;
        Ok(desk.queue.waiting(&*desk.store)?.len())
    }

    /// The living and those newcomers that come until there are `size`, or until patience is over.
    pub(super) fn grown(&self, size: usize, patience: Duration) -> Result<Front, Error> {
        if size > MOST_RANKS {
            return Err(Error::config(format!("grow: {size} ranks are wanted, and a group has at most {MOST_RANKS}")));
        }
        let end = Instant::now() + patience.min(UNLIMITED);
        let mut seen = self.epoch;
        loop {
            let (parts, nodes) = self.again(Who::Living, self.node.config.patience, seen)?;
            seen = parts.epoch;
            let watch = Arc::clone(&parts.watch);
            let living = Front::new(parts);
            match self.choose(&living, size, end) {
                Ok(chosen) if chosen.is_empty() => return Ok(living),
                Ok(chosen) => return self.take(&nodes, &chosen, seen + 1),
                // One of the living was lost meanwhile: again with those that are left.
                Err(Error::PeerDied { .. } | Error::PeerHung { .. } | Error::PeerGaveUp { .. } | Error::Revoked { .. })
                    if self.node.mesh.expelled().is_none() =>
                {
                    watch.revoke();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Rank 0 finds newcomers and broadcasts them; empty if there are none.
    fn choose(&self, living: &Front, size: usize, end: Instant) -> Result<Vec<u8>, Error> {
        let mut search = Search::new(&self.node, size.saturating_sub(living.size()), end);
        loop {
            // In slices, so that a loss among the living is known while newcomers are waited for.
            let (mut over, mut list) = ([1_u8], Vec::new());
            if living.rank() == 0 {
                match search.look() {
                    Ok(is_over) => (over, list) = ([u8::from(is_over)], search.list()),
                    // The meeting place may be gone with its host: the living go on without newcomers.
                    Err(error) => eprintln!("shoal-comm: nobody can be taken in: {error}"),
                }
            }
            living.broadcast(&mut over, 0)?;
            if over == [0] {
                continue;
            }
            let mut length = (list.len() as u64).to_le_bytes();
            living.broadcast(&mut length, 0)?;
            list.resize(usize::try_from(u64::from_le_bytes(length)).map_err(|_| torn())?, 0);
            if !list.is_empty() {
                living.broadcast(&mut list, 0)?;
                living.barrier()?;
            }
            return Ok(list);
        }
    }

    /// Makes the group of the living and the chosen.
    fn take(&self, nodes: &[usize], chosen: &[u8], epoch: u64) -> Result<Front, Error> {
        let old = &self.node;
        let mut fields = Fields(chosen);
        let formation = fields.u64().ok_or_else(torn)?;
        let mut members: Vec<_> = nodes.iter().map(|node| old.member(*node)).collect();
        let living = members.len();
        while fields.end().is_none() {
            members.push(fields.bytes().and_then(Member::decode).ok_or_else(torn)?);
        }
        let size = members.len();
        for (rank, member) in members.iter_mut().enumerate() {
            (member.rank, member.size) = (number(rank), number(size));
        }
        let rank = nodes.iter().position(|node| *node == old.me).ok_or_else(torn)?;
        if rank == 0 {
            let desk = old.desk()?;
            for (rank, member) in members.iter().enumerate() {
                desk.store.put(&seat(formation, rank), &member.encode())?;
            }
            for (rank, member) in members.iter().enumerate().skip(living) {
                let taken = Ticket::Taken { rank, size, group: old.group, epoch, formation };
                desk.store.put(&ticket(member), &taken.encode())?;
            }
        }
        let mut config = old.config.clone();
        (config.rank, config.size, config.replaces) = (rank, size, false);
        let mesh = Arc::new(Mesh::new(rank, size, config.heartbeat)?);
        let server = Arc::clone(&old.server);
        let node = Node::assemble(config, old.secret.clone(), old.group, members, Arc::clone(&old.door), mesh, server);
        Ok(Front::new(connect(&node, epoch)?))
    }
}

/// Rank 0's search for newcomers.
struct Search<'a> {
    node: &'a Node,
    /// How many are wanted.
    room: usize,
    end: Instant,
    found: Vec<Member>,
    seen: BTreeSet<u64>,
}

impl<'a> Search<'a> {
    fn new(node: &'a Node, room: usize, end: Instant) -> Self {
        Self { node, room, end, found: Vec::new(), seen: BTreeSet::new() }
    }

    /// Looks for a while; whether the search is over.
    fn look(&mut self) -> Result<bool, Error> {
        let slice = self.end.min(Instant::now() + SLICE);
        loop {
            if self.found.len() < self.room {
                self.look_once()?;
            }
            let now = Instant::now();
            if self.found.len() == self.room || now >= self.end {
                self.found.retain(is_there);
                if self.found.len() == self.room || now >= self.end {
                    return Ok(true);
                }
            }
            if now >= slice {
                return Ok(false);
            }
            thread::sleep(STEP.min(slice.saturating_duration_since(now)));
        }
    }

    fn look_once(&mut self) -> Result<(), Error> {
        let desk = self.node.desk()?;
        let ours = self.node.member(self.node.me).heartbeat;
        for member in desk.queue.waiting(&*desk.store)? {
            if self.found.len() == self.room || !self.seen.insert(member.incarnation) {
                continue;
            }
            let theirs = member.heartbeat;
            let refusal = if !is_there(&member) {
                "it did not answer".to_owned()
            } else if theirs != ours {
                format!("its heartbeat is {theirs} ms, the group's {ours} ms: set the same SHOAL_COMM_HEARTBEAT everywhere")
            } else {
                self.found.push(member);
                continue;
            };
            desk.store.put(&ticket(&member), &Ticket::Refused(refusal).encode())?;
        }
        Ok(())
    }

    /// Those that were found, as a list to broadcast, which begins with the formation's name; empty if there are none.
    fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        if !self.found.is_empty() {
            list.extend(rand_word().to_le_bytes());
        }
        for member in &self.found {
            put_bytes(&mut list, &member.encode());
        }
        list
    }
}

fn torn() -> Error {
    Error::rendezvous(
        "rank 0's list of newcomers was not written by this version of the library: use the same Shoal on all hosts".to_owned(),
    )
}

/// Connects with all ranks and makes the group; of those that are left, if some do not come.
fn connect(node: &Arc<Node>, epoch: u64) -> Result<Parts, Error> {
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
    let formed = if complete { node.form(epoch, None) } else { Err(Error::Revoked { epoch }) };
    match formed {
        Err(Error::PeerDied { .. } | Error::PeerHung { .. } | Error::PeerGaveUp { .. } | Error::Revoked { .. })
            if node.mesh.expelled().is_none() =>
        {
            let watch = Arc::new(Formation::new(&node.mesh, node.me, epoch, &all));
            let formed = Formed::new(Arc::clone(node), epoch, all, watch);
            Ok(formed.again(Who::Living, node.config.patience, epoch)?.0)
        }
        formed => formed,
    }
}

/// The newcomer's part: says that it is there, and waits until a group takes it in.
pub(super) fn arrive(mut config: Config) -> Result<Parts, Error> {
    let end = Instant::now() + config.patience;
    let (place, door, me, answer) = loop {
        let mut within = config.clone();
        within.patience = end.saturating_duration_since(Instant::now());
        let place = find(&within, false)?;
        let door = Door::open(place.towards, &place.secret)?;
        let me = introduce(&config, door.address());
        match queue_up(&place, &me, end) {
            Ok(answer) => break (place, door, me, answer),
            // The server of the meeting place is gone; another rank serves it anew.
            Err(Error::Io { .. } | Error::Rendezvous { .. }) if Instant::now() + LISTEN < end => thread::sleep(STEP),
            Err(error) => return Err(error),
        }
    };
    let (rank, size, group, epoch, formation) = match answer {
        Ticket::Taken { rank, size, group, epoch, formation } => (rank, size, group, epoch, formation),
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
    let node = Node::assemble(config, place.secret, group, members, Arc::new(door), mesh, Arc::default());
    connect(&node, epoch)
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
                "this process came to {} to join the group, and no group took it in: the ranks there must call grow",
                place.store.place()
            )));
        }
    }
}

impl Node {
    /// The meeting place as rank 0 reaches it after the group was formed.
    fn desk(&self) -> Result<Arc<Desk>, Error> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*desk {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(Desk::open(self)?);
        *desk = Some(Arc::clone(&open));
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back() {
        let taken = Ticket::Taken { rank: 3, size: 4, group: 7, epoch: 2, formation: u64::MAX };
        for it in [taken.clone(), Ticket::Refused("no".to_owned())] {
            assert_eq!(Ticket::decode(&it.encode()), Some(it.clone()));
            assert_eq!(Ticket::decode(&it.encode()[1..]), None, "{it:?}");
        }
        let Ticket::Taken { size, group, epoch, formation, .. } = taken else { unreachable!() };
        assert_eq!(Ticket::decode(&Ticket::Taken { rank: 4, size, group, epoch, formation }.encode()), None, "a rank is one of them");
    }
}
