//! A group grows: processes that came to the meeting place are taken in behind the ranks that live.
//!
//! The living agree on who they are, as in `shrink`. Their rank 0 looks who waits at the meeting
//! place, and tells the others in a broadcast whom it takes; when all have heard it, it writes each
//! newcomer its number there. Then all connect as a group of that size, under the next epoch and a
//! name of its own: its connections cannot be taken for those of the living, who may form anew
//! under the same epoch. Who is lost on the way is lost as in any group: the others go on without
//! it.
//!
//! When a rank is lost while all confirm that they have heard whom rank 0 takes, some have the
//! confirmation and go on, and the others go back to agree on who lives. So nobody goes on without
//! one of the living that is not lost: it goes back, too, and the newcomers queue up again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::connect::connect;
use super::reform::{Formed, Who};
use super::ticket::{LOOK_INTERVAL, Ticket, seat, ticket, torn};
use crate::front::Front;
use crate::guard::UNLIMITED;
use crate::node::Node;
use crate::rendezvous::frame::{Fields, put_bytes};
use crate::rendezvous::{MOST_RANKS, Member, rand_word};
use crate::watch::{Fate, Mesh};
use crate::{Error, ProcessGroup, ProcessGroupExt};

/// How long rank 0 looks before it shows the others that it lives.
const SLICE: Duration = Duration::from_millis(500);

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
        let desk = self.reception.desk(&self.node)?;
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
                Ok(chosen) => {
                    seen += 1;
                    if let Some(grown) = self.take(&nodes, &chosen, seen)? {
                        return Ok(grown);
                    }
                    watch.revoke();
                }
                // One of the living was lost meanwhile: again with those that are left.
                Err(
                    Error::PeerDied { .. } | Error::PeerHung { .. } | Error::PeerGaveUp { .. } | Error::Revoked { .. },
                ) if self.node.mesh.expelled().is_none() => {
                    watch.revoke();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Rank 0 finds newcomers and broadcasts them; empty if there are none.
    fn choose(&self, living: &Front, size: usize, end: Instant) -> Result<Vec<u8>, Error> {
        let mut search = Search::new(self, size.saturating_sub(living.size()), end);
        loop {
            // In slices, so that a loss among the living is known while newcomers are waited for.
            let (mut over, mut list) = ([1_u8], Vec::new());
            if living.rank() == 0 {
                match search.look() {
                    Ok(is_over) => (over, list) = ([u8::from(is_over)], search.list()),
                    // The meeting place may be gone with its host: the living go on without
                    // newcomers.
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

    /// Makes the group of the living and the chosen; none if one of the living does not come along,
    /// though it lives.
    fn take(&self, nodes: &[usize], chosen: &[u8], epoch: u64) -> Result<Option<Front>, Error> {
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
            let desk = self.reception.desk(old)?;
            for (rank, member) in members.iter().enumerate() {
                desk.store.put(&seat(formation, rank), &member.encode())?;
            }
            for (rank, member) in members.iter().enumerate().skip(living) {
                let taken = Ticket::Taken { rank, size, living, epoch, formation };
                desk.store.put(&ticket(member), &taken.encode())?;
            }
        }
        let mut config = old.config.clone();
        (config.rank, config.size, config.replaces) = (rank, size, false);
        let mesh = Arc::new(Mesh::new(rank, size, config.heartbeat)?);
        let server = Arc::clone(&old.server);
        let node = Node::assemble(config, old.secret.clone(), formation, members, Arc::clone(&old.door), mesh, server);
        let may_go_on = |ranks: &[usize]| {
            let is_lost = |node: usize| node != old.me && old.mesh.fate(node) != Fate::Alive;
            (0..living).all(|rank| ranks.contains(&rank) || is_lost(nodes[rank]))
        };
        let parts = connect(&node, epoch, &may_go_on)?;
        if parts.is_none() {
            // Connections of that group that nobody will take: who made them is told so by their
            // end.
            old.door.forget_before(epoch + 1);
        }
        Ok(parts.map(Front::new))
    }
}

/// Rank 0's search for newcomers.
struct Search<'a> {
    of: &'a Formed,
    /// How many are wanted.
    room: usize,
    end: Instant,
    found: Vec<Member>,
    seen: BTreeSet<u64>,
}

impl<'a> Search<'a> {
    fn new(of: &'a Formed, room: usize, end: Instant) -> Self {
        Self { of, room, end, found: Vec::new(), seen: BTreeSet::new() }
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
            thread::sleep(LOOK_INTERVAL.min(slice.saturating_duration_since(now)));
        }
    }

    fn look_once(&mut self) -> Result<(), Error> {
        let node = &self.of.node;
        let desk = self.of.reception.desk(node)?;
        let ours = node.member(node.me).heartbeat;
        for member in desk.queue.waiting(&*desk.store)? {
            if self.found.len() == self.room || !self.seen.insert(member.incarnation) {
                continue;
            }
            let theirs = member.heartbeat;
            let refusal = if !is_there(&member) {
                "it did not answer".to_owned()
            } else if theirs != ours {
                format!(
                    "its heartbeat is {theirs} ms, the group's {ours} ms: set the same SHOAL_COMM_HEARTBEAT everywhere"
                )
            } else {
                self.found.push(member);
                continue;
            };
            desk.store.put(&ticket(&member), &Ticket::Refused(refusal).encode())?;
        }
        Ok(())
    }

    /// Those that were found, as a list to broadcast, which begins with the formation's name; empty
    /// if there are none.
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

#[cfg(test)]
mod tests {
    use super::super::{arrive::arrive, meet::meet};
    use super::*;
    use crate::front::Parts;
    use crate::rendezvous::{Carrier, Config, LocalStore, Meeting};
    use crate::watch::Formation;

    /// Nothing here takes so long, on the busiest machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn config(rank: usize, size: usize, meeting: &Meeting) -> Config {
        let config = Config::new(rank, size, meeting.clone()).patience(PATIENCE).heartbeat(PATIENCE);
        config.address([127, 0, 0, 1].into()).carrier(Carrier::Tcp)
    }

    fn formed(rank: usize, meeting: &Meeting) -> Formed {
        let node = meet(config(rank, 2, meeting)).unwrap();
        let watch = Arc::new(Formation::new(&node.mesh, rank, 0, &[0, 1]));
        Formed::new(node, Arc::default(), 0, vec![0, 1], watch)
    }

    #[test]
    fn nobody_grows_without_a_living_rank_that_went_back() {
        let meeting = Meeting::Store(Arc::new(LocalStore::default()));
        let grow = |parts: Parts| {
            assert_eq!((parts.size, parts.epoch), (2, 3), "the two agree again, under an epoch that nobody has used");
            let grown = parts.reform.grow(3, PATIENCE).unwrap();
            (grown.rank(), grown.size(), grown.epoch())
        };
        thread::scope(|scope| {
            let goes_on = scope.spawn(|| {
                let first = formed(0, &meeting);
                let mut search = Search::new(&first, 1, Instant::now() + PATIENCE);
                while !search.look().unwrap() {}
                // As if all had confirmed.
                assert!(first.take(&[0, 1], &search.list(), 2).unwrap().is_none());
                grow(first.again(Who::Living, PATIENCE, 2).unwrap().0)
            });
            let goes_back = scope.spawn(|| grow(formed(1, &meeting).again(Who::Living, PATIENCE, 1).unwrap().0));
            let comes = scope.spawn(|| {
                let parts = arrive(&config(0, 1, &meeting).joins(true)).unwrap();
                (parts.rank, parts.size, parts.epoch)
            });
            let grown = [goes_on, goes_back, comes].map(|it| it.join().unwrap());
            assert_eq!(grown, [(0, 3, 5), (1, 3, 5), (2, 3, 5)]);
        });
    }
}
