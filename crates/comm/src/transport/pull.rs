//! Collectives by giving and pulling: every rank puts what it gives where others can read it, and
//! takes from there what it needs.
//!
//! Done for a range of each piece, so that long operations go through short memory.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::ops::Range;

use crate::{
    Call, Kind,
    reduce::{self, Reduction, Stores},
    transport::direct::PerRank,
};

/// How many pieces a rank gives: one for all, or one for each.
pub(crate) const fn pieces(kind: Kind, n: usize) -> usize {
    match kind {
        Kind::ReduceScatter(_) | Kind::Scatter { .. } | Kind::AllToAll => n,
        _ => 1,
    }
}

/// Whether a rank gives anything.
pub(crate) fn gives(kind: Kind, rank: usize) -> bool {
    match kind {
        Kind::Broadcast { root } | Kind::Scatter { root } => rank == root,
        Kind::Barrier => false,
        _ => true,
    }
}

/// Length of the piece that a rank gives to `to`, in elements.
fn given(call: &Call, rank: usize, to: usize) -> usize {
    match call.kind {
        Kind::AllGather => call.piece(rank),
        _ => call.piece(to),
    }
}

/// Copies a range of each piece that this rank gives to others; the piece for rank j goes to
/// `target + j * stride`. What it gives itself is not copied.
///
/// # Safety
/// The call is valid for this rank of `n`, and `target` for all pieces' ranges.
pub(crate) unsafe fn give(
    call: &Call,
    rank: usize,
    n: usize,
    range: &Range<usize>,
    target: *mut u8,
    stride: usize,
    stores: Stores,
) {
    if !gives(call.kind, rank) {
        return;
    }
    let size = call.dtype.size();
    let many = pieces(call.kind, n);
    for j in (0..many).filter(|j| many == 1 || *j != rank) {
        let end = range.end.min(given(call, rank, j));
        if range.start < end {
            let start = if many == 1 { 0 } else { call.offset(j) } + range.start;
            // SAFETY: within the piece, and within the target's range of it.
            unsafe {
                reduce::copy(target.add(j * stride), call.send.add(start * size), (end - range.start) * size, stores);
            };
        }
    }
}

/// Takes a range of each piece. `source(j, p)` is where the range of rank j's piece p begins; it is
/// not asked for this rank's own.
///
/// # Safety
/// The call is valid for this rank of `n`, and all sources are for the range.
pub(crate) unsafe fn pull(
    call: &Call,
    rank: usize,
    n: usize,
    range: &Range<usize>,
    stores: Stores,
    source: impl Fn(usize, usize) -> *const u8,
) {
    let size = call.dtype.size();
    let Range { start, end } = *range;
    let from = |j: usize, piece: usize| {
        if j == rank {
            let at = if pieces(call.kind, n) == 1 { 0 } else { call.offset(piece) } + start;
            call.send.wrapping_add(at * size)
        } else {
            source(j, piece)
        }
    };
    let target = |offset: usize| call.recv.wrapping_add((offset + start) * size);
    let clip = |len: usize| end.min(len).saturating_sub(start);
    // SAFETY: ranges are clipped to their pieces; targets are this rank's own memory.
    unsafe {
        match call.kind {
            Kind::Reduce { root, .. } if root != rank => {}
            Kind::AllReduce(op) | Kind::Reduce { op, .. } => {
                let sources = PerRank::new(n, |j| from(j, 0));
                reduce::reduce(
                    &Reduction { op, dtype: call.dtype, ranks: n },
                    &[target(0)],
                    &sources,
                    clip(call.len),
                    stores,
                );
            }
            Kind::ReduceScatter(op) => {
                let sources = PerRank::new(n, |j| from(j, rank));
                reduce::reduce(
                    &Reduction { op, dtype: call.dtype, ranks: n },
                    &[target(0)],
                    &sources,
                    clip(call.len),
                    stores,
                );
            }
            Kind::AllGather => {
                for j in (0..n).map(|i| (rank + i) % n) {
                    reduce::copy(target(call.offset(j)), from(j, 0), clip(call.piece(j)) * size, stores);
                }
            }
            Kind::Broadcast { root } => {
                if root != rank {
                    reduce::copy(target(0), source(root, 0), clip(call.len) * size, stores);
                }
            }
            Kind::Gather { root } => {
                if root == rank {
                    for j in (0..n).map(|i| (rank + i) % n) {
                        reduce::copy(target(j * call.len), from(j, 0), clip(call.len) * size, stores);
                    }
                }
            }
            Kind::Scatter { root } => reduce::copy(target(0), from(root, rank), clip(call.len) * size, stores),
            Kind::AllToAll => {
                for j in (0..n).map(|i| (rank + i) % n) {
                    reduce::copy(
                        target(call.offset_from(j, n)),
                        from(j, rank),
                        clip(call.piece_from(j, n)) * size,
                        stores,
                    );
                }
            }
            Kind::Send { .. } | Kind::Recv { .. } | Kind::RecvAny { .. } | Kind::Barrier => {}
        }
    }
}
