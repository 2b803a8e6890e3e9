//! Messages of two ranks: connections of their own, so that they wait for no collective.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::net::TcpStream;

use super::flow::{self, Head, In, Order, Out, Stop};
use crate::Call;
use crate::guard::Guard;

/// One connection per other rank. Its two directions are used by two threads at most, one each.
#[derive(Debug)]
pub(super) struct Messages {
    streams: Vec<TcpStream>,
}

impl Messages {
    pub(super) fn new(streams: Vec<TcpStream>) -> Self {
        Self { streams }
    }

    /// Sends the call's message; done when the system has taken it.
    ///
    /// # Safety
    /// As for [`crate::transport::Transport::execute`].
    pub(super) unsafe fn send(
        &self,
        lane: usize,
        call: &Call,
        head: Head,
        guard: &Guard<'_>,
        rank_of: &dyn Fn(usize) -> usize,
    ) -> Result<(), Stop> {
        let mut outs = [Out::new(lane, Some(head), call.send, call.len * call.dtype.size())];
        // SAFETY: the caller's promise.
        unsafe { flow::run(&self.streams, rank_of, &mut outs, &mut [], Order::AtOnce, guard, &mut |_, _| {}) }
    }

    /// Takes the next message.
    ///
    /// # Safety
    /// As for [`crate::transport::Transport::execute`].
    pub(super) unsafe fn receive(
        &self,
        lane: usize,
        call: &Call,
        head: Head,
        guard: &Guard<'_>,
        rank_of: &dyn Fn(usize) -> usize,
    ) -> Result<(), Stop> {
        let mut ins = [In::new(lane, Some(head), call.recv, call.len * call.dtype.size())];
        // SAFETY: the caller's promise.
        unsafe { flow::run(&self.streams, rank_of, &mut [], &mut ins, Order::AtOnce, guard, &mut |_, _| {}) }
    }
}
