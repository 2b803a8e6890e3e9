//! Messages: each rank has a mailbox for every other, a ring of parcels. A short message waits for
//! nobody; a long one goes parcel by parcel.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::{sync::atomic::Ordering, thread, time::Duration};

use super::{
    Shm,
    control::{PARCEL, PARCELS},
};
use crate::{
    Call, Error,
    guard::Guard,
    reduce::{self, Stores},
    transport::wire::{Label, Wire},
};

impl Wire for Shm {
    unsafe fn send(&self, to: usize, call: &Call, label: Label, guard: &Guard<'_>) -> Result<(), Error> {
        let bytes = label.bytes;
        let (mailbox, receiver) = (self.own(), self.controls[to]);
        let mut number = self.sent[to].load(Ordering::Relaxed);
        let mut at = 0;
        loop {
            let part = PARCEL.min(bytes - at);
            let has_room = || number < PARCELS as u64 || receiver.taken(self.rank).has_done(number - PARCELS as u64, 1);
            self.wait_for(guard, to, has_room, &|_| true)?;
            let (place, content) = mailbox.parcel(to, number);
            // SAFETY: the receiver has taken what was in this parcel; the source is the caller's.
            unsafe {
                place.write(label.words());
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

    fn next(&self, from: usize, _guard: &Guard<'_>) -> Result<Option<Label>, Error> {
        let (mailbox, number) = (self.controls[from], self.taken[from].load(Ordering::Relaxed));
        if !mailbox.sent(self.rank).has_done(number, 1) {
            return Ok(None);
        }
        // SAFETY: the sender has filled this parcel, the first of its message, and leaves it until
        // it is taken.
        let label = Label::of_words(unsafe { mailbox.parcel(self.rank, number).0.read() });
        if label.bytes == 0 {
            self.has_taken(from, number);
        }
        Ok(Some(label))
    }

    unsafe fn take(&self, from: usize, target: *mut u8, left: usize, _guard: &Guard<'_>) -> Result<usize, Error> {
        let (mailbox, number) = (self.controls[from], self.taken[from].load(Ordering::Relaxed));
        if !mailbox.sent(self.rank).has_done(number, 1) {
            return Ok(0);
        }
        let part = PARCEL.min(left);
        // SAFETY: as for `next`: all parcels of a message are full but for the last; the target is
        // the caller's.
        unsafe { reduce::copy(target, mailbox.parcel(self.rank, number).1, part, Stores::Cached) };
        self.has_taken(from, number);
        Ok(part)
    }

    fn awake(&self, _from: &[usize]) -> Option<Duration> {
        None
    }

    fn pause(&self, _from: &[usize], time: Duration) {
        thread::sleep(time);
    }
}

impl Shm {
    fn has_taken(&self, from: usize, number: u64) {
        self.own().taken(from).advance(number, 1);
        self.taken[from].store(number + 1, Ordering::Relaxed);
    }
}
