//! The kernels with wide vectors, chosen at run time: the same bits as [`super::scalar`], as it is
//! the same arithmetic compiled for other instructions.
//!
//! Elements go in blocks of [`BLOCK`] bytes: all sources of a block are read before its results are
//! stored. Results past the caches go by stores that fetch no line first, which need targets
//! aligned alike; others go through the caches.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

use std::{
    arch::x86_64::{__m256i, __m512i, _mm_sfence, _mm256_stream_si256, _mm512_stream_si512},
    sync::OnceLock,
};

use super::{
    Stores,
    arithmetic::{Lane, Operation},
    scalar,
};

/// Bytes that go at once.
pub(super) const BLOCK: usize = 128;
/// What a target is aligned to before it is stored to past the caches.
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
#[inline]
pub(super) fn width() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let has_512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        match (has_512, is_x86_feature_detected!("avx2")) {
            (true, true) => Width::Avx512,
            (false, true) => Width::Avx2,
            (_, false) => Width::Narrow,
        }
    })
}

/// Blocks of `N` elements.
///
/// # Safety
/// As [`super::reduce`], for elements of type `E`; the processor has the width.
pub(super) unsafe fn lanes<E: Lane, O: Operation<E::Value>, const N: usize>(
    width: Width,
    operation: O,
    targets: &[*mut u8],
    sources: &[*const u8],
    len: usize,
    stores: Stores,
) {
    const { assert!(N * size_of::<E>() == BLOCK) };
    // Elements before the first line of the targets, if they are aligned alike.
    let streamed = match stores {
        Stores::Cached => 0,
        Stores::FirstStreaming => 1,
        Stores::Streaming => targets.len(),
    };
    let aligned = lead(&targets[..streamed], size_of::<E>());
    let start = aligned.unwrap_or(0).min(len);
    let blocks = (len - start) / N;
    let rest = start + blocks * N;
    let part = Part {
        targets,
        sources,
        offset: start * size_of::<E>(),
        blocks,
        streamed: if aligned.is_some() { streamed } else { 0 },
    };
    // SAFETY: the parts are within `len`; the caller knows the width.
    unsafe {
        scalar::lanes::<E, O>(operation, targets, sources, 0..start);
        match width {
            Width::Avx512 => avx512::<E, O, N>(operation, &part),
            Width::Avx2 => avx2::<E, O, N>(operation, &part),
            Width::Narrow => scalar::lanes::<E, O>(operation, targets, sources, start..rest),
        }
        scalar::lanes::<E, O>(operation, targets, sources, rest..len);
    }
}

/// Elements of this size until all targets are at a line's start; none if they never are together.
fn lead(targets: &[*mut u8], size: usize) -> Option<usize> {
    let lead = targets.first()?.align_offset(LINE);
    let alike = targets.iter().all(|target| target.align_offset(LINE) == lead);
    (alike && lead.is_multiple_of(size)).then_some(lead / size)
}

/// Whole blocks.
struct Part<'a> {
    targets: &'a [*mut u8],
    sources: &'a [*const u8],
    /// Where they begin, in bytes.
    offset: usize,
    blocks: usize,
    /// So many of the targets, the first ones, are stored to past the caches.
    streamed: usize,
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2")]
unsafe fn avx512<E: Lane, O: Operation<E::Value>, const N: usize>(operation: O, part: &Part<'_>) {
    // SAFETY: the caller's promise; a streamed target is aligned to a line.
    unsafe {
        all_blocks::<E, O, N>(operation, part, |block, target| {
            let [one, two] = std::mem::transmute_copy::<[E; N], [__m512i; 2]>(&block);
            _mm512_stream_si512(target.cast(), one);
            _mm512_stream_si512(target.add(64).cast(), two);
        });
    }
}

#[target_feature(enable = "avx2")]
unsafe fn avx2<E: Lane, O: Operation<E::Value>, const N: usize>(operation: O, part: &Part<'_>) {
    // SAFETY: the caller's promise; a streamed target is aligned to a line.
    unsafe {
        all_blocks::<E, O, N>(operation, part, |block, target| {
            let quarters = std::mem::transmute_copy::<[E; N], [__m256i; 4]>(&block);
            for (i, quarter) in quarters.into_iter().enumerate() {
                _mm256_stream_si256(target.add(i * 32).cast(), quarter);
            }
        });
    }
}

#[inline(always)]
unsafe fn all_blocks<E: Lane, O: Operation<E::Value>, const N: usize>(
    operation: O,
    part: &Part<'_>,
    stream: impl Fn([E; N], *mut u8),
) {
    let Part { targets, sources, .. } = *part;
    let Some((first, rest)) = sources.split_first() else { return };
    let mut offset = part.offset;
    for _ in 0..part.blocks {
        // Plain loops: a closure of the library's array functions would be compiled apart, without
        // the wide instructions. SAFETY: the block is within the lengths that the caller promises.
        let head = unsafe { first.add(offset).cast::<[E; N]>().read_unaligned() };
        let mut sum = [head[0].load(); N];
        for i in 1..N {
            sum[i] = head[i].load();
        }
        for source in rest {
            // SAFETY: as above.
            let next = unsafe { source.add(offset).cast::<[E; N]>().read_unaligned() };
            for i in 0..N {
                sum[i] = operation.join(sum[i], next[i].load());
            }
        }
        let mut result = [E::store(operation.finish(sum[0])); N];
        for i in 1..N {
            result[i] = E::store(operation.finish(sum[i]));
        }
        let (past, through) = targets.split_at(part.streamed);
        for target in past {
            // SAFETY: as above.
            stream(result, unsafe { target.add(offset) });
        }
        for target in through {
            // SAFETY: as above.
            unsafe { target.add(offset).cast::<[E; N]>().write_unaligned(result) };
        }
        offset += BLOCK;
    }
    if part.streamed > 0 {
        // SAFETY: SSE is always there. Streamed stores are seen before the flag that says so.
        unsafe { _mm_sfence() };
    }
}

/// Copies by wide loads and stores that are aligned. The system's `memcpy` copies larger pieces by
/// one instruction that is several times slower where source and target are not aligned alike and
/// another core has the lines.
///
/// # Safety
/// Both addresses are valid for `bytes` and apart.
pub(super) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize, stores: Stores) {
    let lead = target.align_offset(LINE).min(bytes);
    let blocks = (bytes - lead) / BLOCK;
    let rest = lead + blocks * BLOCK;
    let streaming = stores == Stores::Streaming;
    // SAFETY: the parts are within `bytes`.
    unsafe {
        target.copy_from_nonoverlapping(source, lead);
        let (to, from) = (target.add(lead), source.add(lead));
        match width() {
            Width::Avx512 => avx512_copy(to, from, blocks, streaming),
            Width::Avx2 => avx2_copy(to, from, blocks, streaming),
            Width::Narrow => to.copy_from_nonoverlapping(from, rest - lead),
        }
        target.add(rest).copy_from_nonoverlapping(source.add(rest), bytes - rest);
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn avx512_copy(target: *mut u8, source: *const u8, blocks: usize, streaming: bool) {
    // SAFETY: the caller's promise; the target is aligned to a line.
    unsafe {
        for at in (0..blocks).map(|block| block * BLOCK) {
            let [one, two] = source.add(at).cast::<[__m512i; 2]>().read_unaligned();
            let to = target.add(at).cast::<__m512i>();
            if streaming {
                _mm512_stream_si512(to, one);
                _mm512_stream_si512(to.add(1), two);
            } else {
                to.write(one);
                to.add(1).write(two);
            }
        }
        if streaming {
            _mm_sfence();
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn avx2_copy(target: *mut u8, source: *const u8, blocks: usize, streaming: bool) {
    // SAFETY: the caller's promise; the target is aligned to a line.
    unsafe {
        for at in (0..blocks).map(|block| block * BLOCK) {
            let quarters = source.add(at).cast::<[__m256i; 4]>().read_unaligned();
            let to = target.add(at).cast::<__m256i>();
            for (i, quarter) in quarters.into_iter().enumerate() {
                if streaming {
                    _mm256_stream_si256(to.add(i), quarter);
                } else {
                    to.add(i).write(quarter);
                }
            }
        }
        if streaming {
            _mm_sfence();
        }
    }
}
