//! The input of an operation in place, kept so that the operation can be tried again.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::slice;

use crate::{Call, Kind};

/// A copy of what an operation in place overwrites.
pub(super) struct Kept(Vec<u8>);

impl Kept {
    /// The copy, where the call is one in place.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn of(call: &Call, rank: usize, size: usize) -> Option<Self> {
        let (gives, gets) = call.extent(rank, size);
        let (send, recv) = (call.send.addr(), call.recv.addr());
        let is_apart = gives == 0 || gets == 0 || send + gives <= recv || recv + gets <= send;
        // An all-gather in place overwrites everything but its own piece.
        let keeps = !is_apart && !matches!(call.kind, Kind::AllGather | Kind::Gather { .. });
        // SAFETY: `gives` bytes at `send` are valid, by the caller's promise.
        keeps.then(|| Self(unsafe { slice::from_raw_parts(call.send, gives) }.to_vec()))
    }

    /// Puts it back.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`], for the same call.
    pub(super) unsafe fn put_back(&self, call: &Call) {
        // SAFETY: in place, what was sent is memory that the operation may write.
        unsafe { call.send.cast_mut().copy_from_nonoverlapping(self.0.as_ptr(), self.0.len()) };
    }
}
