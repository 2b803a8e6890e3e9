//! Receives of a group whose messages have tags and senders to choose from.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::sync::{Arc, atomic::Ordering};

use super::{
    Core,
    inbox::{Slot, Then},
};
use crate::{
    Call, Error, Work,
    guard::Guard,
    timeline::{Since, Way},
    transport::wire::Wire,
};

impl Core {
    /// Receives on the caller's own thread.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    pub(super) unsafe fn receive(&self, call: &Call, wire: &dyn Wire) -> Result<(), Error> {
        let called = self.track.now();
        let since = Since { called, begun: called };
        let slot = self.inbox.slot(call, self.parts.epoch, None);
        // SAFETY: the caller's promise; when this returns the slot has its message or was
        // withdrawn.
        unsafe { self.inbox.post(&slot, wire) };
        let result = self.await_message(&slot, wire);
        let way = result.as_ref().map_or(Way::Only, |from| wire.way(*from));
        self.track.record(call, slot.number, self.parts.epoch, since, way, result.is_err());
        result.map(drop)
    }

    /// Begins a receive that progresses without the caller. It is posted before this returns, and
    /// done when its message is there: others need not be over before.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::start`].
    pub(super) unsafe fn start_receive(self: &Arc<Self>, call: Call, wire: &dyn Wire) -> Result<Work, Error> {
        let (work, called) = (Work::new(), self.track.now());
        let since = Since { called, begun: called };
        let then = Then { work: work.clone(), track: self.track.clone(), since, epoch: self.parts.epoch };
        let slot = self.inbox.slot(&call, self.parts.epoch, Some(then));
        let lane = Arc::clone(self.messages().entry((call.kind.peer(), false)).or_default());
        // SAFETY: the caller's promise; the work ends when the slot has its message, or after it
        // was withdrawn.
        unsafe { self.inbox.post(&slot, wire) };
        let (core, awaited) = (Arc::clone(self), Arc::clone(&slot));
        let begun = lane.enqueue(call, work.clone(), move |_, call| {
            let wire = core.parts.transport.wire().expect("there was one when it was posted");
            let result = core.await_message(&awaited, wire);
            if result.is_err() {
                core.track.record(call, awaited.number, core.parts.epoch, since, Way::Only, true);
            }
            result.map(drop)
        });
        if begun.is_err() {
            self.inbox.withdraw(&slot);
        }
        begun.map(|()| work)
    }

    /// Waits for a posted receive's message; whose it was. One that has come is received though its
    /// sender is gone.
    fn await_message(&self, slot: &Arc<Slot>, wire: &dyn Wire) -> Result<usize, Error> {
        let terms = self.terms(slot.call.deadline);
        let guard = Guard::new(&slot.call, self.parts.rank, slot.number, &terms);
        if self.revoked.load(Ordering::Relaxed) || self.broken.get().is_some() {
            self.inbox.withdraw(slot);
            return Err(self.refuse(slot.number, &slot.call, &guard));
        }
        self.inbox.wait(slot, wire, &guard).map_err(|error| self.fail(error, slot.number, &slot.call))
    }
}
