//! Kernels: element by element, several sources become one result, which goes to several
//! destinations.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

mod arithmetic;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod vector;

pub(crate) use arithmetic::Lane;
use half::{bf16, f16};

use self::{
    arithmetic::{Avg, Max, Min, Product, Sum, Truth},
    vector::{Width, lanes, width},
};
use crate::{DType, ReduceOp};

/// How results are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the caches.
    Cached,
    /// Past the caches: for results that are larger than the last of them.
    Streaming,
    /// The first target past the caches, as others read it next and not this rank; the rest through
    /// them.
    FirstStreaming,
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

/// `targets[k][i] = reduction over j, in order, of sources[j][i]`, for `len` elements. f16 and bf16
/// are reduced in f32 and rounded once.
///
/// # Safety
/// All addresses are valid for `len` elements. A target is one of the sources or apart from all of
/// them, and apart from other targets.
pub(crate) unsafe fn reduce(what: &Reduction, targets: &[*mut u8], sources: &[*const u8], len: usize, stores: Stores) {
    // SAFETY: the same promise, and the width is what this processor has.
    unsafe { with_width(width(), what, targets, sources, len, stores) }
}

/// Whether this processor has AVX-512 (F, BW, VL, DQ).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx512() -> bool {
    width() == Width::Avx512
}

/// Which instructions this processor's kernels use, by name.
#[cfg(feature = "bench")]
pub(crate) fn instructions() -> String {
    format!("{:?}", width())
}

/// # Safety
/// As [`reduce`]; the processor has the width.
unsafe fn with_width(
    width: Width,
    what: &Reduction,
    targets: &[*mut u8],
    sources: &[*const u8],
    len: usize,
    stores: Stores,
) {
    macro_rules! with {
        ($element:ty, $block:literal, $average:expr) => {
            // SAFETY: the caller's promise; the element type has the size of the data type.
            unsafe {
                match what.op {
                    ReduceOp::Sum => lanes::<$element, _, $block>(width, Sum, targets, sources, len, stores),
                    ReduceOp::Min => lanes::<$element, _, $block>(width, Min, targets, sources, len, stores),
                    ReduceOp::Max => lanes::<$element, _, $block>(width, Max, targets, sources, len, stores),
                    ReduceOp::Product => lanes::<$element, _, $block>(width, Product, targets, sources, len, stores),
                    ReduceOp::Avg => lanes::<$element, _, $block>(width, $average, targets, sources, len, stores),
                }
            }
        };
    }
    match what.dtype {
        DType::F32 => with!(f32, 32, Avg(what.ranks)),
        DType::F64 => with!(f64, 16, Avg(what.ranks)),
        DType::F16 => with!(f16, 64, Avg(what.ranks)),
        DType::BF16 => with!(bf16, 64, Avg(what.ranks)),
        // Averages of these are refused before they come here.
        DType::I8 => with!(i8, 128, Sum),
        DType::I16 => with!(i16, 64, Sum),
        DType::I32 => with!(i32, 32, Sum),
        DType::I64 => with!(i64, 16, Sum),
        DType::U8 => with!(u8, 128, Sum),
        DType::Bool => with!(Truth, 128, Sum),
    }
}

/// Copies bytes; nothing where both are the same address.
///
/// # Safety
/// Both addresses are valid for `bytes`, and the same or apart.
pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize, stores: Stores) {
    if bytes == 0 || target.cast_const() == source {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if bytes < SHORT {
            target.copy_from_nonoverlapping(source, bytes);
        } else {
            vector::copy(target, source, bytes, stores);
        }
    }
}

/// Copies below this are the standard library's.
const SHORT: usize = 512;

/// Where there are no vectors to choose among: arm64 has its own in every build.
#[cfg(not(target_arch = "x86_64"))]
mod vector {
    use super::{
        Stores,
        arithmetic::{Lane, Operation},
        scalar,
    };

    #[derive(Debug, Clone, Copy)]
    pub(super) enum Width {
        Narrow,
    }

    pub(super) fn width() -> Width {
        Width::Narrow
    }

    /// # Safety
    /// As [`super::reduce`].
    pub(super) unsafe fn lanes<E: Lane, O: Operation<E::Value>, const N: usize>(
        _: Width,
        operation: O,
        targets: &[*mut u8],
        sources: &[*const u8],
        len: usize,
        _: Stores,
    ) {
        // SAFETY: the caller's promise.
        unsafe { scalar::lanes::<E, O>(operation, targets, sources, 0..len) }
    }

    /// # Safety
    /// As [`super::copy`].
    pub(super) unsafe fn copy(target: *mut u8, source: *const u8, bytes: usize, _: Stores) {
        // SAFETY: the caller's promise.
        unsafe { target.copy_from_nonoverlapping(source, bytes) }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Pseudo-random bytes; of truths only their last bit.
    fn noise(seed: u64, len: usize, dtype: DType) -> Vec<u8> {
        let mut x = seed | 1;
        let mut next = || {
            x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (x >> 56) as u8
        };
        (0..len).map(|_| if dtype == DType::Bool { next() & 1 } else { next() }).collect()
    }

    #[test]
    fn every_width_gives_the_same_bits() {
        let widths: &[Width] = match width() {
            Width::Avx512 => &[Width::Avx512, Width::Avx2],
            Width::Avx2 => &[Width::Avx2],
            Width::Narrow => &[],
        };
        let ops = |dtype: DType| ReduceOp::ALL.into_iter().filter(move |op| *op != ReduceOp::Avg || dtype.is_float());
        for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ops(dtype).map(move |op| (dtype, op))) {
            for (ranks, len, shift) in [(2, 1000, 0), (3, 517, 4), (5, 64, 1), (2, 0, 0), (1, 300, 60)] {
                let what = Reduction { op, dtype, ranks };
                let bytes = len * dtype.size() + shift;
                let sources: Vec<_> = (0..ranks).map(|r| noise(r as u64 * 77 + 5, bytes, dtype)).collect();
                let sources: Vec<_> = sources.iter().map(|source| source[shift..].as_ptr()).collect();
                let run = |width: Width, stores: Stores| {
                    let mut targets = [vec![0xaa_u8; bytes + 64], vec![0xaa; bytes + 64]];
                    let addresses = targets.each_mut().map(|target| target[shift..].as_mut_ptr());
                    // SAFETY: all have room for `len` elements, and targets are apart.
                    unsafe { with_width(width, &what, &addresses, &sources, len, stores) };
                    targets
                };
                let expected = run(Width::Narrow, Stores::Cached);
                for width in widths {
                    for stores in [Stores::Cached, Stores::Streaming, Stores::FirstStreaming] {
                        assert!(
                            same(dtype, &run(*width, stores), &expected, shift),
                            "{width:?} {stores:?} {what:?} of {len}"
                        );
                    }
                }
            }
        }
    }

    /// Bit for bit; a NaN's own bits are the processor's choice among those that came in, which the
    /// order of operands decides.
    fn same(dtype: DType, one: &[Vec<u8>], other: &[Vec<u8>], shift: usize) -> bool {
        let is_nan = |bytes: &[u8]| match dtype {
            DType::F32 => bytes.try_into().map(f32::from_le_bytes).is_ok_and(f32::is_nan),
            DType::F64 => bytes.try_into().map(f64::from_le_bytes).is_ok_and(f64::is_nan),
            DType::F16 => bytes.try_into().map(f16::from_le_bytes).is_ok_and(f16::is_nan),
            DType::BF16 => bytes.try_into().map(bf16::from_le_bytes).is_ok_and(bf16::is_nan),
            _ => false,
        };
        one.iter().zip(other).all(|(one, other)| {
            one[..shift] == other[..shift]
                && one[shift..]
                    .chunks(dtype.size())
                    .zip(other[shift..].chunks(dtype.size()))
                    .all(|(one, other)| one == other || (one.len() == dtype.size() && is_nan(one) && is_nan(other)))
        })
    }

    #[test]
    fn copies_are_copies() {
        let lengths = [(0, 4096), (3, 1000), (63, 130), (0, 5), (1, 0), (7, 5000)];
        for ((shift, len), stores) in lengths.into_iter().flat_map(|it| [(it, Stores::Cached), (it, Stores::Streaming)])
        {
            let source = noise(3, len + shift, DType::U8);
            let mut target = vec![0_u8; len + 64];
            // SAFETY: both have room, and are apart.
            unsafe {
                copy(target[shift..].as_mut_ptr(), source[shift..].as_ptr(), len.min(target.len() - shift), stores);
            };
            let copied = len.min(target.len() - shift);
            assert_eq!(target[shift..shift + copied], source[shift..shift + copied]);
        }
    }
}
