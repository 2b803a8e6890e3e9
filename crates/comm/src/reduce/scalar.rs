//! The kernels in plain Rust, for every machine; the others give the same bits.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

use half::{bf16, f16};

use super::{
    Reduction,
    arithmetic::{Avg, Lane, Max, Min, Operation, Product, Sum, Truth},
};
use crate::{DType, ReduceOp};

/// As [`super::reduce`].
///
/// # Safety
/// As there.
pub(super) unsafe fn reduce(what: &Reduction, targets: &[*mut u8], sources: &[*const u8], len: usize) {
    macro_rules! with {
        ($element:ty, $average:expr) => {
            // SAFETY: the caller's promise; the element type has the size of the data type.
            unsafe {
                match what.op {
                    ReduceOp::Sum => lanes::<$element, _>(Sum, targets, sources, len),
                    ReduceOp::Min => lanes::<$element, _>(Min, targets, sources, len),
                    ReduceOp::Max => lanes::<$element, _>(Max, targets, sources, len),
                    ReduceOp::Product => lanes::<$element, _>(Product, targets, sources, len),
                    ReduceOp::Avg => lanes::<$element, _>($average, targets, sources, len),
                }
            }
        };
    }
    match what.dtype {
        DType::F32 => with!(f32, Avg(what.ranks)),
        DType::F64 => with!(f64, Avg(what.ranks)),
        DType::F16 => with!(f16, Avg(what.ranks)),
        DType::BF16 => with!(bf16, Avg(what.ranks)),
        // Averages of these are refused before they come here.
        DType::I8 => with!(i8, Sum),
        DType::I16 => with!(i16, Sum),
        DType::I32 => with!(i32, Sum),
        DType::I64 => with!(i64, Sum),
        DType::U8 => with!(u8, Sum),
        DType::Bool => with!(Truth, Sum),
    }
}

/// # Safety
/// As [`super::reduce`], for elements of type `E`.
unsafe fn lanes<E: Lane, O: Operation<E::Value>>(operation: O, targets: &[*mut u8], sources: &[*const u8], len: usize) {
    let Some((first, rest)) = sources.split_first() else { return };
    for i in 0..len {
        // SAFETY: `i` is below `len`; all sources of an element are read before its targets are written.
        unsafe {
            let mut sum = first.cast::<E>().add(i).read_unaligned().load();
            for source in rest {
                sum = operation.join(sum, source.cast::<E>().add(i).read_unaligned().load());
            }
            let result = E::store(operation.finish(sum));
            for target in targets {
                target.cast::<E>().add(i).write_unaligned(result);
            }
        }
    }
}
