//! Collectives where every rank can reach every rank's memory: each rank does its share of the
//! whole, between two barriers.
//!
//! All-reduce, reduce and reduce-scatter: rank r reduces the r-th slice, reading all sources once,
//! and pushes the result into all destinations (a direct reduce-scatter and a pushed all-gather in
//! one pass). The others copy. Slices are disjoint, so in place is no special case. Every element
//! is reduced by one rank in rank order: the same bits everywhere.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::ops::Deref;

use crate::{
    Call, Kind,
    reduce::{self, Reduction, Stores},
};

/// Where one rank's memory of the current operation is, as reached from here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) send: *const u8,
    pub(crate) recv: *mut u8,
    /// All-to-all: where in `send` the piece for the rank that looks begins, in elements.
    pub(crate) mine: usize,
}

/// A list with one entry per rank; on the stack for few.
#[derive(Debug)]
pub(crate) enum PerRank<T> {
    Few([T; 16], usize),
    Many(Vec<T>),
}

impl<T: Copy> PerRank<T> {
    /// What `entry` says of each of `n` ranks, of which there is at least one.
    pub(crate) fn new(n: usize, mut entry: impl FnMut(usize) -> T) -> Self {
        if n > 16 {
            return Self::Many((0..n).map(entry).collect());
        }
        let mut few = [entry(0); 16];
        for (r, place) in few.iter_mut().enumerate().take(n).skip(1) {
            *place = entry(r);
        }
        Self::Few(few, n)
    }
}

impl<T> Deref for PerRank<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Few(few, n) => &few[..*n],
            Self::Many(many) => many,
        }
    }
}

/// Slices begin at multiples of this many bytes, so that two ranks seldom write to one cache line.
const SLICE: usize = 128;

/// The r-th of n slices of `len` elements of `size` bytes: offset and length in elements.
pub(crate) fn slice(len: usize, size: usize, r: usize, n: usize) -> (usize, usize) {
    let grain = (SLICE / size).max(1);
    let each = len.div_ceil(n).div_ceil(grain) * grain;
    let start = (each * r).min(len);
    (start, (each * (r + 1)).min(len) - start)
}

/// Rank `rank`'s share of a collective. `views` has every rank's memory, by rank.
///
/// # Safety
/// Every rank has entered the operation and none leaves before all shares are done; the views are
/// valid for the extents of the same call.
pub(crate) unsafe fn share(call: &Call, rank: usize, views: &[View], stores: Stores) {
    let n = views.len();
    let size = call.dtype.size();
    // SAFETY: offsets are within the extents that the caller promises; each arm writes only what no
    // other rank's share touches.
    unsafe {
        match call.kind {
            Kind::AllReduce(op) => {
                let (at, len) = slice(call.len, size, rank, n);
                let sources = PerRank::new(n, |r| views[r].send.add(at * size));
                // Begin with another destination than the other ranks do, so that not all write to
                // one.
                let targets = PerRank::new(n, |i| views[(rank + i) % n].recv.add(at * size));
                reduce::reduce(&Reduction { op, dtype: call.dtype, ranks: n }, &targets, &sources, len, stores);
            }
            Kind::Reduce { op, root } => {
                let (at, len) = slice(call.len, size, rank, n);
                let sources = PerRank::new(n, |r| views[r].send.add(at * size));
                let target = views[root].recv.add(at * size);
                reduce::reduce(&Reduction { op, dtype: call.dtype, ranks: n }, &[target], &sources, len, stores);
            }
            Kind::ReduceScatter(op) => {
                let at = call.offset(rank) * size;
                let sources = PerRank::new(n, |r| views[r].send.add(at));
                reduce::reduce(
                    &Reduction { op, dtype: call.dtype, ranks: n },
                    &[views[rank].recv],
                    &sources,
                    call.len,
                    stores,
                );
            }
            Kind::AllGather => {
                let at = call.offset(rank) * size;
                for i in 0..n {
                    reduce::copy(views[(rank + i) % n].recv.add(at), views[rank].send, call.len * size, stores);
                }
            }
            Kind::Broadcast { root } => {
                let (at, len) = slice(call.len, size, rank, n);
                for target in (0..n).filter(|target| *target != root) {
                    reduce::copy(
                        views[target].recv.add(at * size),
                        views[root].send.add(at * size),
                        len * size,
                        stores,
                    );
                }
            }
            Kind::Gather { root } => {
                reduce::copy(views[root].recv.add(rank * call.len * size), views[rank].send, call.len * size, stores);
            }
            Kind::Scatter { root } => {
                reduce::copy(views[rank].recv, views[root].send.add(rank * call.len * size), call.len * size, stores);
            }
            Kind::AllToAll => {
                for i in 0..n {
                    let from = (rank + i) % n;
                    let source = views[from].send.add(views[from].mine * size);
                    let target = views[rank].recv.add(call.offset_from(from, n) * size);
                    reduce::copy(target, source, call.piece_from(from, n) * size, stores);
                }
            }
            Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } | Kind::Barrier => {}
        }
    }
}
