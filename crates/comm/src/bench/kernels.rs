//! The loops below the operations, one by one: what `examples/instructions.rs` counts the
//! instructions of.

#![expect(unsafe_code, reason = "the kernels take addresses")]

use crate::{
    Element, ReduceOp,
    reduce::{self, Reduction, Stores},
    timeline,
};

/// Which instructions the kernels use on this processor: `Avx512`, `Avx2` or `Narrow`.
pub fn width() -> String {
    reduce::instructions()
}

/// `target` becomes the sum of the sources, element by element, through the caches: one rank's part
/// of an all-reduce.
///
/// # Panics
/// A source is shorter than the target.
pub fn sum<T: Element>(target: &mut [T], sources: &[&[T]]) {
    assert!(sources.iter().all(|source| source.len() >= target.len()), "a source is shorter than the target");
    let addresses: Vec<_> = sources.iter().map(|source| source.as_ptr().cast()).collect();
    let what = Reduction { op: ReduceOp::Sum, dtype: T::DTYPE, ranks: sources.len() };
    // SAFETY: the sources were compared with the target's length, and the target is borrowed
    // mutably, so it is apart from them.
    unsafe { reduce::reduce(&what, &[target.as_mut_ptr().cast()], &addresses, target.len(), Stores::Cached) };
}

/// Copies past the caches, as for vectors that are longer than the last of them.
///
/// # Panics
/// The lengths differ.
pub fn copy_past_caches(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "a copy between different lengths");
    // SAFETY: both have that length; the target is borrowed mutably, so they are apart.
    unsafe { reduce::copy(target.as_mut_ptr(), source.as_ptr(), source.len(), Stores::Streaming) };
}

/// A timeline of its own that is never written: what recording costs.
#[derive(Debug)]
pub struct Recording(timeline::Track);

impl Recording {
    /// Records nothing so far.
    pub fn new() -> Self {
        Self(timeline::Track::unwritten())
    }

    /// Records so many operations, each with its two looks at the clock.
    pub fn record(&self, operations: u64) {
        self.0.record_many(operations);
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new()
    }
}
