//! Messages: each rank has a mailbox for every other, a ring of parcels. A short message waits for nobody; a long one goes parcel by parcel.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::sync::atomic::Ordering;

use super::{
    Shm,
    control::{PARCEL, PARCELS},
};
use crate::{
    Call, Error,
    guard::Guard,
    reduce::{self, Stores},
};

impl Shm {
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn send(&self, call: &Call, to: usize, signature: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let bytes = call.len * call.dtype.size();
        let (mailbox, receiver) = (self.own(), self.controls[to]);
        let mut number = self.sent[to].load(Ordering::Relaxed);
        let mut at = 0;
        loop {
            let part = PARCEL.min(bytes - at);
            let has_room = || number < PARCELS as u64 || receiver.taken(self.rank).has_done(number - PARCELS as u64, 1);
            self.wait_for(guard, to, has_room, &|_| true)?;
            let (label, content) = mailbox.parcel(to, number);
            // SAFETY: the receiver has taken what was in this parcel; the source is the caller's.
            unsafe {
                label.write([signature, bytes as u64]);
                reduce::copy(content, call.send.add(at), part, Stores::Cached);
            }
            mailbox.sent(to).advance(number, 1);
            (number, at) = (number + 1, at + part);
            self.sent[to].store(number, Ordering::Relaxed);
            if at == bytes {
                return Ok(());
            }
        }
    }

    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn recv(&self, call: &Call, from: usize, signature: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let bytes = call.len * call.dtype.size();
        let mailbox = self.controls[from];
        let mut number = self.taken[from].load(Ordering::Relaxed);
        let mut at = 0;
        loop {
            self.wait_for(guard, from, || mailbox.sent(self.rank).has_done(number, 1), &|_| true)?;
            let (label, content) = mailbox.parcel(self.rank, number);
            let part = PARCEL.min(bytes - at);
            // SAFETY: the sender has filled this parcel and leaves it until it is taken; the target is the caller's.
            unsafe {
                if label.read() != [signature, bytes as u64] {
                    return Err(guard.dispute());
                }
                reduce::copy(call.recv.add(at), content, part, Stores::Cached);
            }
            self.own().taken(from).advance(number, 1);
            (number, at) = (number + 1, at + part);
            self.taken[from].store(number, Ordering::Relaxed);
            if at == bytes {
                return Ok(());
            }
        }
    }
}
