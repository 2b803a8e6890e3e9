//! Data over TCP: connections between all ranks, for collectives and, apart from them, for messages
//! of two.

mod collect;
mod flow;
mod messages;
mod ring;
mod socket;

use std::cell::Cell;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::collect::Operation;
use self::flow::{Broken, Head, Stop};
use self::messages::Messages;
use super::Transport;
use super::wire::Wire;
use crate::cost::{self, Algorithm, Link};
use crate::guard::{Alarm, Guard, Stall, Terms, Watch};
use crate::node::Node;
use crate::rendezvous::{Name, Purpose};
use crate::timeline::Way;
use crate::watch::Fate;
use crate::{Call, DType, Error, Kind, Memory, ReduceOp};

/// TCP between all ranks of a group.
#[derive(Debug)]
pub(crate) struct Tcp {
    node: Arc<Node>,
    rank: usize,
    /// Rank to node.
    nodes: Vec<usize>,
    group: u64,
    epoch: u64,
    link: Link,
    /// By what all ranks know of each other, so that all choose alike.
    is_within_host: bool,
    collectives: Mutex<Lanes>,
    messages: Messages,
}

/// Connections for collectives, by rank, this rank's own left out; and memory that operations use
/// again.
#[derive(Debug)]
struct Lanes {
    streams: Vec<TcpStream>,
    scratch: Vec<u8>,
}

/// What is taken for granted before anything was measured: a local network.
const UNMEASURED: Link = Link { latency: 50e-6, bandwidth: 125e6 };

impl Tcp {
    /// How it goes, as [`Transport::plan`] says.
    fn way(&self, call: &Call) -> Way {
        let is_short = call.len * call.dtype.size() <= self.flat();
        match call.kind {
            Kind::Barrier => Way::Flat,
            _ if ring::goes_around(call, self.nodes.len(), self.is_within_host) => Way::Ring,
            Kind::AllReduce(_) if self.nodes.len() == 2 || is_short => Way::Flat,
            Kind::AllReduce(_) | Kind::Reduce { .. } => Way::Halves,
            Kind::Broadcast { .. } if self.nodes.len() > 2 && !is_short => Way::Chain,
            _ => Way::Pairs,
        }
    }

    /// Connects with all nodes of a group of that epoch, and measures the links.
    pub(crate) fn connect(
        node: &Arc<Node>,
        nodes: &[usize],
        epoch: u64,
        watch: &dyn Watch,
        end: Instant,
    ) -> Result<Self, Error> {
        let mut tcp = Self::open(node, nodes, epoch, watch.alarm(), end)?;
        tcp.measure(watch.alarm(), end)?;
        Ok(tcp)
    }

    /// Connects with all nodes of a group of that epoch.
    pub(crate) fn open(
        node: &Arc<Node>,
        nodes: &[usize],
        epoch: u64,
        alarm: &Alarm,
        end: Instant,
    ) -> Result<Self, Error> {
        Self::among(node, nodes, node.group, epoch, alarm, end)
    }

    /// The same among some ranks, named by their numbers here. `id` is the same on all of them, and
    /// no other group has it.
    pub(crate) fn part(&self, members: &[usize], id: u64, alarm: &Alarm, end: Instant) -> Result<Self, Error> {
        let nodes: Vec<_> = members.iter().map(|member| self.nodes[*member]).collect();
        // A number that all members compute alike, and that no other group of this epoch has but by
        // a chance of 2^-64.
        let group = nodes.iter().fold(self.group ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15), |hash, node| {
            (hash.rotate_left(17) ^ *node as u64).wrapping_mul(0xff51_afd7_ed55_8ccd)
        });
        let part = Self::among(&self.node, &nodes, group, self.epoch, alarm, end)?;
        Ok(Self { link: self.link, ..part })
    }

    fn among(
        node: &Arc<Node>,
        nodes: &[usize],
        group: u64,
        epoch: u64,
        alarm: &Alarm,
        end: Instant,
    ) -> Result<Self, Error> {
        let rank = nodes.iter().position(|each| *each == node.me).expect("a rank makes only groups that it is in");
        let mut streams = [Vec::new(), Vec::new()];
        for (list, purpose) in streams.iter_mut().zip([Purpose::Data, Purpose::Messages]) {
            for (place, other) in nodes.iter().enumerate().filter(|(_, other)| **other != node.me) {
                let stream = node.reach(*other, Name { purpose, group, epoch }, Some(alarm), end)?;
                socket::prepare(&stream, place == (rank + 1) % nodes.len())
                    .map_err(|error| Error::io(format!("set up the data connection to rank {other}"), error))?;
                list.push(stream);
            }
        }
        let [data, messages] = streams;
        let collectives = Mutex::new(Lanes { streams: data, scratch: Vec::new() });
        let host = node.member(nodes[0]).host;
        let is_within_host = nodes.iter().all(|other| node.member(*other).host == host);
        let (node, nodes, messages) = (Arc::clone(node), nodes.to_vec(), Messages::new(messages));
        Ok(Self { node, rank, nodes, group, epoch, link: UNMEASURED, is_within_host, collectives, messages })
    }

    /// Measures the links, with operations of this transport; the slowest rank's figures, so that
    /// all choose alike.
    pub(crate) fn measure(&mut self, alarm: &Alarm, end: Instant) -> Result<(), Error> {
        self.link = self.measured(alarm, end.saturating_duration_since(Instant::now()))?;
        Ok(())
    }

    fn measured(&self, alarm: &Alarm, limit: Duration) -> Result<Link, Error> {
        let n = self.nodes.len();
        let stall = Stall::default();
        let terms = Terms { epoch: self.epoch, alarm, limit, spins: 0, stall: &stall, watch: None };
        // Numbers that no operation of the group will have.
        let number = Cell::new(u64::MAX / 2);
        let timed = |call: &Call| {
            number.set(number.get() + 1);
            let begun = Instant::now();
            let guard = Guard::new(call, self.rank, number.get(), &terms);
            #[expect(unsafe_code, reason = "calls are addresses")]
            // SAFETY: the calls below are of vectors that outlive them.
            unsafe { self.execute(call, number.get(), &guard) }.map(|()| begun.elapsed().as_secs_f64())
        };
        if n == 1 {
            return Ok(UNMEASURED);
        }
        let mut figures = cost::probe(n, &mut || timed(&Call::barrier()), &mut |own, all| {
            timed(&Call::new(Kind::AllGather, DType::U8, own.as_ptr(), all.as_mut_ptr(), own.len()))
        })?;
        let address = figures.as_mut_ptr().cast::<u8>();
        timed(&Call::new(Kind::AllReduce(ReduceOp::Max), DType::F64, address, address, 2))?;
        Ok(Link::of_probes(n, figures))
    }

    /// What a broken connection means; everybody is told.
    fn lost(&self, broken: &Broken, guard: &Guard<'_>) -> Error {
        let rank = self.rank_of(broken.lane);
        let how = if self.has_left(rank, guard) { "it has left the group" } else { &broken.how };
        self.node.mesh.lose(self.nodes[rank], how);
        guard.check().err().unwrap_or_else(|| Error::PeerDied {
            rank: guard.member(rank),
            how: how.to_owned(),
            at: guard.at(),
        })
    }

    /// Whether a rank whose connection ended has said goodbye.
    fn has_left(&self, rank: usize, guard: &Guard<'_>) -> bool {
        let node = self.nodes[rank];
        // The control connection knows better how it ended, and tells in the same moment.
        let end = Instant::now() + Duration::from_millis(50);
        while guard.check().is_ok() && self.node.mesh.fate(node) == Fate::Alive && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.node.mesh.fate(node) == Fate::Left
    }

    fn stopped(&self, stop: Stop, guard: &Guard<'_>) -> Error {
        match stop {
            Stop::Error(error) => error,
            Stop::Connection(broken) => self.lost(&broken, guard),
        }
    }

    fn flat(&self) -> usize {
        self.link.flat_limit(self.nodes.len())
    }
}

#[expect(unsafe_code, reason = "calls are addresses")]
impl Transport for Tcp {
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let head = Head { seq, signature: guard.signature(call) };
        guard.took(self.way(call));
        let done = match call.kind.peer() {
            // SAFETY: the caller's promise.
            Some(peer) => unsafe {
                self.messages.exchange(self.lane(peer), call, head, guard, &|lane| self.rank_of(lane))
            },
            None => {
                let mut lanes = self.collectives.lock().unwrap_or_else(PoisonError::into_inner);
                let Lanes { streams, scratch } = &mut *lanes;
                let operation = Operation {
                    lanes: streams,
                    rank: self.rank,
                    size: self.nodes.len(),
                    call,
                    head,
                    guard,
                    scratch,
                    is_within_host: self.is_within_host,
                    flat: self.flat(),
                };
                // SAFETY: the caller's promise.
                unsafe { operation.run() }
            }
        };
        done.map_err(|stop| self.stopped(stop, guard))
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        Memory::private(bytes)
    }

    fn split(&self, members: &[usize], id: u64, guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error> {
        let end = Instant::now() + self.patience();
        Ok(Arc::new(self.part(members, id, guard.alarm(), end)?))
    }

    fn plan(&self) -> String {
        let (n, flat) = (self.nodes.len(), self.flat());
        let Link { latency, bandwidth } = self.link;
        let mut text = format!(
            "tcp: one way {:.0} us, {:.0} MB/s per rank (measured when the group was made)\n",
            latency * 1e6,
            bandwidth / 1e6
        );
        if n == 2 {
            text += "all-reduce: flat (everything to the other)";
            text += &if self.is_within_host {
                format!(", ring from {} bytes, as both are on one host\n", cost::LONG * n)
            } else {
                "\n".to_owned()
            };
        } else {
            text += &format!(
                "all-reduce: flat (everything to everybody) up to {flat} bytes, halves (reduce-scatter, all-gather) \
                 above\n"
            );
            text += &format!("broadcast: from the root to all up to {flat} bytes, along a chain above\n");
        }
        if n > 2 {
            text += &format!(
                "all-reduce, equal reduce-scatter and all-gather: ring from {} bytes (16-bit floats: the greatest and \
                 the least only)\n",
                cost::LONG * n
            );
        }
        text += "reduce: halves, results to the root; reduce-scatter, all-gather, all-to-all: each pair, large pieces \
                 in turn\n";
        for bytes in [4, 65_536, 1 << 20, 16 << 20] {
            let goes_around = n == 2 && self.is_within_host && bytes >= cost::LONG * n;
            let algorithm = if goes_around { Algorithm::Ring } else { self.link.chosen(n, bytes) };
            let time = self.link.all_reduce(algorithm, n, bytes);
            text += &format!("all-reduce of {bytes} bytes: {algorithm:?}, about {:.3} ms\n", time.as_secs_f64() * 1e3);
        }
        text
    }

    fn spins(&self) -> u32 {
        0
    }
}

impl Tcp {
    fn lane(&self, rank: usize) -> usize {
        if rank < self.rank { rank } else { rank - 1 }
    }

    fn rank_of(&self, lane: usize) -> usize {
        if lane < self.rank { lane } else { lane + 1 }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    /// How long to wait for ranks to connect.
    pub(crate) fn patience(&self) -> Duration {
        self.node.config.patience
    }
}
