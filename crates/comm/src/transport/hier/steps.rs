//! Operations as steps: within hosts, across, within again.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Hier;
use crate::guard::Guard;
use crate::reduce::{self, Reduction, Stores};
use crate::transport::direct::slice;
use crate::{Call, Error, Kind, ReduceOp};

/// Up to so many bytes an all-reduce goes through the first rank of each host: one message across
/// instead of several.
pub(super) const LEADERS: usize = 32 * 1024;

/// How the levels reduce.
#[derive(Debug, Clone, Copy)]
struct Ops {
    within: ReduceOp,
    across: ReduceOp,
    /// Whether the result is a sum that is still to be divided by the number of ranks.
    divides: bool,
}

/// One operation on its way.
struct Operation<'a> {
    hier: &'a Hier,
    call: &'a Call,
    seq: u64,
    guard: &'a Guard<'a>,
    scratch: &'a mut Vec<u8>,
}

impl Hier {
    /// Does a collective.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn levels(
        &self,
        call: &Call,
        seq: u64,
        guard: &Guard<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let operation = Operation { hier: self, call, seq, guard, scratch };
        // SAFETY: the caller's promise.
        unsafe {
            match call.kind {
                Kind::AllReduce(op) => operation.all_reduce(op),
                Kind::Reduce { op, root } => operation.reduce(op, root),
                Kind::ReduceScatter(op) => operation.reduce_scatter(op),
                Kind::AllGather => operation.all_gather(),
                Kind::Broadcast { root } => operation.broadcast(root),
                _ => operation.barrier(),
            }
        }
    }
}

impl Operation<'_> {
    fn part(&self, kind: Kind, send: *const u8, recv: *mut u8, len: usize) -> Call {
        Call { deadline: self.call.deadline, ..Call::new(kind, self.call.dtype, send, recv, len) }
    }

    /// A step among the ranks of this host; nothing where there is only one.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    unsafe fn within(&self, call: &Call) -> Result<(), Error> {
        let Some(within) = &self.hier.within else { return Ok(()) };
        let seq = within.seq.fetch_add(1, Ordering::Relaxed);
        let guard = self.guard.step(self.hier.layout.on(self.hier.host));
        // SAFETY: the caller's promise.
        unsafe { within.transport.execute(call, seq, &guard) }
    }

    /// A step among those who stand for a place; nothing where this rank is none of them.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    unsafe fn across(&self, place: usize, call: &Call) -> Result<(), Error> {
        let (row, Some(tcp)) = &self.hier.across[place] else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { super::Transport::execute(tcp, call, self.seq, &self.guard.step(row)) }
    }

    fn size(&self) -> usize {
        self.call.dtype.size()
    }

    /// Whether this rank stands for that place on its host.
    fn stands_for(&self, place: usize) -> bool {
        self.hier.across[place].1.is_some()
    }

    fn has_neighbours(&self) -> bool {
        self.hier.within.is_some()
    }

    /// Averages of averages are right where hosts have equally many ranks, and cannot overflow;
    /// else sums are divided at the end.
    fn ops(&self, op: ReduceOp) -> Ops {
        let divides = op == ReduceOp::Avg && !self.hier.layout.is_even();
        let op = if divides { ReduceOp::Sum } else { op };
        Ops { within: op, across: op, divides }
    }

    /// # Safety
    /// `len` elements at `address` are this rank's to change.
    unsafe fn divide(&self, address: *mut u8, len: usize) {
        let what = Reduction { op: ReduceOp::Avg, dtype: self.call.dtype, ranks: self.hier.whole.size() };
        // SAFETY: the caller's promise; a target may be a source.
        unsafe { reduce::reduce(&what, &[address], &[address], len, Stores::Cached) };
    }

    unsafe fn all_reduce(self, op: ReduceOp) -> Result<(), Error> {
        let (call, size) = (self.call, self.size());
        let rails = if call.len * size <= LEADERS { 1 } else { self.hier.layout.rails() };
        let ops = self.ops(op);
        let parts: Vec<_> = (0..self.hier.layout.on(self.hier.host).len())
            .map(|place| if place < rails { slice(call.len, size, place, rails) } else { (call.len, 0) })
            .collect();
        let counts: Arc<[usize]> = parts.iter().map(|(_, len)| *len).collect();
        let (at, len) = parts[self.hier.place];
        let own = call.recv.wrapping_add(at * size);
        let first = match rails {
            1 => self.part(Kind::Reduce { op: ops.within, root: 0 }, call.send, own, call.len),
            _ => Call {
                counts: Some(Arc::clone(&counts)),
                ..self.part(Kind::ReduceScatter(ops.within), call.send, own, len)
            },
        };
        let last = match rails {
            1 => self.part(Kind::Broadcast { root: 0 }, call.recv, call.recv, call.len),
            _ => Call { counts: Some(counts), ..self.part(Kind::AllGather, own, call.recv, len) },
        };
        let source = if self.has_neighbours() { own.cast_const() } else { call.send };
        // SAFETY: the slice is within the vector that the caller promises, and of this rank alone
        // between the first step and the last.
        unsafe {
            self.within(&first)?;
            if self.hier.place < rails {
                self.across(self.hier.place, &self.part(Kind::AllReduce(ops.across), source, own, len))?;
                if ops.divides {
                    self.divide(own, len);
                }
            }
            self.within(&last)
        }
    }

    unsafe fn reduce(mut self, op: ReduceOp, root: usize) -> Result<(), Error> {
        let call = self.call;
        let (home, place) = self.hier.layout.seat(root);
        let ops = self.ops(op);
        let is_root = self.hier.rank == root;
        let sum = match self.stands_for(place) && self.has_neighbours() {
            true if is_root => call.recv,
            true => self.room(call.len),
            // Alone on its host, or without a part across.
            false => call.recv,
        };
        let source = if self.has_neighbours() { sum.cast_const() } else { call.send };
        let stand_in = self.hier.layout.stand_in(self.hier.host, place);
        // SAFETY: whoever stands for the root has memory for the sum; the root's is what the caller
        // promises.
        unsafe {
            self.within(&self.part(Kind::Reduce { op: ops.within, root: stand_in }, call.send, sum, call.len))?;
            self.across(place, &self.part(Kind::Reduce { op: ops.across, root: home }, source, call.recv, call.len))?;
            if is_root && ops.divides {
                self.divide(call.recv, call.len);
            }
        }
        Ok(())
    }

    unsafe fn broadcast(self, root: usize) -> Result<(), Error> {
        let call = self.call;
        let (home, place) = self.hier.layout.seat(root);
        let data = if self.hier.rank == root { call.send.cast_mut() } else { call.recv };
        let stand_in = self.hier.layout.stand_in(self.hier.host, place);
        // SAFETY: the root's data is only read; the others' is what the caller promises.
        unsafe {
            self.across(place, &self.part(Kind::Broadcast { root: home }, data, data, call.len))?;
            self.within(&self.part(Kind::Broadcast { root: stand_in }, data, data, call.len))
        }
    }

    unsafe fn barrier(self) -> Result<(), Error> {
        // SAFETY: a barrier touches no memory.
        unsafe {
            self.within(&Call::barrier())?;
            self.across(0, &Call::barrier())?;
            self.within(&Call::barrier())
        }
    }

    /// Ranks in the order of their hosts.
    fn by_host(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.hier.layout.hosts()).flat_map(|host| self.hier.layout.on(host).iter().copied())
    }

    /// Elements of the pieces of each host.
    fn blocks(&self) -> Arc<[usize]> {
        let of = |host| self.hier.layout.on(host).iter().map(|rank| self.call.piece(*rank)).sum();
        (0..self.hier.layout.hosts()).map(of).collect()
    }

    /// Elements of all pieces.
    fn total(&self) -> usize {
        self.blocks().iter().sum()
    }

    /// Elements before this host's block, where pieces lie in the order of hosts.
    fn block_at(&self) -> usize {
        self.blocks()[..self.hier.host].iter().sum()
    }

    /// Elements of the pieces of this host's ranks.
    fn pieces_here(&self) -> Arc<[usize]> {
        self.hier.layout.on(self.hier.host).iter().map(|rank| self.call.piece(*rank)).collect()
    }

    /// Memory for so many elements.
    fn room(&mut self, len: usize) -> *mut u8 {
        let bytes = len * self.size();
        if self.scratch.len() < bytes {
            *self.scratch = vec![0; bytes.next_multiple_of(4096)];
        }
        self.scratch.as_mut_ptr()
    }

    /// Copies pieces from the order of ranks to that of hosts, or back.
    ///
    /// # Safety
    /// Both have room for all pieces.
    unsafe fn reorder(&self, from: *const u8, to: *mut u8, to_hosts: bool) {
        let (mut at, size) = (0, self.size());
        for rank in self.by_host() {
            let (offset, bytes) = (self.call.offset(rank) * size, self.call.piece(rank) * size);
            let (source, target) = if to_hosts { (offset, at) } else { (at, offset) };
            // SAFETY: pieces are within the whole.
            unsafe { reduce::copy(to.wrapping_add(target), from.wrapping_add(source), bytes, Stores::Cached) };
            at += bytes;
        }
    }

    /// The pieces of a host come to all of its ranks; the first ones exchange them; each host's
    /// ranks get all from its first.
    unsafe fn all_gather(mut self) -> Result<(), Error> {
        let (call, size) = (self.call, self.size());
        let total = self.total();
        let in_order = self.hier.layout.is_in_order();
        let all = if in_order { call.recv } else { self.room(total) };
        let block = all.wrapping_add(self.block_at() * size);
        let (here, blocks) = (self.pieces_here(), self.blocks());
        let own = call.piece(self.hier.rank);
        // SAFETY: pieces and blocks are within the whole that the caller promises, or within
        // scratch memory of that size.
        unsafe {
            if self.has_neighbours() {
                self.within(&Call { counts: Some(here), ..self.part(Kind::AllGather, call.send, block, own) })?;
            } else {
                reduce::copy(block, call.send, own * size, Stores::Cached);
            }
            let len = blocks[self.hier.host];
            self.across(0, &Call { counts: Some(blocks), ..self.part(Kind::AllGather, block, all, len) })?;
            self.within(&self.part(Kind::Broadcast { root: 0 }, all, all, total))?;
            if !in_order {
                self.reorder(all, call.recv, false);
            }
        }
        Ok(())
    }

    /// The first rank of each host gets its host's sum of everything; the first ones scatter the
    /// blocks among themselves; each host's ranks take theirs from its first.
    unsafe fn reduce_scatter(mut self, op: ReduceOp) -> Result<(), Error> {
        let (call, size) = (self.call, self.size());
        let (total, blocks) = (self.total(), self.blocks());
        let ops = self.ops(op);
        let len = blocks[self.hier.host];
        let in_order = self.hier.layout.is_in_order();
        // The sum, the same in the order of hosts, and this host's block of the result.
        let sum = self.room(2 * total + len);
        let (ordered, block) = (sum.wrapping_add(total * size), sum.wrapping_add(2 * total * size));
        let source = if self.has_neighbours() { sum.cast_const() } else { call.send };
        // SAFETY: all of it is scratch memory of that size, or what the caller promises.
        unsafe {
            self.within(&self.part(Kind::Reduce { op: ops.within, root: 0 }, call.send, sum, total))?;
            if self.stands_for(0) {
                let source = if in_order {
                    source
                } else {
                    self.reorder(source, ordered, true);
                    ordered
                };
                let part = self.part(Kind::ReduceScatter(ops.across), source, block, len);
                self.across(0, &Call { counts: Some(blocks), ..part })?;
            }
            self.within(&self.part(Kind::Broadcast { root: 0 }, block, block, len))?;
            let before: usize = self.pieces_here()[..self.hier.place].iter().sum();
            let own = call.piece(self.hier.rank);
            reduce::copy(call.recv, block.wrapping_add(before * size), own * size, Stores::Cached);
            if ops.divides {
                self.divide(call.recv, own);
            }
        }
        Ok(())
    }
}
