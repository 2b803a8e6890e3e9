//! Kernels: element by element, several sources become one result, which goes to several destinations.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

mod arithmetic;
mod scalar;

use crate::{DType, ReduceOp};

/// How results are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the caches.
    Cached,
    /// Past the caches: for results that are larger than the last of them.
    Streaming,
}

impl Stores {
    /// How to store where all ranks together touch so many bytes, and the last cache has so many.
    pub(crate) const fn of(cache: usize, bytes: usize) -> Self {
        if bytes > cache { Self::Streaming } else { Self::Cached }
    }
}

/// What is computed of one element of each rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) op: ReduceOp,
    pub(crate) dtype: DType,
    /// How many ranks an average is over.
    pub(crate) ranks: usize,
}

/// `targets[k][i] = reduction over j, in order, of sources[j][i]`, for `len` elements. f16 and bf16 are reduced in f32 and rounded once.
///
/// # Safety
/// All addresses are valid for `len` elements. A target is one of the sources or apart from all of them, and apart from other targets.
pub(crate) unsafe fn reduce(what: &Reduction, targets: &[*mut u8], sources: &[*const u8], len: usize, stores: Stores) {
    let _ = stores;
    // SAFETY: the same promise.
    unsafe { scalar::reduce(what, targets, sources, len) }
}

/// Copies bytes; nothing where both are the same address.
///
/// # Safety
/// Both addresses are valid for `bytes`, and the same or apart.
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize, stores: Stores) {
    let _ = stores;
    if bytes > 0 && target.cast_const() != source {
        // SAFETY: the caller's promise.
        unsafe { target.copy_from_nonoverlapping(source, bytes) }
    }
}
