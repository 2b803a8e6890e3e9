//! Ranks of one host: memory that all of them map, and flags in it.
//!
//! Every rank has a segment: a file in memory without a name, handed to the others as a file
//! descriptor, so nothing is left when the last process is gone. It begins with the rank's
//! [`control::Control`], and the rest is the heap for registered memory. A rank's flags are written
//! by it alone.
//!
//! Every collective begins with an arrival: each rank sets its flag, which carries number and
//! signature, and waits for all others'. That is the only synchronisation of short operations
//! (`flat`): what a rank gives is in the flag's own cache line, or in one of two slots taken in
//! turns. Nobody can be two operations ahead, so two are enough. Long operations on registered
//! memory go directly ([`super::direct`]): the arrival says where each rank's memory is, and a
//! second flag says that its share is done. Others go step by step through stages (`staged`).
//! Messages have mailboxes (`messages`).
//!
//! How arrivals, stages and mailboxes hand memory over is model-checked with loom (tests/loom.rs).

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

mod calibrate;
pub(crate) mod choice;
mod control;
mod cores;
pub(crate) mod flag;
mod flat;
mod large;
mod messages;
mod processor;
pub(crate) mod segment;
mod staged;
#[cfg(test)]
mod tests;
pub(crate) mod trial;
mod tuning;
mod writes;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use self::{
    choice::{Choice, Staging},
    control::Control,
    large::Results,
    segment::{Heap, Segment},
    tuning::{Machine, Tuning},
    writes::Writes,
};
use crate::{
    Call, Error, Kind, Memory,
    guard::{Backoff, Guard, Pace},
    timeline::Way,
    transport::{
        Transport,
        direct::{self, PerRank, View},
        wire::Wire,
    },
};

/// One rank's place in a group of ranks of one host.
#[derive(Debug)]
pub(crate) struct Shm {
    rank: usize,
    /// By rank in this group.
    controls: Vec<Control>,
    /// By rank in this group: the whole segment.
    segments: Vec<Arc<Segment>>,
    heap: Arc<Heap>,
    epoch: u64,
    machine: Machine,
    tuning: Tuning,
    choice: Choice,
    writes: Writes,
    results: Results,
    /// Operations of the trial, before the first proper one.
    tried: u64,
    /// Parcels of messages so far, by the other rank.
    sent: Vec<AtomicU64>,
    taken: Vec<AtomicU64>,
    /// A group that was split off has its control in the heap: where.
    own_control: Option<usize>,
}

/// Where a rank's memory is, beside its arrival at an operation on registered memory.
const NOWHERE: u64 = u64::MAX;

/// The size of each rank's segment in a group of `n`: what the machine has, as pages come only when
/// they are touched.
pub(crate) fn segment_bytes(n: usize) -> usize {
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<usize>().ok()
    });
    let most = (1_usize << 46) / n;
    memory.map_or(1 << 36, |kilobytes| kilobytes << 10).min(most).next_multiple_of(1 << 21) + control::bytes(n)
}

impl Shm {
    /// The transport of rank `rank`; `segments` are all ranks', made with [`segment_bytes`] and
    /// mapped here.
    pub(crate) fn new(rank: usize, segments: Vec<Arc<Segment>>, epoch: u64) -> Result<Self, Error> {
        let n = segments.len();
        if n > control::MOST_RANKS {
            let problem = format!(
                "{n} ranks on one host are more than the {} that shared memory is made for",
                control::MOST_RANKS
            );
            return Err(Error::Rendezvous { problem });
        }
        if let Some(short) = segments.iter().position(|segment| segment.bytes() < control::bytes(n)) {
            let problem =
                format!("rank {short}'s shared memory has {} bytes, too few for {n} ranks", segments[short].bytes());
            return Err(Error::Rendezvous { problem });
        }
        // SAFETY: the segments are long enough, page-aligned and new, so zero, and this keeps them
        // mapped.
        let controls = segments.iter().map(|segment| unsafe { Control::new(segment.address()) }).collect();
        let heap = Arc::new(Heap::new(Arc::clone(&segments[rank]), control::bytes(n)));
        Ok(Self::with(rank, controls, segments, heap, epoch, Machine::assumed(), Choice::known(), None))
    }

    #[expect(clippy::too_many_arguments, reason = "what a place in a group is made of")]
    fn with(
        rank: usize,
        controls: Vec<Control>,
        segments: Vec<Arc<Segment>>,
        heap: Arc<Heap>,
        epoch: u64,
        machine: Machine,
        choice: Choice,
        own_control: Option<usize>,
    ) -> Self {
        let n = controls.len();
        let none = || (0..n).map(|_| AtomicU64::new(0)).collect();
        let (tuning, writes, results) =
            (Tuning::new(n, machine), Writes::default(), Results::new(choice.large, machine.cache));
        let (sent, taken) = (none(), none());
        let new = Self {
            rank,
            controls,
            segments,
            heap,
            epoch,
            machine,
            tuning,
            choice,
            writes,
            results,
            tried: 0,
            sent,
            taken,
            own_control,
        };
        new.tuned(machine, choice)
    }

    /// The same with what is known of the machine, before the first operation.
    fn tuned(mut self, machine: Machine, choice: Choice) -> Self {
        self.machine = machine;
        self.choice = choice;
        self.results = Results::new(choice.large, machine.cache);
        self.tuning = Tuning::new(self.size(), machine);
        self.controls.iter_mut().for_each(|control| *control = control.with_turns(self.tuning.turns));
        self.writes = Writes::new(self.tuning.turns);
        self
    }

    /// How an operation goes through stages in which a rank gives at most so many bytes.
    fn staging(&self, given: usize) -> Staging {
        let staging = self.choice.of(given);
        // Ranks that take each other's caches away leave nothing there for the next turn.
        if self.tuning.turns { staging } else { Staging { room: 0, ..staging } }
    }

    /// As on a machine with a core for each rank.
    #[cfg(test)]
    fn with_turns(self) -> Self {
        let (machine, choice) = (Machine { cores: self.size(), ..self.machine }, self.choice);
        self.tuned(machine, choice)
    }

    fn size(&self) -> usize {
        self.controls.len()
    }

    fn own(&self) -> &Control {
        &self.controls[self.rank]
    }

    /// The other ranks, beginning with the next.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, n) = (self.rank, self.size());
        (1..n).map(move |i| (rank + i) % n)
    }

    /// Waits until `ready` is so for every other rank.
    #[inline]
    fn wait(&self, guard: &Guard<'_>, ready: impl Fn(&Control) -> bool) -> Result<(), Error> {
        for other in self.others() {
            self.wait_for(guard, other, || ready(&self.controls[other]), &ready)?;
        }
        Ok(())
    }

    /// Waits for one rank; `all` tells who else is missing when the time is over.
    #[inline]
    fn wait_for(
        &self,
        guard: &Guard<'_>,
        other: usize,
        ready: impl Fn() -> bool,
        all: &dyn Fn(&Control) -> bool,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        while !ready() {
            let missing = || {
                let mut missing: Vec<_> =
                    self.others().filter(|rank| *rank == other || !all(&self.controls[*rank])).collect();
                missing.sort_unstable();
                missing
            };
            if let Pace::Sleep(time) = guard.turn(&mut backoff, &missing)? {
                std::thread::sleep(time);
            }
        }
        Ok(())
    }

    /// Waits for all others' arrival at operation `seq` with the same signature.
    #[inline]
    fn meet(&self, seq: u64, signature: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let arrived = |control: &Control| control.arrival(seq).has_arrived(seq, signature).is_some();
        for other in self.others() {
            self.wait_for(guard, other, || arrived(&self.controls[other]), &arrived)?;
            if self.controls[other].arrival(seq).has_arrived(seq, signature) == Some(false) {
                return Err(guard.dispute());
            }
        }
        Ok(())
    }

    /// Where this rank's memory is in its segment, if it is registered.
    fn offset(&self, address: *const u8) -> Option<u64> {
        let segment = &self.segments[self.rank];
        let offset = address.addr().checked_sub(segment.address().addr())?;
        (offset < segment.bytes()).then_some(offset as u64)
    }

    /// A longer collective: arrives saying where the memory is; directly if that of all is
    /// registered, else through the stages.
    unsafe fn long(&self, call: &Call, seq: u64, signature: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let (shows_send, shows_recv) = shown(call.kind, self.rank);
        let send = if shows_send { self.offset(call.send) } else { Some(0) };
        let recv = if shows_recv { self.offset(call.recv) } else { Some(0) };
        let registered = send.is_some() && recv.is_some();
        let n = self.size();
        let given = flat::gift(call, n);
        let range = staged::Steps::new(call, n, self.staging(given));
        // SAFETY: the caller's promise.
        unsafe {
            if !registered {
                // Nobody reads this stage any more: all have come to the operation before, so they
                // have left the one before that.
                self.stage(call, seq, 0, &range);
            }
            let note = self.own().inline(seq).cast::<u64>();
            note.write(if registered { send.unwrap_or(NOWHERE) } else { NOWHERE });
            note.add(1).write(recv.unwrap_or(NOWHERE));
        }
        self.own().arrival(seq).arrive(seq, signature);
        self.meet(seq, signature, guard)?;
        // SAFETY: written before the arrivals that were seen, and not again before this rank has
        // come to the next operation but one.
        let note = |other: usize| unsafe {
            let note = self.controls[other].inline(seq).cast::<u64>();
            (note.read(), note.add(1).read())
        };
        let notes = PerRank::new(n, note);
        if notes.iter().any(|(send, _)| *send == NOWHERE) {
            guard.took(Way::Staged);
            // SAFETY: the caller's promise; whoever was registered has not staged yet.
            return unsafe { self.staged(call, seq, &range, registered, guard) };
        }
        guard.took(Way::Direct);
        let views = PerRank::new(n, |other| {
            if other == self.rank {
                return View { send: call.send, recv: call.recv, mine: call.offset(other) };
            }
            let base = self.segments[other].address();
            let (send, recv) = notes[other];
            View {
                send: base.wrapping_add(send as usize),
                recv: base.wrapping_add(recv as usize),
                mine: self.rank * call.len,
            }
        });
        // SAFETY: all have come with the same signature, and none leaves before all are done with
        // their shares.
        self.results.store(2 * given * n, |stores| unsafe { direct::share(call, self.rank, &views, stores) });
        self.own().done().advance(seq, 0);
        self.wait(guard, |control| control.done().has_done(seq, 0))
    }
}

impl Transport for Shm {
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let (signature, seq) = (guard.signature(call), seq + self.tried);
        // SAFETY: the caller's promise.
        unsafe {
            match call.kind {
                Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } => unreachable!("messages go by the wire"),
                Kind::AllToAll if call.counts.is_some() => self.uneven_all_to_all(call, seq, signature, guard),
                _ => match flat::gift(call, self.size()) {
                    given if given <= control::INLINE => {
                        guard.took(Way::Inline);
                        self.inline(call, given, seq, guard)
                    }
                    given if given <= self.tuning.flat(call.kind) => {
                        guard.took(Way::Flat);
                        self.flat(call, given, seq, guard)
                    }
                    _ => self.long(call, seq, signature, guard),
                },
            }
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        self.heap.alloc(bytes)
    }

    fn split(&self, members: &[usize], id: u64, guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error> {
        let own = self.heap.alloc_control(members.len())?;
        let (flag, place) = self.own().split(id);
        // SAFETY: this rank alone writes its place; its readers of the split before last have left
        // that split, as all agreed on this one since.
        unsafe { place.write(own as u64) };
        flag.arrive(id, 0);
        let mut controls = Vec::new();
        for member in members {
            let (flag, place) = self.controls[*member].split(id);
            let ready = || flag.has_arrived(id, 0).is_some();
            if *member != self.rank {
                self.wait_for(guard, *member, ready, &|_| true)?;
            }
            // SAFETY: written before the flag that was seen; the control that it names is in the
            // member's heap, zero, and as long as the group.
            controls.push(unsafe { Control::new(self.segments[*member].address().add(place.read() as usize)) });
        }
        let rank = members.iter().position(|member| *member == self.rank).expect("only members split");
        let segments = members.iter().map(|member| Arc::clone(&self.segments[*member])).collect();
        Ok(Arc::new(Self::with(
            rank,
            controls,
            segments,
            Arc::clone(&self.heap),
            self.epoch,
            self.machine,
            self.choice,
            Some(own),
        )))
    }

    fn plan(&self) -> String {
        self.tuning.plan(&self.choice)
    }

    fn spins(&self) -> u32 {
        self.tuning.spins
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        if let Some(own) = self.own_control {
            self.controls.iter().for_each(|control| control.left(self.rank).store(1, Ordering::Release));
            self.heap.retire(own, self.size());
        }
    }
}

/// Which of a rank's memory others reach in a direct operation: what it sends, what it receives.
fn shown(kind: Kind, rank: usize) -> (bool, bool) {
    let is_root = kind.root() == Some(rank);
    match kind {
        Kind::AllReduce(_) => (true, true),
        Kind::Reduce { .. } => (true, is_root),
        Kind::ReduceScatter(_) | Kind::AllToAll => (true, false),
        Kind::AllGather => (false, true),
        Kind::Broadcast { .. } => (is_root, !is_root),
        Kind::Gather { .. } => (false, is_root),
        Kind::Scatter { .. } => (is_root, false),
        Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } | Kind::Barrier => (false, false),
    }
}

/// The parts of ranks of one process, each made ready by `ready`; every rank maps every segment by
/// itself.
pub(crate) fn connect(n: usize, epoch: u64, ready: fn(Shm) -> Shm) -> Result<Vec<Arc<dyn Transport>>, Error> {
    let made = (0..n).map(|_| Segment::create(segment_bytes(n).min(1 << 32))).collect::<Result<Vec<_>, _>>()?;
    let map = |segment: &Segment| {
        let file =
            segment.file().try_clone_to_owned().map_err(|source| Error::io("cannot duplicate a file", source))?;
        Segment::map(file).map(Arc::new)
    };
    let world = (0..n).map(|rank| {
        let segments = made.iter().map(map).collect::<Result<Vec<_>, Error>>()?;
        Ok(Arc::new(ready(Shm::new(rank, segments, epoch)?)) as Arc<dyn Transport>)
    });
    world.collect()
}
