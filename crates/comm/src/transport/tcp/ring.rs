//! Long vectors among more than two ranks, or two of one host: each rank sends to the next and
//! receives from the one before, all the time.
//!
//! No receiver ever has two senders, and each connection carries one flow that never stops, so
//! congestion control finds the wire's rate once. Reduce-scatter: slice k begins at rank k+1 and
//! goes around; each rank adds its own and hands on, until it ends at rank k. All-gather: the
//! finished slices go around once more. 2 (n-1)/n S bytes each way, 2 (n-1) delays; slices are
//! handed on while they still come.
//!
//! An element of slice k is reduced in the order k+1, k+2, ... n-1, 0, ... k: the same on all ranks
//! and in every run, and not that of the ranks. A type of 16 bits would be rounded at each rank, so
//! such vectors do not come here, but for the greatest and the least, and of two ranks, where there
//! is one sum.
//!
//! Two ranks send as many bytes as if each sent all: but each reduces half of them only, which
//! counts where both copy through one host's memory. Over a wire, which is slower than that, they
//! send all, so that nothing waits for the other half.

#![expect(unsafe_code, reason = "calls are addresses")]

use super::collect::{Operation, Reducer, room};
use super::flow::{In, Order, Out, Stop};
use crate::cost::LONG;
use crate::reduce::{self, Reduction, Stores};
use crate::transport::direct::slice;
use crate::{Call, DType, Kind, ReduceOp};

/// Whether a call of so many ranks, which may all be on one host, goes around.
pub(super) fn goes_around(call: &Call, n: usize, is_within_host: bool) -> bool {
    let rounds =
        |op| n > 2 && matches!(call.dtype, DType::F16 | DType::BF16) && !matches!(op, ReduceOp::Min | ReduceOp::Max);
    let elements = match (call.kind, &call.counts) {
        (Kind::AllReduce(op), _) if !rounds(op) => call.len,
        (Kind::ReduceScatter(op), None) if !rounds(op) => call.len * n,
        (Kind::AllGather, None) => call.len * n,
        _ => 0,
    };
    (n > 2 || n == 2 && is_within_host) && elements * call.dtype.size() >= LONG * n
}

/// Where a slice begins, and its length, in bytes.
type Part<'a> = &'a dyn Fn(usize) -> (usize, usize);

impl Operation<'_> {
    /// What goes around: the slices that are reduced on the way to their rank, then, if `gathers`,
    /// the finished ones to all.
    ///
    /// The finished slice of this rank is put at `own`, the others' within `recv`.
    ///
    /// # Safety
    /// `send` is valid for all slices where the call reduces, `recv` where it gathers, `own` for
    /// this rank's.
    unsafe fn around(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        own: *mut u8,
        part: Part<'_>,
        gathers: bool,
        first: bool,
    ) -> Result<(), Stop> {
        let (n, rank, size) = (self.size, self.rank, self.call.dtype.size());
        let back = |by: usize| (rank + 2 * n - by) % n;
        let (next, before) = (self.lane((rank + 1) % n), self.lane(back(1)));
        let head = first.then_some(self.head);
        let reduces = self.call.kind.op().is_some();
        let (mut outs, mut ins, mut reducers) = (Vec::new(), Vec::new(), Vec::new());
        if reduces {
            // Step s: slice rank-s-1 goes, rank-s-2 comes.
            let coming: usize = (0..n - 1).map(|s| part(back(s + 2)).1).sum();
            let mut scratch = room(self.scratch, coming);
            let mut goes = send.wrapping_add(part(back(1)).0);
            for s in 0..n - 1 {
                outs.push(Out::new(next, head.filter(|_| s == 0), goes, part(back(s + 1)).1));
                let (at, bytes) = part(back(s + 2));
                ins.push(In::new(before, head.filter(|_| s == 0), scratch, bytes));
                let what = self.step_of_ring(s + 2 == n);
                // The sum so far is made where it came to, and handed on from there.
                let target = if s + 2 == n { own } else { scratch };
                goes = scratch.cast_const();
                let sources = vec![scratch.cast_const(), send.wrapping_add(at)];
                reducers.push(Reducer { what, sources, target, size, len: bytes, done: 0 });
                scratch = scratch.wrapping_add(bytes);
            }
        }
        let steps = ins.len();
        if gathers {
            // Step s: slice rank-s goes, rank-s-1 comes.
            for s in 0..n - 1 {
                let head = head.filter(|_| !reduces && s == 0);
                let (at, bytes) = part(back(s));
                let base = if s == 0 { own.cast_const() } else { recv.wrapping_add(at).cast_const() };
                outs.push(Out::new(next, head, base, bytes));
                let (at, bytes) = part(back(s + 1));
                ins.push(In::new(before, head, recv.wrapping_add(at), bytes));
            }
        }
        let mut step = |outs: &mut [Out], ins: &[In]| {
            for (index, out) in outs.iter_mut().enumerate().skip(1) {
                let Some(came) = ins.get(index - 1) else { break };
                out.allowed = match reducers.get_mut(index - 1) {
                    // SAFETY: so many bytes of the sum so far are there, and of the own vector
                    // always; they are not sent before they are reduced.
                    Some(reducer) => unsafe { reducer.advance(came.done) },
                    None => came.done,
                };
            }
            // Without a gathering, nobody sends what the last step makes.
            if let (Some(reducer), Some(came), false) = (reducers.last_mut(), ins.get(steps.wrapping_sub(1)), gathers) {
                // SAFETY: as above.
                unsafe { reducer.advance(came.done) };
            }
        };
        // SAFETY: slices are within what the caller promises. In place, a finished slice comes only
        // after its sum has gone around, so after what was there was used.
        unsafe { self.flow(&mut outs, &mut ins, Order::AtOnce, &mut step) }
    }

    /// Sums on the way; an average is divided by the last.
    fn step_of_ring(&self, is_last: bool) -> Option<Reduction> {
        let op = match self.call.kind.op()? {
            ReduceOp::Avg if !is_last => ReduceOp::Sum,
            op => op,
        };
        Some(Reduction { op, dtype: self.call.dtype, ranks: self.size })
    }

    pub(super) unsafe fn all_reduce_around(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        len: usize,
        first: bool,
    ) -> Result<(), Stop> {
        let (n, size) = (self.size, self.call.dtype.size());
        let part = |k: usize| {
            let (at, count) = slice(len, size, k, n);
            (at * size, count * size)
        };
        let own = recv.wrapping_add(part(self.rank).0);
        // SAFETY: the caller's promise.
        unsafe { self.around(send, recv, own, &part, true, first) }
    }

    pub(super) unsafe fn reduce_scatter_around(&mut self) -> Result<(), Stop> {
        let call = self.call;
        let each = call.len * call.dtype.size();
        // SAFETY: the caller's promise.
        unsafe { self.around(call.send, std::ptr::null_mut(), call.recv, &|k| (k * each, each), false, true) }
    }

    pub(super) unsafe fn all_gather_around(&mut self) -> Result<(), Stop> {
        let call = self.call;
        let each = call.len * call.dtype.size();
        let own = call.recv.wrapping_add(self.rank * each);
        // SAFETY: the caller's promise.
        unsafe {
            reduce::copy(own, call.send, each, Stores::Cached);
            self.around(own, call.recv, own, &|k| (k * each, each), true, true)
        }
    }
}
