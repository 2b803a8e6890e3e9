//! Long collectives of memory that is not registered, step by step through the stages.
//!
//! A step is a range of every piece. While others still take a step, the next is given: stages are
//! taken in turns.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::ops::Range;

use super::{Shm, choice::Staging, control::Control, flat};
use crate::{
    Call, Error, Kind, ReduceOp,
    guard::Guard,
    reduce::{self, Reduction, Stores},
    staging::{STAGE, Writing},
    transport::{
        direct::{self, PerRank},
        pull::{self, gives, pieces},
    },
};

/// How an operation is cut into steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    /// Elements of the longest piece.
    longest: usize,
    /// Elements of a piece in one step.
    each: usize,
    /// Bytes from piece to piece in a stage.
    stride: usize,
    /// Bytes of a stage.
    bytes: usize,
    /// Places are taken in turns in so many bytes.
    room: usize,
    writing: Writing,
}

impl Steps {
    /// Steps that fill at most a stage each.
    pub(super) fn new(call: &Call, n: usize, staging: Staging) -> Self {
        let (many, size) = (pieces(call.kind, n), call.dtype.size());
        Self::of(flat::gift(call, n) / size / many, many, size, staging)
    }

    pub(super) fn of(longest: usize, many: usize, size: usize, staging: Staging) -> Self {
        let Staging { stage, room, writing } = staging;
        // Whole lines, so that steps begin where vectors do.
        let most = (stage.min(STAGE) / many) & !63;
        let stride = most.min((longest * size).next_multiple_of(64));
        Self { longest, each: most / size, stride, bytes: stride * many, room, writing }
    }

    fn count(&self) -> usize {
        self.longest.div_ceil(self.each).max(1)
    }

    /// Where that rank gives step `k`.
    fn stage(&self, of: &Control, seq: u64, k: usize) -> *mut u8 {
        of.stage(seq, k, self.bytes, self.count() > 1, self.room)
    }

    /// Where that rank has its results of step `k`.
    fn result(&self, of: &Control, seq: u64, k: usize) -> *mut u8 {
        of.result(seq, k, self.bytes, self.count() > 1, self.room)
    }

    fn range(&self, k: usize) -> Range<usize> {
        k * self.each..((k + 1) * self.each).min(self.longest)
    }
}

impl Shm {
    /// Gives step `k`.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`]; nobody reads this stage.
    pub(super) unsafe fn stage(&self, call: &Call, seq: u64, k: usize, steps: &Steps) {
        let (n, stage, range) = (self.size(), steps.stage(self.own(), seq, k), steps.range(k));
        // What a rank reduces or keeps itself is not copied.
        let all = range.len() * call.dtype.size() * pieces(call.kind, n);
        let kept = matches!(call.kind, Kind::AllReduce(_)) || pieces(call.kind, n) > 1;
        let bytes = if kept { all - all / n } else { all };
        // SAFETY: the stage has room for a step.
        self.writes.stage(steps.writing, if gives(call.kind, self.rank) { bytes } else { 0 }, |stores| unsafe {
            match call.kind {
                // This rank reduces its own slice from its own memory.
                Kind::AllReduce(_) => {
                    let size = call.dtype.size();
                    let (own, len) = direct::slice(range.len(), size, self.rank, n);
                    let from = call.send.add(range.start * size);
                    reduce::copy(stage, from, own * size, stores);
                    let after = (own + len) * size;
                    reduce::copy(stage.add(after), from.add(after), range.len() * size - after, stores);
                }
                _ => pull::give(call, self.rank, n, &range, stage, steps.stride, stores),
            }
        });
        self.own().staged().advance(seq, k + 1);
    }

    /// All steps, after all have come; `first` says that the first step is not given yet.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn staged(
        &self,
        call: &Call,
        seq: u64,
        steps: &Steps,
        first: bool,
        guard: &Guard<'_>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise. A stage is given again only when all are done with the step
        // before last.
        unsafe {
            if first {
                self.stage(call, seq, 0, steps);
            }
            self.results.store(steps.longest * call.dtype.size() * self.size() * 2, |stores| match call.kind {
                Kind::AllReduce(op) => self.staged_all_reduce(call, op, seq, steps, stores, guard),
                _ => self.staged_pull(call, seq, steps, stores, guard),
            })
        }
    }

    unsafe fn staged_pull(
        &self,
        call: &Call,
        seq: u64,
        steps: &Steps,
        stores: Stores,
        guard: &Guard<'_>,
    ) -> Result<(), Error> {
        let (n, count) = (self.size(), steps.count());
        for k in 0..count {
            if k + 1 < count {
                if k > 0 && gives(call.kind, self.rank) {
                    self.wait(guard, |control| control.done().has_done(seq, k))?;
                }
                // SAFETY: all are done with step `k - 1`, which was in this stage.
                unsafe { self.stage(call, seq, k + 1, steps) };
            }
            for other in self.others().filter(|other| gives(call.kind, *other)) {
                let given = |control: &Control| control.staged().has_done(seq, k + 1);
                self.wait_for(guard, other, || given(&self.controls[other]), &|_| true)?;
            }
            let source = |other: usize, piece: usize| {
                steps.stage(&self.controls[other], seq, k).wrapping_add(piece * steps.stride).cast_const()
            };
            // SAFETY: all that give have given step `k`, and give no other in its place before this
            // is done.
            unsafe { pull::pull(call, self.rank, n, &steps.range(k), stores, source) };
            self.own().done().advance(seq, k + 1);
        }
        Ok(())
    }

    /// Each step is a reduce-scatter and an all-gather: every rank reduces its slice of the step
    /// from the stages, and copies the others' from their results.
    unsafe fn staged_all_reduce(
        &self,
        call: &Call,
        op: ReduceOp,
        seq: u64,
        steps: &Steps,
        stores: Stores,
        guard: &Guard<'_>,
    ) -> Result<(), Error> {
        let (n, count, size) = (self.size(), steps.count(), call.dtype.size());
        let what = Reduction { op, dtype: call.dtype, ranks: n };
        for k in 0..count {
            if k + 1 < count {
                // All have reduced step `k - 1`, whose stage this is.
                self.wait(guard, |control| k == 0 || control.reduced().has_done(seq, k))?;
                // SAFETY: nobody reads this stage.
                unsafe { self.stage(call, seq, k + 1, steps) };
            }
            self.wait(guard, |control| control.staged().has_done(seq, k + 1))?;
            let range = steps.range(k);
            let slice = |rank: usize| {
                let (at, len) = direct::slice(range.len(), size, rank, n);
                (at * size, len)
            };
            let (at, len) = slice(self.rank);
            let target = call.recv.wrapping_add(range.start * size);
            // SAFETY: all have given step `k`. This result was of step `k - 2`: whoever has given
            // step `k` has copied that before.
            unsafe {
                let own = call.send.add(range.start * size + at);
                let source = |rank: usize| {
                    if rank == self.rank { own } else { steps.stage(&self.controls[rank], seq, k).add(at).cast_const() }
                };
                let sources = PerRank::new(n, source);
                let result = steps.result(self.own(), seq, k).add(at);
                let stores = match self.writes.of_results(steps.writing, len * size) {
                    Stores::Streaming => Stores::FirstStreaming,
                    stores => stores,
                };
                reduce::reduce(&what, &[result, target.add(at)], &sources, len, stores);
            }
            self.own().reduced().advance(seq, k + 1);
            for other in self.others() {
                let reduced = |control: &Control| control.reduced().has_done(seq, k + 1);
                self.wait_for(guard, other, || reduced(&self.controls[other]), &reduced)?;
                let (at, len) = slice(other);
                // SAFETY: the other's slice of step `k` is in its results until this rank has given
                // step `k + 2`.
                unsafe {
                    reduce::copy(
                        target.add(at),
                        steps.result(&self.controls[other], seq, k).add(at),
                        len * size,
                        stores,
                    );
                };
            }
        }
        Ok(())
    }

    /// All-to-all with lengths of their own for each pair: first everybody says what it has for
    /// whom, then as any other.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn uneven_all_to_all(
        &self,
        call: &Call,
        seq: u64,
        signature: u64,
        guard: &Guard<'_>,
    ) -> Result<(), Error> {
        let n = self.size();
        let counts = call.counts.as_ref().expect("it is uneven");
        let row: Vec<u64> = counts[..n].iter().map(|count| *count as u64).collect();
        // SAFETY: a slot holds a row of counts for every group that fits on a host; checked when
        // the group was made.
        unsafe { self.own().slot(seq, n * size_of::<u64>()).cast::<u64>().copy_from_nonoverlapping(row.as_ptr(), n) };
        self.own().arrival(seq).arrive(seq, signature);
        self.meet(seq, signature, guard)?;
        let mut longest = 0;
        for other in 0..n {
            for to in 0..n {
                // SAFETY: written before the arrival that was seen.
                let count = unsafe { self.controls[other].slot(seq, n * size_of::<u64>()).cast::<u64>().add(to).read() }
                    as usize;
                longest = longest.max(count);
                if to == self.rank && count != call.piece_from(other, n) {
                    return Err(guard.dispute());
                }
            }
        }
        let size = call.dtype.size();
        let steps = Steps::of(longest, n, size, self.staging(longest * n * size));
        // SAFETY: all have come with lengths that fit.
        unsafe { self.staged(call, seq, &steps, true, guard) }
    }
}
