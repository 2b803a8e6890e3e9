//! The kernels with wide vectors, chosen at run time; the same bits as [`super::scalar`], as the same arithmetic is compiled for other instructions.
//!
//! Elements go in blocks of [`BLOCK`] bytes: all sources of a block are read before its results are stored. Results past the caches go by
//! stores that fetch no line first, which needs targets aligned to 64 bytes; where that cannot be, they go through the caches.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

use std::{arch::x86_64::*, mem::MaybeUninit, sync::OnceLock};

use super::{
    Stores,
    arithmetic::{Lane, Operation},
    scalar,
};

/// Bytes that go at once: four lines, so that several loads are under way.
const BLOCK: usize = 256;
/// Bytes from where a target can be stored to past the caches.
const LINE: usize = 64;

/// What this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// AVX-512 (F, BW, VL, DQ).
    Avx512,
    /// AVX2.
    Avx2,
    /// Neither.
    Narrow,
}

/// Looked up once.
pub(super) fn width() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        if wide {
            Width::Avx512
        } else if is_x86_feature_detected!("avx2") {
            Width::Avx2
        } else {
            Width::Narrow
        }
    })
}

/// # Safety
/// As [`super::reduce`], for elements of type `E`.
pub(super) unsafe fn lanes<E: Lane, O: Operation<E::Value>>(
    width: Width,
    operation: O,
    targets: &[*mut u8],
    sources: &[*const u8],
    len: usize,
    stores: Stores,
) {
    let bytes = len * size_of::<E>();
    let head = if stores == Stores::Streaming { head::<E>(targets).min(len) } else { Some(0) };
    // Elements before the first line of all targets, blocks, and the rest.
    let (head, stream) = head.map_or((0, false), |head| (head, stores == Stores::Streaming));
    let blocks = (bytes - head * size_of::<E>()) / BLOCK;
    let tail = head + blocks * (BLOCK / size_of::<E>());
    // SAFETY: the parts are within `len`; the features were detected.
    unsafe {
        part::<E, O>(operation, targets, sources, 0, head);
        match (width, stream) {
            (Width::Avx512, false) => avx512::<E, O, false>(operation, targets, sources, head, blocks),
            (Width::Avx512, true) => avx512::<E, O, true>(operation, targets, sources, head, blocks),
            (Width::Avx2, false) => avx2::<E, O, false>(operation, targets, sources, head, blocks),
            (Width::Avx2, true) => avx2::<E, O, true>(operation, targets, sources, head, blocks),
            (Width::Narrow, _) => part::<E, O>(operation, targets, sources, head, tail),
        }
        part::<E, O>(operation, targets, sources, tail, len);
    }
}
