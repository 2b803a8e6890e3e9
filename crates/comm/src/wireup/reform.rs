//! A group is formed anew: those that live agree on who they are, under the next epoch, with or
//! without replacements.
//!
//! Each rank tells the lowest living one that it is ready; that one, the leader, proposes the list
//! of nodes when all have; each makes its connections and says so; when all have, the leader lets
//! them go. A loss in between begins it again with those that are left. Whoever was let go before a
//! loss finds it in its first operation, and comes back here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desk::{Desk, Reception};
use super::form::form;
use super::settle::{LONGEST_WAIT, settle};
use crate::Error;
use crate::front::{Front, Parts, Reform};
use crate::guard::{UNLIMITED, Watch};
use crate::node::Node;
use crate::rendezvous::{Member, Name, Purpose, knock};
use crate::watch::message::Message;
use crate::watch::{Fate, Formation};

/// A group as it was formed: what it can be formed anew from.
#[derive(Debug)]
pub(super) struct Formed {
    pub(super) node: Arc<Node>,
    pub(super) reception: Arc<Reception>,
    pub(super) epoch: u64,
    nodes: Vec<usize>,
    watch: Arc<Formation>,
}

/// Which ranks take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Living,
    WithReplacements,
}

impl Reform for Formed {
    fn shrink(&self) -> Result<Parts, Error> {
        Ok(self.again(Who::Living, self.node.config.patience, self.epoch)?.0)
    }

    fn rejoin(&self, patience: Duration) -> Result<Parts, Error> {
        Ok(self.again(Who::WithReplacements, patience, self.epoch)?.0)
    }

    fn grow(&self, size: usize, patience: Duration) -> Result<Front, Error> {
        self.grown(size, patience)
    }

    fn newcomers(&self) -> Result<usize, Error> {
        self.queued()
    }
}

/// Where one attempt of forming anew stands.
struct Attempt {
    end: Instant,
    who: Who,
    /// The highest epoch that this rank knows of.
    seen: u64,
    /// Who is ready, with the highest epoch that it knows of; used up by a proposal.
    ready: BTreeMap<usize, u64>,
}

impl Formed {
    pub(super) fn new(
        node: Arc<Node>,
        reception: Arc<Reception>,
        epoch: u64,
        nodes: Vec<usize>,
        watch: Arc<Formation>,
    ) -> Self {
        Self { node, reception, epoch, nodes, watch }
    }

    pub(super) fn living(&self) -> Vec<usize> {
        let lives = |node: &usize| *node == self.node.me || self.node.mesh.fate(*node) == Fate::Alive;
        self.nodes.iter().copied().filter(lives).collect()
    }

    /// The group of the next epoch after `seen`, and its nodes.
    pub(super) fn again(&self, who: Who, patience: Duration, seen: u64) -> Result<(Parts, Vec<usize>), Error> {
        self.watch.revoke();
        let mut attempt = Attempt { end: Instant::now() + patience.min(UNLIMITED), who, seen, ready: BTreeMap::new() };
        loop {
            self.node.check(None, attempt.seen)?;
            let living = self.living();
            let leader = living.iter().copied().min().unwrap_or(self.node.me);
            let proposal = if leader == self.node.me {
                self.lead(&mut attempt)?
            } else {
                self.node
                    .mesh
                    .send(&[leader], &Message::Ready { epoch: attempt.seen, rejoin: who == Who::WithReplacements });
                self.follow(&mut attempt, leader)?
            };
            let Some((epoch, nodes)) = proposal else { continue };
            attempt.seen = epoch;
            match self.make(&mut attempt, leader, epoch, &nodes) {
                Ok(Some(parts)) => return Ok((parts, nodes)),
                Ok(None) => {}
                // Somebody was lost, or gave up because of that: again with those that are left.
                Err(
                    Error::PeerDied { .. } | Error::PeerHung { .. } | Error::PeerGaveUp { .. } | Error::Revoked { .. },
                ) if self.node.mesh.expelled().is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn out_of_time(&self, attempt: &Attempt, missing: &[usize], what: &str) -> Error {
        let list: Vec<_> = missing.iter().map(usize::to_string).collect();
        let advice = match attempt.who {
            Who::Living => "every living rank must call shrink after a failed operation",
            Who::WithReplacements => {
                "every living rank must call rejoin, and every lost one needs a replacement: the same program with the \
                 same environment and \
                 SHOAL_COMM_REPLACES=1"
            }
        };
        Error::rendezvous(format!(
            "rank {} {what}: {} (numbers of the first formation); {advice}",
            self.node.me,
            list.join(", ")
        ))
    }

    /// Waits until all are ready and proposes; none if somebody was lost meanwhile.
    fn lead(&self, attempt: &mut Attempt) -> Result<Option<(u64, Vec<usize>)>, Error> {
        let node = &self.node;
        let mut newcomers: BTreeMap<usize, Member> = BTreeMap::new();
        let desk = (attempt.who == Who::WithReplacements && self.living().len() < node.config.size)
            .then(|| Desk::open(node))
            .transpose()?;
        loop {
            let living = self.living();
            if living.iter().min() != Some(&node.me) {
                return Ok(None);
            }
            attempt.ready.insert(node.me, attempt.seen);
            let late: Vec<_> = living.iter().copied().filter(|other| !attempt.ready.contains_key(other)).collect();
            let vacant: Vec<_> = match &desk {
                Some(_) => (0..node.config.size).filter(|other| !living.contains(other)).collect(),
                None => Vec::new(),
            };
            if let Some(desk) = &desk {
                for vacancy in &vacant {
                    if let Some(member) = desk.look(node, *vacancy)? {
                        newcomers.insert(*vacancy, member);
                    }
                }
                newcomers.retain(|place, _| vacant.contains(place));
            }
            if late.is_empty() && newcomers.len() == vacant.len() {
                let epoch = attempt.ready.values().copied().max().unwrap_or(attempt.seen) + 1;
                attempt.ready.clear();
                return self.propose(epoch, &living, &newcomers);
            }
            let now = Instant::now();
            if now >= attempt.end {
                let missing: Vec<_> =
                    late.iter().chain(vacant.iter().filter(|place| !newcomers.contains_key(place))).copied().collect();
                return Err(self.out_of_time(
                    attempt,
                    &missing,
                    "waited to form the group anew, and these have not come",
                ));
            }
            if let Some((from, Message::Ready { epoch, rejoin })) =
                node.mesh.next_reform(attempt.end.min(now + LONGEST_WAIT))
            {
                if rejoin != (attempt.who == Who::WithReplacements) {
                    let problem = format!(
                        "rank {} and rank {from} disagree: one called shrink, the other rejoin; make all call the same",
                        node.me
                    );
                    return Err(Error::rendezvous(problem));
                }
                attempt.ready.insert(from, epoch);
            }
        }
    }

    fn propose(
        &self,
        epoch: u64,
        living: &[usize],
        newcomers: &BTreeMap<usize, Member>,
    ) -> Result<Option<(u64, Vec<usize>)>, Error> {
        let node = &self.node;
        let nodes: Vec<_> =
            living.iter().chain(newcomers.keys()).copied().collect::<BTreeSet<_>>().into_iter().collect();
        for (place, member) in newcomers {
            node.mesh.send(living, &Message::Newcomer { epoch, fresh: true, member: member.clone() });
            if greet(node, *place, member, epoch, Purpose::Lead).is_err() {
                // It went away again: look for another.
                return Ok(None);
            }
        }
        for place in newcomers.keys() {
            for member in node.members().iter() {
                let fresh = newcomers.contains_key(&(member.rank as usize));
                node.mesh.send(&[*place], &Message::Newcomer { epoch, fresh, member: member.clone() });
            }
        }
        let form = Message::Form {
            epoch,
            nodes: nodes.iter().map(|node| u32::try_from(*node).expect("at most 1024 ranks")).collect(),
        };
        node.mesh.send(&nodes, &form);
        Ok(Some((epoch, nodes)))
    }

    /// Waits for the leader's proposal; none if somebody was lost meanwhile.
    fn follow(&self, attempt: &mut Attempt, leader: usize) -> Result<Option<(u64, Vec<usize>)>, Error> {
        let node = &self.node;
        loop {
            match node.mesh.next_reform(attempt.end.min(Instant::now() + LONGEST_WAIT)) {
                Some((from, Message::Form { epoch, nodes })) if from == leader && epoch > attempt.seen => {
                    return Ok(Some((epoch, nodes.into_iter().map(|node| node as usize).collect())));
                }
                Some((_, Message::Newcomer { epoch, member, .. })) if epoch > attempt.seen => {
                    let place = member.rank as usize;
                    greet(node, place, &member, epoch, Purpose::Control).ok();
                }
                // A rank that thinks that we lead; we shall, if the leader is lost.
                Some((from, Message::Ready { epoch, .. })) => drop(attempt.ready.insert(from, epoch)),
                Some(_) => {}
                None if Instant::now() >= attempt.end => {
                    return Err(self.out_of_time(
                        attempt,
                        &[leader],
                        "waited for the one that leads in forming the group anew",
                    ));
                }
                None => {
                    node.check(None, attempt.seen)?;
                    if node.mesh.fate(leader) != Fate::Alive {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Makes the connections of that epoch and waits until all have; none if somebody was lost
    /// meanwhile.
    fn make(&self, attempt: &mut Attempt, leader: usize, epoch: u64, nodes: &[usize]) -> Result<Option<Parts>, Error> {
        let parts = form(&self.node, &self.reception, epoch, Some(nodes))?;
        settle(&self.node, &parts, attempt.end, leader, epoch, nodes, &mut attempt.ready)
    }
}

/// Connects to a replacement and watches it from now on.
fn greet(node: &Node, place: usize, member: &Member, epoch: u64, purpose: Purpose) -> Result<(), Error> {
    if place >= node.config.size
        || (node.members()[place].incarnation == member.incarnation && node.mesh.fate(place) == Fate::Alive)
    {
        return Ok(());
    }
    let name = Name { purpose, group: node.group, epoch };
    let me = u32::try_from(node.me).expect("at most 1024 ranks");
    let stream = knock(
        member.address,
        &format!("the replacement of rank {place}"),
        &node.secret,
        name,
        me,
        Duration::from_secs(5),
    )?;
    node.members()[place] = member.clone();
    node.watch(place, stream)
}
