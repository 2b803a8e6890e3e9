//! The kernels in plain Rust, for every machine; the others give the same bits.

#![expect(unsafe_code, reason = "sources and destinations are memory of several ranks, reached by address")]

use std::ops::Range;

use super::arithmetic::{Lane, Operation};

/// A range of elements.
///
/// # Safety
/// As [`super::reduce`], for elements of type `E`.
pub(super) unsafe fn lanes<E: Lane, O: Operation<E::Value>>(
    operation: O,
    targets: &[*mut u8],
    sources: &[*const u8],
    range: Range<usize>,
) {
    let Some((first, rest)) = sources.split_first() else { return };
    for i in range {
        // SAFETY: within the lengths that the caller promises; all sources of an element are read
        // before its targets are written.
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
