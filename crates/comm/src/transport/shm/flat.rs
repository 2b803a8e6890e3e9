//! Short collectives: each rank puts what it gives into its flag's line or its slot, arrives, and
//! takes what it needs from the others'.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use super::{Shm, control};
use crate::{
    Call, Error, Kind,
    guard::Guard,
    reduce::Stores,
    transport::pull::{self, gives, pieces},
};

/// The most bytes that any rank gives: the same on all ranks, which choose by it.
pub(super) fn gift(call: &Call, n: usize) -> usize {
    let elements = match (&call.counts, call.kind) {
        (Some(counts), Kind::AllGather) => counts.iter().copied().max().unwrap_or(0),
        (Some(counts), Kind::ReduceScatter(_)) => counts.iter().copied().max().unwrap_or(0) * n,
        _ => call.len * pieces(call.kind, n),
    };
    elements * call.dtype.size()
}

impl Shm {
    /// What is given, [`gift`] bytes, travels in the flag's own line.
    #[inline]
    pub(super) unsafe fn inline(&self, call: &Call, given: usize, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        // SAFETY: as for `through`.
        unsafe { self.through(call, given, seq, guard, |rank| self.controls[rank].inline(seq)) }
    }

    /// What is given, [`gift`] bytes, is in the slot of this operation's turn.
    pub(super) unsafe fn flat(&self, call: &Call, given: usize, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        // SAFETY: as for `through`.
        unsafe { self.through(call, given, seq, guard, |rank| self.controls[rank].slot(seq, given)) }
    }

    /// # Safety
    /// As for [`crate::ProcessGroup::run`]; `place` has room for what any rank gives.
    #[inline]
    unsafe fn through(
        &self,
        call: &Call,
        given: usize,
        seq: u64,
        guard: &Guard<'_>,
        place: impl Fn(usize) -> *mut u8,
    ) -> Result<(), Error> {
        let (n, signature) = (self.size(), guard.signature(call));
        let stride = given / pieces(call.kind, n);
        let all = 0..usize::MAX;
        // SAFETY: nobody reads this place any more: every rank has come to the operation before
        // this one, and so has left the one before that, whose turn it was. What others gave was
        // written before the arrivals that are seen.
        unsafe {
            let give = |stores| pull::give(call, self.rank, n, &all, place(self.rank), stride, stores);
            if given <= control::INLINE || !gives(call.kind, self.rank) {
                give(Stores::Cached);
            } else {
                self.writes.stage(self.choice.short.writing, given, give);
            }
            self.own().arrival(seq).arrive(seq, signature);
            self.meet(seq, signature, guard)?;
            pull::pull(call, self.rank, n, &all, Stores::Cached, |rank, piece| place(rank).add(piece * stride));
        }
        Ok(())
    }
}
