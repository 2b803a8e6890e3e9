//! How a rank writes what others read next: through the caches or past them.
//!
//! A line that another core has read is slow to write again where the two cores share no cache: 2
//! GB/s on an AMD EPYC, and 10 to 60 where they do. There it is faster to write past the caches, at
//! any size; where a cache is shared, that is slower. Which of the two it is follows from where the
//! system, or the one beneath it, has put the ranks, and changes while they run (a shared host
//! moves its guests' cores every few seconds). So each rank times what it writes.
//!
//! Places are taken in turns ([`super::control`]), and a line that was written past the caches is
//! fast to write once more: that the caches are slow is seen only when all stages have been written
//! through them. Results, which cannot be timed apart from the reduction, go through the caches
//! when that is known not to be so.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use super::control::ROUND;
use crate::{reduce::Stores, staging::Writing};

/// Less is written through the caches, whatever is known.
const LEAST: usize = 4 << 10;
/// Bytes per nanosecond of writing slowly. Slower still is a rank that was interrupted.
const SLOW: std::ops::Range<f64> = 0.7..8.0;
/// Rounds that are written past the caches before the caches are tried again.
const PAST: usize = 4;

/// What a rank knows of its writes. Of several threads that write at the same time, one's word
/// counts.
#[derive(Debug, Default)]
pub(super) struct Writes {
    timed: bool,
    /// How many more bytes of stages go past the caches.
    left: AtomicUsize,
    /// Bytes of stages that went through the caches, and were not slow, since some were.
    fast: AtomicUsize,
}

impl Writes {
    /// `timed` where ranks run at the same time; else only caches are used, which ranks on one core
    /// share.
    pub(super) fn new(timed: bool) -> Self {
        Self { timed, ..Self::default() }
    }

    /// As after a slow write.
    #[cfg(test)]
    pub(super) fn found_slow(&self) {
        self.took(2000, 1000.0);
    }

    /// How to write that many bytes of results.
    pub(super) fn of_results(&self, writing: Writing, bytes: usize) -> Stores {
        let past = match writing {
            Writing::Timed => self.timed && self.fast.load(Ordering::Relaxed) < 2 * ROUND,
            Writing::Cached => false,
            Writing::Past => true,
        };
        if past && bytes >= LEAST { Stores::Streaming } else { Stores::Cached }
    }

    /// Writes that many bytes of a stage by `write`, in the way that is asked for, or is faster
    /// here.
    pub(super) fn stage(&self, writing: Writing, bytes: usize, write: impl FnOnce(Stores)) {
        match writing {
            Writing::Past if bytes >= LEAST => return write(Stores::Streaming),
            Writing::Timed if self.timed && bytes >= LEAST => {}
            _ => return write(Stores::Cached),
        }
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left.saturating_sub(bytes), Ordering::Relaxed);
            return write(Stores::Streaming);
        }
        let begun = Instant::now();
        write(Stores::Cached);
        self.took(bytes, begun.elapsed().as_nanos() as f64);
    }

    /// So many bytes through the caches took so long.
    fn took(&self, bytes: usize, nanoseconds: f64) {
        let is_slow = SLOW.contains(&(bytes as f64 / nanoseconds));
        let fast = if is_slow { 0 } else { self.fast.load(Ordering::Relaxed).saturating_add(bytes) };
        self.fast.store(fast, Ordering::Relaxed);
        self.left.store(if is_slow { PAST * ROUND } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_writes_go_past_the_caches_for_some_rounds() {
        let writes = Writes::new(true);
        let past = || {
            (0..)
                .take_while(|_| {
                    let mut past = false;
                    writes.stage(Writing::Timed, LEAST, |stores| past = stores == Stores::Streaming);
                    past
                })
                .count()
        };
        assert_eq!((past(), writes.of_results(Writing::Timed, LEAST)), (0, Stores::Streaming), "nothing is known");
        writes.took(2 * ROUND, 1.0);
        assert_eq!((past(), writes.of_results(Writing::Timed, LEAST)), (0, Stores::Cached), "fast for two rounds");
        writes.took(1000, 10_000.0);
        assert_eq!((past(), writes.of_results(Writing::Timed, LEAST)), (0, Stores::Cached), "interrupted");
        writes.took(2000, 1000.0);
        assert_eq!(
            (writes.of_results(Writing::Timed, LEAST), writes.of_results(Writing::Timed, LEAST - 1)),
            (Stores::Streaming, Stores::Cached),
            "slow, and too short"
        );
        assert_eq!(past(), PAST * ROUND / LEAST);
        assert_eq!(
            writes.of_results(Writing::Timed, LEAST),
            Stores::Streaming,
            "through the caches, but not for long enough"
        );
    }
    #[test]
    fn what_is_asked_for_is_done_without_a_clock() {
        let writes = Writes::new(true);
        for (writing, bytes, expected) in [
            (Writing::Past, LEAST, Stores::Streaming),
            (Writing::Past, LEAST - 1, Stores::Cached),
            (Writing::Cached, ROUND, Stores::Cached),
        ] {
            let mut seen = None;
            writes.stage(writing, bytes, |stores| seen = Some(stores));
            assert_eq!(
                (seen, writes.of_results(writing, bytes)),
                (Some(expected), expected),
                "{writing:?}, {bytes} bytes"
            );
        }
        assert_eq!(writes.fast.load(Ordering::Relaxed), 0, "nothing was timed");
    }
}
