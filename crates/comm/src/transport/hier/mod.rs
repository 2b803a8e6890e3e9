//! Ranks of several hosts with several ranks each: shared memory within a host, TCP across.
//!
//! An all-reduce goes in three steps: the ranks of a host reduce among themselves, each getting a
//! slice; ranks of the same place on all hosts reduce their slice across; the ranks of a host
//! gather the slices. So every byte crosses once, whatever the number of ranks on a host, and all
//! ranks of a host send. Where hosts have unequally many ranks, as many places take part in the
//! second step as every host has. Short vectors go through the first rank of each host.
//!
//! An element is reduced in rank order within each host, and then over the hosts as TCP among so
//! many ranks does it: a fixed order, which is not that of the ranks. Types of 16 bits are rounded
//! on each level.
//!
//! Each step is an operation of the transport within or of one across, and ranks that called
//! different things find out where they meet.

mod layout;
mod messages;
mod steps;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(crate) use self::layout::Layout;
use super::Transport;
use super::tcp::Tcp;
use super::wire::Wire;
use crate::guard::{Alarm, Guard};
use crate::node::Node;
use crate::timeline::Way;
use crate::{Call, Error, Kind, Memory};

/// The ranks of one host, with what their operations are counted by.
#[derive(Debug)]
struct Within {
    transport: Arc<dyn Transport>,
    seq: AtomicU64,
}

/// One rank's place in a group over several hosts.
pub(crate) struct Hier {
    rank: usize,
    layout: Layout,
    /// This rank's.
    host: usize,
    place: usize,
    /// Of all ranks: messages, and operations in which each pair has something of its own.
    whole: Tcp,
    /// None where this rank is alone on its host.
    within: Option<Within>,
    /// By place: who stands for it on each host, and the connections among them if this rank is
    /// one.
    across: Vec<(Vec<usize>, Option<Tcp>)>,
    /// Kept between operations.
    scratch: Mutex<Vec<u8>>,
}

impl fmt::Debug for Hier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hier of rank {} on host {}", self.rank, self.host)
    }
}

impl Hier {
    /// Connects with all nodes of a group of that epoch. `layout` is theirs; `within` has those of
    /// this host, if there are several.
    pub(crate) fn connect(
        node: &Arc<Node>,
        nodes: &[usize],
        epoch: u64,
        layout: Layout,
        within: Option<Arc<dyn Transport>>,
        alarm: &Alarm,
        end: Instant,
    ) -> Result<Self, Error> {
        let whole = Tcp::open(node, nodes, epoch, alarm, end)?;
        Self::of(whole, layout, within, 0, alarm, end)
    }

    /// The same where all ranks are connected already. `id` is the same on all of them, and no
    /// other group has it.
    fn of(
        whole: Tcp,
        layout: Layout,
        within: Option<Arc<dyn Transport>>,
        id: u64,
        alarm: &Alarm,
        end: Instant,
    ) -> Result<Self, Error> {
        let rank = whole.rank();
        let mut across = Vec::new();
        for place in 0..layout.places() {
            let row = layout.row(place);
            // Splits are counted from 1, and nobody makes 2^40 of them.
            let number = id | (place as u64 + 1) << 40;
            let tcp = row.contains(&rank).then(|| whole.part(&row, number, alarm, end)).transpose()?;
            across.push((row, tcp));
        }
        // All rows measure at the same time, as they will send.
        for (_, tcp) in &mut across {
            tcp.as_mut().map(|tcp| tcp.measure(alarm, end)).transpose()?;
        }
        let (host, place) = layout.seat(rank);
        let within = within.map(|transport| Within { transport, seq: AtomicU64::new(0) });
        Ok(Self { rank, layout, host, place, whole, within, across, scratch: Mutex::default() })
    }
}

#[expect(unsafe_code, reason = "calls are addresses")]
impl Transport for Hier {
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        match call.kind {
            Kind::Gather { .. } | Kind::Scatter { .. } | Kind::AllToAll => {
                // SAFETY: the caller's promise.
                unsafe { self.whole.execute(call, seq, guard) }
            }
            _ => {
                guard.took(Way::Levels);
                let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the caller's promise.
                unsafe { self.levels(call, seq, guard, &mut scratch) }
            }
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        self.within.as_ref().map_or_else(|| Memory::private(bytes), |within| within.transport.alloc(bytes))
    }

    fn split(&self, members: &[usize], id: u64, guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error> {
        let hosts: Vec<_> = members.iter().map(|member| self.layout.seat(*member).0).collect();
        let layout = Layout::new(&hosts);
        let neighbours: Vec<_> =
            members.iter().map(|member| self.layout.seat(*member)).filter(|seat| seat.0 == self.host).collect();
        let within = match &self.within {
            Some(within) if neighbours.len() > 1 => {
                let places: Vec<_> = neighbours.iter().map(|(_, place)| *place).collect();
                Some(within.transport.split(&places, id, &guard.step(self.layout.on(self.host)))?)
            }
            _ => None,
        };
        match within {
            Some(within) if layout.hosts() == 1 => Ok(within),
            None if layout.hosts() == members.len() => self.whole.split(members, id, guard),
            within => {
                let end = Instant::now() + self.whole.patience();
                let whole = self.whole.part(members, id, guard.alarm(), end)?;
                Ok(Arc::new(Self::of(whole, layout, within, id, guard.alarm(), end)?))
            }
        }
    }

    fn plan(&self) -> String {
        let counts: Vec<_> = (0..self.layout.hosts()).map(|host| self.layout.on(host).len().to_string()).collect();
        let rails = self.layout.rails();
        let mut text =
            format!("{} hosts with {} ranks: shared memory within, TCP across\n", counts.len(), counts.join(", "));
        text += &format!(
            "all-reduce: through the first rank of each host up to {} bytes, by {rails} of each host above\n",
            steps::LEADERS
        );
        text += "reduce, broadcast: by who has the root's place on each host; all-gather, reduce-scatter, barrier: \
                 through the first ones\n";
        text += "gather, scatter, all-to-all: each pair over TCP; send, recv: shared memory within a host, else TCP\n";
        if let Some(within) = &self.within {
            text += &format!("within this host:\n{}", within.transport.plan());
        }
        if let Some((row, Some(tcp))) = self.across.get(self.place) {
            text += &format!("across, among ranks {row:?}:\n{}", tcp.plan());
        }
        text
    }

    fn spins(&self) -> u32 {
        self.within.as_ref().map_or(0, |within| within.transport.spins())
    }
}
