//! Messages: in shared memory within a host, over TCP across.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::time::Duration;

use super::Hier;
use crate::guard::Guard;
use crate::timeline::Way;
use crate::transport::wire::{Label, Wire};
use crate::{Call, Error};

/// The longest sleep of who waits for ranks of this host and of others: those of this host wake
/// nobody.
const NAP: Duration = Duration::from_micros(200);

impl Hier {
    /// The wire to a rank, and the rank's number there.
    fn wire_to(&self, rank: usize) -> (&dyn Wire, usize) {
        let (host, place) = self.layout.seat(rank);
        match self.within.as_ref().and_then(|within| within.transport.wire()) {
            Some(within) if host == self.host => (within, place),
            _ => (&self.whole, rank),
        }
    }

    /// Those that share memory with this rank, by their places; and the others.
    fn apart(&self, from: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let (near, far): (Vec<_>, Vec<_>) = from.iter().partition(|from| self.layout.seat(**from).0 == self.host);
        (near.into_iter().map(|rank| self.layout.seat(rank).1).collect(), far)
    }
}

impl Wire for Hier {
    unsafe fn send(&self, to: usize, call: &Call, label: Label, guard: &Guard<'_>) -> Result<(), Error> {
        let (host, place) = self.layout.seat(to);
        match self.within.as_ref().and_then(|within| within.transport.wire()) {
            // SAFETY: the caller's promise.
            Some(within) if host == self.host => unsafe {
                within.send(place, call, label, &guard.step(self.layout.on(host)))
            },
            // SAFETY: the caller's promise.
            _ => unsafe { self.whole.send(to, call, label, guard) },
        }
    }

    fn next(&self, from: usize, guard: &Guard<'_>) -> Result<Option<Label>, Error> {
        let (wire, from) = self.wire_to(from);
        wire.next(from, guard)
    }

    unsafe fn take(&self, from: usize, target: *mut u8, left: usize, guard: &Guard<'_>) -> Result<usize, Error> {
        let (wire, from) = self.wire_to(from);
        // SAFETY: the caller's promise.
        unsafe { wire.take(from, target, left, guard) }
    }

    fn awake(&self, from: &[usize]) -> Option<Duration> {
        let (near, far) = self.apart(from);
        if near.is_empty() { self.whole.awake(&far) } else { None }
    }

    fn pause(&self, from: &[usize], time: Duration) {
        let (near, far) = self.apart(from);
        match self.within.as_ref().and_then(|within| within.transport.wire()) {
            Some(within) if far.is_empty() => within.pause(&near, time),
            Some(_) if !near.is_empty() => self.whole.pause(&far, time.min(NAP)),
            _ => self.whole.pause(&far, time),
        }
    }

    fn way(&self, from: usize) -> Way {
        let (wire, from) = self.wire_to(from);
        wire.way(from)
    }
}
