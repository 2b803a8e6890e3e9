//! How results are stored that may exceed the caches: through them or past them.
//!
//! The system's word for the last cache is no good where it is a whole socket's and this machine
//! has two of its cores. So, where that is asked for, each rank times its operations both ways, by
//! their size, and keeps to the faster one. The other way has a turn now and then, as what else
//! runs on the socket changes. Which way a rank takes is its own affair: the bits are the same.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

use super::choice::Large;
use crate::reduce::Stores;

/// All ranks' bytes from which both ways are timed; less fits every cache that is the last of some
/// cores.
const LEAST: usize = 8 << 20;
/// A class for each power of two above.
const CLASSES: usize = 16;
/// Each way has so many turns at first, of which pages that come with the first touch spoil one.
const FIRST: u32 = 2;
/// One of so many operations goes the slower way.
const AGAIN: u32 = 128;

/// What a rank knows of its larger operations.
#[derive(Debug)]
pub(super) struct Results {
    large: Large,
    /// Bytes of the last cache.
    cache: usize,
    classes: [Class; CLASSES],
}

/// Operations of about one size.
#[derive(Debug, Default)]
struct Class {
    done: AtomicU32,
    /// Nanoseconds through the caches, and past them; as bits of f64.
    took: [AtomicU64; 2],
}

/// By their places in `Class::took`.
const WAYS: [Stores; 2] = [Stores::Cached, Stores::Streaming];

impl Results {
    pub(super) fn new(large: Large, cache: usize) -> Self {
        Self { large, cache, classes: Default::default() }
    }

    /// Does `work`, in which all ranks touch so many bytes, in the way that is faster here.
    pub(super) fn store<T>(&self, bytes: usize, work: impl FnOnce(Stores) -> T) -> T {
        let by_cache = Stores::of(self.cache, bytes);
        match self.large {
            Large::ByCache => work(by_cache),
            Large::Always(stores) => work(if bytes < LEAST { Stores::Cached } else { stores }),
            Large::Timed if bytes < LEAST => work(by_cache),
            Large::Timed => {
                let class = &self.classes[(bytes.ilog2() - LEAST.ilog2()).min(CLASSES as u32 - 1) as usize];
                let way = class.way(by_cache);
                let begun = Instant::now();
                let done = work(WAYS[way]);
                class.learn(way, begun.elapsed().as_nanos() as f64 / bytes as f64);
                done
            }
        }
    }
}

impl Class {
    /// Which way the next one goes.
    fn way(&self, first: Stores) -> usize {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        let first = usize::from(first == Stores::Streaming);
        if number < 2 * FIRST {
            return if number.is_multiple_of(2) { first } else { 1 - first };
        }
        let [cached, past] = self.took.each_ref().map(|took| f64::from_bits(took.load(Ordering::Relaxed)));
        let faster = usize::from(past < cached);
        if number.is_multiple_of(AGAIN) { 1 - faster } else { faster }
    }

    /// A shorter time counts at once, a longer one slowly: most that is slow was interrupted.
    fn learn(&self, way: usize, took: f64) {
        let before = f64::from_bits(self.took[way].load(Ordering::Relaxed));
        let after = if before == 0.0 || took < before { took } else { before + (took - before) / 8.0 };
        self.took[way].store(after.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many operations go past the caches, where these times are true.
    fn past(class: &Class, many: usize, cached: f64, past: f64) -> usize {
        let one = || {
            let way = class.way(Stores::Cached);
            class.learn(way, [cached, past][way]);
            way
        };
        (0..many).map(|_| one()).sum()
    }

    #[test]
    fn the_faster_way_is_kept_to_and_the_other_tried_again() {
        let class = Class::default();
        assert_eq!(past(&class, 4, 2.0, 1.0), 2, "each way has two turns");
        assert_eq!(past(&class, 124, 2.0, 1.0), 124);
        assert_eq!(past(&class, 128, 2.0, 1.0), 127, "the other has one of so many");
        // The machine changes: past the caches is slow now, and its time follows in some
        // operations.
        assert!(past(&class, 128, 2.0, 4.0) < 16);
        assert_eq!(past(&class, 128, 2.0, 4.0), 1);
    }

    #[test]
    fn sizes_and_orders_decide_what_is_timed() {
        let stores = |large, bytes| Results::new(large, 32 << 20).store(bytes, |stores| stores);
        assert_eq!(
            (stores(Large::ByCache, 32 << 20), stores(Large::ByCache, (32 << 20) + 1)),
            (Stores::Cached, Stores::Streaming)
        );
        assert_eq!(stores(Large::Always(Stores::Streaming), LEAST), Stores::Streaming);
        assert_eq!(stores(Large::Always(Stores::Streaming), LEAST - 1), Stores::Cached);
        let timed = Results::new(Large::Timed, 1 << 30);
        let ways: Vec<_> = (0..4).map(|_| timed.store(LEAST, |stores| stores)).collect();
        assert_eq!(ways, [Stores::Cached, Stores::Streaming, Stores::Cached, Stores::Streaming]);
        assert_eq!(timed.store(usize::MAX, |stores| stores), Stores::Streaming, "the last class has no end");
        assert_eq!(timed.store(LEAST - 1, |stores| stores), Stores::Cached);
    }
}
