//! Numbers that follow from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `below` - 1.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Runs `test` with each seed and names the one that fails.
pub(crate) fn with_seeds(seeds: u64, mut test: impl FnMut(u64)) {
    for seed in 0..seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed}");
            resume_unwind(panic);
        }
    }
}
