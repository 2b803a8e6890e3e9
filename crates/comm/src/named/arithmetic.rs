//! Factors before and after a reduction, and the adaptive sum.

#![expect(unsafe_code, reason = "tensors come as addresses, of any alignment")]

use half::{bf16, f16};

use crate::{
    DType,
    reduce::{self, Stores},
};

/// A factor, and a whole divisor for averages of whole numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factor {
    /// Whole numbers are divided by this first, truncated toward zero.
    pub(super) divisor: usize,
    /// Every element is multiplied by this.
    pub(super) times: f64,
}

impl Factor {
    /// Only the factor.
    pub(super) const fn of(times: f64) -> Self {
        Self { divisor: 1, times }
    }

    /// Whether elements stay as they are.
    pub(super) fn is_one(self) -> bool {
        self.times == 1.0 && self.divisor == 1
    }
}

/// `target[i] = source[i] * factor` for `len` elements. Floats of 16 and 32 bits are multiplied in
/// 32 bits, all others in 64; whole numbers are truncated toward zero.
///
/// # Safety
/// Both addresses are valid for `len` elements, and the same or apart.
pub(super) unsafe fn scale(dtype: DType, target: *mut u8, source: *const u8, len: usize, factor: Factor) {
    if factor.is_one() {
        // SAFETY: the caller's promise.
        return unsafe { reduce::copy(target, source, len * dtype.size(), Stores::Cached) };
    }
    let times = factor.times;
    macro_rules! each {
        ($type:ty, $value:ident => $result:expr) => {{
            let (target, source) = (target.cast::<$type>(), source.cast::<$type>());
            for i in 0..len {
                // SAFETY: within `len` elements of both.
                unsafe {
                    let $value = source.add(i).read_unaligned();
                    target.add(i).write_unaligned($result);
                }
            }
        }};
    }
    macro_rules! whole {
        ($type:ty) => {{
            let divisor = <$type>::try_from(factor.divisor).unwrap_or(<$type>::MAX);
            if times == 1.0 {
                each!($type, value => value / divisor)
            } else {
                each!($type, value => ((value / divisor) as f64 * times) as $type)
            }
        }};
    }
    let short = times as f32;
    match dtype {
        DType::F32 => each!(f32, value => value * short),
        DType::F64 => each!(f64, value => value * times),
        DType::F16 => each!(f16, value => f16::from_f32(value.to_f32() * short)),
        DType::BF16 => each!(bf16, value => bf16::from_f32(value.to_f32() * short)),
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::Bool => each!(u8, value => u8::from(value != 0 && times != 0.0)),
    }
}

/// Floats as f64.
///
/// # Safety
/// The address is valid for `len` elements of that type.
unsafe fn widen(dtype: DType, source: *const u8, len: usize) -> Vec<f64> {
    macro_rules! all {
        ($type:ty, $value:ident => $result:expr) => {
            (0..len)
                .map(|i| {
                    // SAFETY: within `len` elements.
                    let $value = unsafe { source.cast::<$type>().add(i).read_unaligned() };
                    $result
                })
                .collect()
        };
    }
    match dtype {
        DType::F64 => all!(f64, value => value),
        DType::F16 => all!(f16, value => f64::from(value.to_f32())),
        DType::BF16 => all!(bf16, value => f64::from(value.to_f32())),
        _ => all!(f32, value => f64::from(value)),
    }
}

/// The adaptive sum of the ranks' vectors (none: zeros), pair by pair in a binary tree; of floats,
/// computed in f64 and rounded once.
///
/// # Safety
/// All addresses are valid for `len` elements; the target is apart from the sources.
pub(super) unsafe fn adasum(dtype: DType, target: *mut u8, sources: &[Option<*const u8>], len: usize, factor: f64) {
    let mut vectors: Vec<Vec<f64>> = sources
        .iter()
        // SAFETY: the caller's promise.
        .map(|source| source.map_or_else(|| vec![0.0; len], |source| unsafe { widen(dtype, source, len) }))
        .collect();
    while vectors.len() > 1 {
        let mut next = Vec::with_capacity(vectors.len().div_ceil(2));
        let mut rest = vectors.into_iter();
        while let Some(one) = rest.next() {
            next.push(match rest.next() {
                Some(two) => pair(one, &two),
                None => one,
            });
        }
        vectors = next;
    }
    for (i, value) in vectors.pop().unwrap_or_default().into_iter().enumerate() {
        let value = value * factor;
        // SAFETY: within `len` elements.
        unsafe {
            match dtype {
                DType::F64 => target.cast::<f64>().add(i).write_unaligned(value),
                DType::F16 => target.cast::<f16>().add(i).write_unaligned(f16::from_f64(value)),
                DType::BF16 => target.cast::<bf16>().add(i).write_unaligned(bf16::from_f64(value)),
                _ => target.cast::<f32>().add(i).write_unaligned(value as f32),
            }
        }
    }
}

/// `a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2)`: the sum of orthogonal vectors, the mean of
/// parallel ones.
fn pair(mut one: Vec<f64>, two: &[f64]) -> Vec<f64> {
    let (mut dot, mut ones, mut twos) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(two) {
        dot += a * b;
        ones += a * a;
        twos += b * b;
    }
    let share = |square: f64| if square > 0.0 { 1.0 - dot / (2.0 * square) } else { 1.0 };
    let (of_one, of_two) = (share(ones), share(twos));
    for (a, b) in one.iter_mut().zip(two) {
        *a = *a * of_one + b * of_two;
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_truncated_toward_zero() {
        let mut values = [7_i32, -7, 49, i32::MAX];
        let at: *mut u8 = values.as_mut_ptr().cast();
        // SAFETY: the array.
        unsafe { scale(DType::I32, at, at, 4, Factor { divisor: 2, times: 1.0 }) };
        assert_eq!(values, [3, -3, 24, i32::MAX / 2]);
        // SAFETY: the array.
        unsafe { scale(DType::I32, at, at, 4, Factor { divisor: 1, times: 0.5 }) };
        assert_eq!(values, [1, -1, 12, i32::MAX / 4]);
    }

    #[test]
    fn the_adaptive_sum_adds_what_is_orthogonal_and_averages_what_is_parallel() {
        let sum = |vectors: [[f32; 2]; 4]| {
            let mut target = [0.0_f32; 2];
            let sources: Vec<_> = vectors.iter().map(|it| Some(it.as_ptr().cast::<u8>())).collect();
            // SAFETY: the arrays.
            unsafe { adasum(DType::F32, target.as_mut_ptr().cast(), &sources, 2, 1.0) };
            target
        };
        assert_eq!(sum([[1.0, 2.0]; 4]), [1.0, 2.0]);
        assert_eq!(sum([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0], [0.0, 0.0]]), [1.0, 3.0]);
        assert_eq!(sum([[2.0, 0.0], [4.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), [3.0, 0.0]);
    }
}
