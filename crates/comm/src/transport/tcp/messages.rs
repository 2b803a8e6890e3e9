//! Messages of two ranks: connections of their own, so that they wait for no collective.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::net::TcpStream;

use super::flow::{self, Head, In, Order, Out, Stop};
use crate::guard::Guard;
use crate::{Call, Kind};

/// One connection per other rank. Its two directions are used by two threads at most, one each.
#[derive(Debug)]
pub(super) struct Messages {
    streams: Vec<TcpStream>,
}

impl Messages {
    pub(super) fn new(streams: Vec<TcpStream>) -> Self {
        Self { streams }
    }

    /// Sends the call's message, which is done when the system has taken it, or takes the next one.
    ///
    /// # Safety
    /// As for [`crate::transport::Transport::execute`].
    pub(super) unsafe fn exchange(
        &self,
        lane: usize,
        call: &Call,
        head: Head,
        guard: &Guard<'_>,
        rank_of: &dyn Fn(usize) -> usize,
    ) -> Result<(), Stop> {
        let (sends, bytes) = (matches!(call.kind, Kind::Send { .. }), call.len * call.dtype.size());
        let mut out = sends.then(|| Out::new(lane, Some(head), call.send, bytes));
        let mut into = (!sends).then(|| In::new(lane, Some(head), call.recv, bytes));
        let (outs, ins) = (out.as_mut_slice(), into.as_mut_slice());
        // SAFETY: the caller's promise.
        unsafe { flow::run(&self.streams, rank_of, outs, ins, Order::AtOnce, guard, &mut |_, _| {}) }
    }
}
