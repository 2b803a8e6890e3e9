//! Collectives as transfers. Elements are reduced in rank order: all sources of an element come to
//! one place first; but for long vectors that go around among more than two ranks
//! ([`super::ring`]).
//!
//! *Flat*: everybody sends everything to everybody and reduces by itself: one delay, (n-1) S bytes.
//! *Halves*: everybody gets its slice of all vectors, reduces it and sends the result to all: two
//! delays, 2 (n-1)/n S bytes; results go out while later parts still come in. Which one is cheaper
//! says the model. Large pieces go to the other ranks in turn, each rank beginning with the next
//! one, so that every receiver has one sender at a time.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::net::TcpStream;
use std::ptr;

use super::flow::{self, Head, In, Order, Out, Stop};
use super::ring;
use crate::guard::Guard;
use crate::reduce::{self, Reduction, Stores};
use crate::transport::direct::slice;
use crate::{Call, Kind};

/// Bytes of a vector that are worked on at a time: bounds the memory for what comes.
const BLOCK: usize = 32 << 20;
/// Bytes of one source that are reduced at a time.
const CHUNK: usize = 64 * 1024;
/// Pieces above this go to other ranks in turn.
const IN_TURN: usize = 32 * 1024;

/// One operation on its way.
pub(super) struct Operation<'a> {
    pub(super) lanes: &'a [TcpStream],
    /// Connections have the numbers of ranks, this rank's own left out.
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) call: &'a Call,
    pub(super) head: Head,
    pub(super) guard: &'a Guard<'a>,
    /// Kept between operations.
    pub(super) scratch: &'a mut Vec<u8>,
    /// Whether all ranks are on one host.
    pub(super) is_within_host: bool,
    /// Up to how many bytes everybody sends everything to everybody.
    pub(super) flat: usize,
}

impl Operation<'_> {
    pub(super) fn lane(&self, rank: usize) -> usize {
        if rank < self.rank { rank } else { rank - 1 }
    }

    /// The others, beginning with the next one: what this rank sends in turn.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |step| (rank + step) % size)
    }

    /// # Safety
    /// The transfers' addresses are valid, and `step` keeps its own promises.
    pub(super) unsafe fn flow(
        &self,
        outs: &mut [Out],
        ins: &mut [In],
        order: Order,
        step: &mut dyn FnMut(&mut [Out], &[In]),
    ) -> Result<(), Stop> {
        let own = self.rank;
        let rank_of = move |lane: usize| if lane < own { lane } else { lane + 1 };
        // SAFETY: the caller's promise.
        unsafe { flow::run(self.lanes, &rank_of, outs, ins, order, self.guard, step) }
    }

    fn order(bytes: usize) -> Order {
        if bytes > IN_TURN { Order::InTurn } else { Order::AtOnce }
    }

    /// Does the operation.
    ///
    /// # Safety
    /// As for [`crate::transport::Transport::execute`].
    pub(super) unsafe fn run(mut self) -> Result<(), Stop> {
        let call = self.call;
        let size = call.dtype.size();
        // SAFETY: the caller's promise holds for every part.
        unsafe {
            match call.kind {
                Kind::Barrier => self.all_reduce_flat(ptr::null(), ptr::null_mut(), 0, true),
                Kind::AllReduce(_) => {
                    let around = ring::goes_around(call, self.size, self.is_within_host);
                    let mut at = 0;
                    loop {
                        let len = (call.len - at).min(BLOCK / size);
                        let (send, recv) = (call.send.wrapping_add(at * size), call.recv.wrapping_add(at * size));
                        if around {
                            self.all_reduce_around(send, recv, len, at == 0)?;
                        } else if self.is_flat(len * size) {
                            self.all_reduce_flat(send, recv, len, at == 0)?;
                        } else {
                            self.halves(send, Some(recv), len, at == 0, None)?;
                        }
                        at += len;
                        if at >= call.len {
                            return Ok(());
                        }
                    }
                }
                Kind::Reduce { root, .. } => {
                    let mut at = 0;
                    loop {
                        let len = (call.len - at).min(BLOCK / size);
                        let recv = (self.rank == root).then(|| call.recv.wrapping_add(at * size));
                        self.halves(call.send.wrapping_add(at * size), recv, len, at == 0, Some(root))?;
                        at += len;
                        if at >= call.len {
                            return Ok(());
                        }
                    }
                }
                Kind::ReduceScatter(_) if ring::goes_around(call, self.size, self.is_within_host) => {
                    self.reduce_scatter_around()
                }
                Kind::ReduceScatter(_) => self.reduce_scatter(),
                Kind::AllGather if ring::goes_around(call, self.size, self.is_within_host) => self.all_gather_around(),
                Kind::AllGather => self.all_gather(),
                Kind::Broadcast { root } => self.broadcast(root),
                Kind::Gather { root } => self.gather(root),
                Kind::Scatter { root } => self.scatter(root),
                Kind::AllToAll => self.all_to_all(),
                Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } => {
                    unreachable!("messages have connections of their own")
                }
            }
        }
    }

    fn is_flat(&self, bytes: usize) -> bool {
        self.size == 2 || bytes <= self.flat
    }

    fn reduction(&self) -> Option<Reduction> {
        let op = self.call.kind.op()?;
        Some(Reduction { op, dtype: self.call.dtype, ranks: self.size })
    }

    /// Everything to everybody; each reduces by itself.
    unsafe fn all_reduce_flat(&mut self, send: *const u8, recv: *mut u8, len: usize, first: bool) -> Result<(), Stop> {
        let bytes = len * self.call.dtype.size();
        let scratch = room(self.scratch, bytes * (self.size - 1));
        let head = first.then_some(self.head);
        let mut outs: Vec<_> = self.others().map(|to| Out::new(self.lane(to), head, send, bytes)).collect();
        let mut ins: Vec<_> =
            (0..self.size - 1).map(|lane| In::new(lane, head, scratch.wrapping_add(lane * bytes), bytes)).collect();
        let sources = self.sources(send, scratch, bytes);
        let mut reducer = Reducer {
            what: self.reduction(),
            sources,
            target: recv,
            size: self.call.dtype.size(),
            len: bytes,
            done: 0,
        };
        // In place, an element may change only after it has gone to all.
        let mut step = |outs: &mut [Out], ins: &[In]| {
            let come = ins.iter().map(|each| each.done).chain(outs.iter().map(|out| out.done)).min().unwrap_or(bytes);
            // SAFETY: so many bytes of all sources are there, and nobody reads the target's any
            // more.
            unsafe { reducer.advance(come) };
        };
        // SAFETY: the vectors and the scratch memory are valid for `bytes`.
        unsafe { self.flow(&mut outs, &mut ins, Self::order(bytes), &mut step) }
    }

    /// Own vector and what came of the others, in rank order.
    fn sources(&self, own: *const u8, scratch: *mut u8, stride: usize) -> Vec<*const u8> {
        (0..self.size)
            .map(
                |rank| {
                    if rank == self.rank { own } else { scratch.wrapping_add(self.lane(rank) * stride).cast_const() }
                },
            )
            .collect()
    }

    /// Everybody reduces its slice, and sends the result to all, or to `only` one.
    unsafe fn halves(
        &mut self,
        send: *const u8,
        recv: Option<*mut u8>,
        len: usize,
        first: bool,
        only: Option<usize>,
    ) -> Result<(), Stop> {
        let (n, size) = (self.size, self.call.dtype.size());
        let part = |rank: usize| {
            let (at, count) = slice(len, size, rank, n);
            (at * size, count * size)
        };
        let (own_at, own) = part(self.rank);
        // What comes of my slice; and the result, where the vector's own place for it is not mine
        // to write.
        let scratch = room(self.scratch, own * n);
        let result = recv.map_or_else(|| scratch.wrapping_add((n - 1) * own), |recv| recv.wrapping_add(own_at));
        let head = first.then_some(self.head);
        let gets = |rank: usize| only.is_none_or(|only| only == rank);
        let mut outs = Vec::with_capacity(2 * n);
        let mut ins = Vec::with_capacity(2 * n);
        for to in self.others() {
            let (at, bytes) = part(to);
            outs.push(Out::new(self.lane(to), head, send.wrapping_add(at), bytes));
        }
        let results = outs.len();
        for to in self.others().filter(|to| gets(*to)) {
            outs.push(Out { allowed: 0, ..Out::new(self.lane(to), None, result, own) });
        }
        for lane in 0..n - 1 {
            ins.push(In::new(lane, head, scratch.wrapping_add(lane * own), own));
        }
        if let Some(recv) = recv.filter(|_| gets(self.rank)) {
            for from in self.others() {
                let (at, bytes) = part(from);
                ins.push(In::new(self.lane(from), None, recv.wrapping_add(at), bytes));
            }
        }
        let sources = self.sources(send.wrapping_add(own_at), scratch, own);
        let mut reducer = Reducer { what: self.reduction(), sources, target: result, size, len: own, done: 0 };
        let mut step = |outs: &mut [Out], ins: &[In]| {
            let come = ins[..n - 1].iter().map(|each| each.done).min().unwrap_or(own);
            // SAFETY: so many bytes of all sources are there. Of the own slice nobody sends the
            // unreduced bytes.
            let done = unsafe { reducer.advance(come) };
            outs[results..].iter_mut().for_each(|out| out.allowed = done);
        };
        // SAFETY: slices are within the vectors. What comes into another rank's slice has passed
        // that rank, to which our bytes of it have gone before.
        unsafe { self.flow(&mut outs, &mut ins, Self::order(len * size / n), &mut step) }
    }

    unsafe fn reduce_scatter(&mut self) -> Result<(), Stop> {
        let (call, n, size) = (self.call, self.size, self.call.dtype.size());
        let own = call.piece(self.rank) * size;
        let scratch = room(self.scratch, own * (n - 1));
        let mut outs: Vec<_> = self
            .others()
            .map(|to| {
                Out::new(
                    self.lane(to),
                    Some(self.head),
                    call.send.wrapping_add(call.offset(to) * size),
                    call.piece(to) * size,
                )
            })
            .collect();
        let mut ins: Vec<_> =
            (0..n - 1).map(|lane| In::new(lane, Some(self.head), scratch.wrapping_add(lane * own), own)).collect();
        let sources = self.sources(call.send.wrapping_add(call.offset(self.rank) * size), scratch, own);
        let mut reducer = Reducer { what: self.reduction(), sources, target: call.recv, size, len: own, done: 0 };
        let mut step = |_: &mut [Out], ins: &[In]| {
            let come = ins.iter().map(|each| each.done).min().unwrap_or(own);
            // SAFETY: so many bytes of all sources are there; in place, the target is the own
            // piece, which is not sent.
            unsafe { reducer.advance(come) };
        };
        // SAFETY: pieces are within the memory that the caller promises.
        unsafe { self.flow(&mut outs, &mut ins, Self::order(own), &mut step) }
    }

    unsafe fn all_gather(&mut self) -> Result<(), Stop> {
        let (call, size) = (self.call, self.call.dtype.size());
        let own = call.piece(self.rank) * size;
        // SAFETY: the caller's promise.
        unsafe { reduce::copy(call.recv.wrapping_add(call.offset(self.rank) * size), call.send, own, Stores::Cached) };
        let mut outs: Vec<_> =
            self.others().map(|to| Out::new(self.lane(to), Some(self.head), call.send, own)).collect();
        let mut ins: Vec<_> = self
            .others()
            .map(|from| {
                In::new(
                    self.lane(from),
                    Some(self.head),
                    call.recv.wrapping_add(call.offset(from) * size),
                    call.piece(from) * size,
                )
            })
            .collect();
        // SAFETY: pieces are within the memory that the caller promises.
        unsafe { self.flow(&mut outs, &mut ins, Self::order(own), &mut |_, _| {}) }
    }

    /// Small: the root to all. Large: along a chain from the root, each handing on what has come.
    unsafe fn broadcast(&mut self, root: usize) -> Result<(), Stop> {
        let (call, n) = (self.call, self.size);
        let bytes = call.len * call.dtype.size();
        let is_root = self.rank == root;
        let base = if is_root { call.send } else { call.recv.cast_const() };
        let place = (self.rank + n - root) % n;
        let chained = n > 2 && bytes > self.flat;
        let targets: Vec<_> = match (chained, is_root) {
            (true, _) if place + 1 < n => vec![(self.rank + 1) % n],
            (false, true) => self.others().collect(),
            _ => Vec::new(),
        };
        let source = if chained { (self.rank + n - 1) % n } else { root };
        let mut outs: Vec<_> =
            targets.into_iter().map(|to| Out::new(self.lane(to), Some(self.head), base, bytes)).collect();
        let mut ins: Vec<_> =
            (!is_root).then(|| In::new(self.lane(source), Some(self.head), call.recv, bytes)).into_iter().collect();
        let mut step = |outs: &mut [Out], ins: &[In]| {
            if let Some(come) = ins.first() {
                outs.iter_mut().for_each(|out| out.allowed = come.done);
            }
        };
        // SAFETY: what is handed on has come before, and is not written again.
        unsafe { self.flow(&mut outs, &mut ins, Order::AtOnce, &mut step) }
    }

    unsafe fn gather(&mut self, root: usize) -> Result<(), Stop> {
        let call = self.call;
        let own = call.len * call.dtype.size();
        let (mut outs, mut ins) = (Vec::new(), Vec::new());
        if self.rank == root {
            // SAFETY: the caller's promise.
            unsafe { reduce::copy(call.recv.wrapping_add(root * own), call.send, own, Stores::Cached) };
            ins.extend(
                self.others()
                    .map(|from| In::new(self.lane(from), Some(self.head), call.recv.wrapping_add(from * own), own)),
            );
        } else {
            outs.push(Out::new(self.lane(root), Some(self.head), call.send, own));
        }
        // SAFETY: pieces are within the memory that the caller promises.
        unsafe { self.flow(&mut outs, &mut ins, Order::AtOnce, &mut |_, _| {}) }
    }

    unsafe fn scatter(&mut self, root: usize) -> Result<(), Stop> {
        let call = self.call;
        let own = call.len * call.dtype.size();
        let (mut outs, mut ins) = (Vec::new(), Vec::new());
        if self.rank == root {
            outs.extend(
                self.others().map(|to| Out::new(self.lane(to), Some(self.head), call.send.wrapping_add(to * own), own)),
            );
            // SAFETY: the caller's promise.
            unsafe { reduce::copy(call.recv, call.send.wrapping_add(root * own), own, Stores::Cached) };
        } else {
            ins.push(In::new(self.lane(root), Some(self.head), call.recv, own));
        }
        // SAFETY: pieces are within the memory that the caller promises.
        unsafe { self.flow(&mut outs, &mut ins, Order::AtOnce, &mut |_, _| {}) }
    }

    unsafe fn all_to_all(&mut self) -> Result<(), Stop> {
        let (call, n, size) = (self.call, self.size, self.call.dtype.size());
        // Where lengths are each pair's own, a head with the length goes first: a short vector for
        // each.
        let lengths = call.counts.is_some();
        let heads: Vec<_> = (0..n)
            .map(|other| {
                let mix = |length: usize| Head {
                    signature: self.head.signature ^ (length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                    ..self.head
                };
                let (gives, gets) = (call.piece(other), call.piece_from(other, n));
                if lengths { (mix(gives), mix(gets)) } else { (self.head, self.head) }
            })
            .collect();
        let (own_from, own_to) = (call.offset(self.rank) * size, call.offset_from(self.rank, n) * size);
        // SAFETY: the caller's promise.
        unsafe {
            reduce::copy(
                call.recv.wrapping_add(own_to),
                call.send.wrapping_add(own_from),
                call.piece(self.rank) * size,
                Stores::Cached,
            );
        };
        let mut outs: Vec<_> = self
            .others()
            .map(|to| {
                Out::new(
                    self.lane(to),
                    Some(heads[to].0),
                    call.send.wrapping_add(call.offset(to) * size),
                    call.piece(to) * size,
                )
            })
            .collect();
        let mut ins: Vec<_> = self
            .others()
            .map(|from| {
                let base = call.recv.wrapping_add(call.offset_from(from, n) * size);
                In::new(self.lane(from), Some(heads[from].1), base, call.piece_from(from, n) * size)
            })
            .collect();
        let largest = outs.iter().map(|out| out.len).max().unwrap_or(0);
        // SAFETY: pieces are within the memory that the caller promises.
        unsafe { self.flow(&mut outs, &mut ins, Self::order(largest), &mut |_, _| {}) }
    }
}

/// Scratch memory of at least that size, kept for later operations unless it is large.
pub(super) fn room(scratch: &mut Vec<u8>, bytes: usize) -> *mut u8 {
    if scratch.len() < bytes || scratch.len() > 4 * BLOCK {
        // A new block, so that nothing is copied.
        *scratch = vec![0; bytes.next_multiple_of(4096)];
    }
    scratch.as_mut_ptr()
}

/// Reduces what has come of all sources.
pub(super) struct Reducer {
    pub(super) what: Option<Reduction>,
    pub(super) sources: Vec<*const u8>,
    pub(super) target: *mut u8,
    /// Bytes of an element, of the whole, and of what is done.
    pub(super) size: usize,
    pub(super) len: usize,
    pub(super) done: usize,
}

impl Reducer {
    /// `come` bytes of all sources are there: reduces in chunks, the rest at the end. Bytes done.
    ///
    /// # Safety
    /// Sources and target are valid for so many bytes, and the target is no longer sent where it is
    /// a source.
    pub(super) unsafe fn advance(&mut self, come: usize) -> usize {
        let ready = if come == self.len { self.len } else { come / CHUNK * CHUNK };
        let (from, count) = (self.done, ready.saturating_sub(self.done));
        if let (Some(what), true) = (&self.what, count > 0) {
            let sources: Vec<_> = self.sources.iter().map(|source| source.wrapping_add(from)).collect();
            // SAFETY: the caller's promise; chunks are whole elements.
            unsafe {
                reduce::reduce(what, &[self.target.wrapping_add(from)], &sources, count / self.size, Stores::Cached);
            };
        }
        self.done += count;
        self.done
    }
}
