//! Flags: words with one writer and many readers, each in a cache line of its own.
//!
//! A writer stores with release what it has finished before; a reader that has loaded the value
//! with acquire sees it. Values only grow (and may wrap around), so a reader can never miss one.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// How many bits a step within an operation has; the rest counts operations.
const STEPS: u32 = 24;

/// A word with one writer.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Flag(AtomicU64);

impl Flag {
    #[cfg(any(loom, test))]
    #[cfg_attr(loom, allow(dead_code, reason = "the model is a test that takes this file in"))]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Says "come to operation `seq`, with this signature"; everything written before can be read
    /// by whoever sees it.
    #[inline]
    pub(crate) fn arrive(&self, seq: u64, signature: u64) {
        self.0.store(arrival(seq, signature), Ordering::Release);
    }

    /// None before the writer has come to operation `seq`; then, whether its signature is the same.
    #[inline]
    pub(crate) fn has_arrived(&self, seq: u64, signature: u64) -> Option<bool> {
        let (seen, wanted) = (self.0.load(Ordering::Acquire), arrival(seq, signature));
        let ahead = ((seen >> 32) as u32).wrapping_sub((wanted >> 32) as u32).cast_signed();
        (ahead >= 0).then_some(ahead > 0 || seen as u32 == wanted as u32)
    }

    /// Says "done with so many steps of operation `seq`".
    #[inline]
    pub(crate) fn advance(&self, seq: u64, steps: usize) {
        self.0.store(progress(seq, steps), Ordering::Release);
    }

    /// Whether the writer has done so many steps of operation `seq`, or is beyond it.
    #[inline]
    pub(crate) fn has_done(&self, seq: u64, steps: usize) -> bool {
        self.0.load(Ordering::Acquire).wrapping_sub(progress(seq, steps)).cast_signed() >= 0
    }
}

/// The number of the operation (from 1, as nothing has come to 0) and half the signature.
#[inline]
const fn arrival(seq: u64, signature: u64) -> u64 {
    (seq.wrapping_add(1) << 32) | (signature ^ (signature >> 32)) & 0xffff_ffff
}

#[inline]
const fn progress(seq: u64, steps: usize) -> u64 {
    debug_assert!(steps < 1 << STEPS);
    (seq.wrapping_add(1) << STEPS).wrapping_add(steps as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_seen_in_their_order_and_compared() {
        let flag = Flag::new();
        assert_eq!(flag.has_arrived(0, 7), None);
        flag.arrive(0, 7);
        assert_eq!(
            (flag.has_arrived(0, 7), flag.has_arrived(0, 8), flag.has_arrived(1, 7)),
            (Some(true), Some(false), None)
        );
        // The 32 bits of the number wrap around.
        let many = (1 << 32) - 2;
        flag.arrive(many, 7);
        assert_eq!((flag.has_arrived(many, 7), flag.has_arrived(many + 1, 7)), (Some(true), None));
        flag.arrive(many + 1, 7);
        assert_eq!((flag.has_arrived(many, 7), flag.has_arrived(many + 1, 7)), (Some(true), Some(true)));
        assert_eq!(flag.has_arrived(many + 2, 7), None);
    }

    #[test]
    fn steps_of_later_operations_are_further() {
        let flag = Flag::new();
        assert!(!flag.has_done(0, 0));
        flag.advance(3, 2);
        assert!(flag.has_done(3, 2) && flag.has_done(2, 9) && !flag.has_done(3, 3) && !flag.has_done(4, 0));
        let last = u64::MAX >> STEPS;
        flag.advance(last, 1);
        assert!(!flag.has_done(last + 1, 0));
        flag.advance(last + 1, 1);
        assert!(flag.has_done(last + 1, 1) && flag.has_done(last, 5));
    }
}
