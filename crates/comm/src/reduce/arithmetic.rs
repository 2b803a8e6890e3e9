//! What the operations mean for each type. Written so that the compiler can do many elements at
//! once with the same bits as one at a time.

use half::{bf16, f16};

/// One operation on the values in which it is computed.
pub(super) trait Operation<V>: Copy {
    /// Joins one more rank's value.
    fn join(self, sum: V, next: V) -> V;
    /// After the last rank.
    fn finish(self, sum: V) -> V;
}

/// How an element is computed with.
pub(crate) trait Lane: Copy {
    /// What it is computed in.
    type Value: Copy;
    /// To what it is computed in.
    fn load(self) -> Self::Value;
    /// Back, rounded once.
    fn store(value: Self::Value) -> Self;
}

macro_rules! own_lane {
    ($($element:ty),*) => {$(
        impl Lane for $element {
            type Value = $element;
            #[inline(always)]
            fn load(self) -> $element {
                self
            }
            #[inline(always)]
            fn store(value: $element) -> $element {
                value
            }
        }
    )*};
}

own_lane!(f32, f64, i8, i16, i32, i64, u8);

impl Lane for f16 {
    type Value = f32;
    #[inline(always)]
    fn load(self) -> f32 {
        widen_f16(self.to_bits())
    }
    #[inline(always)]
    fn store(value: f32) -> Self {
        Self::from_bits(narrow_f16(value))
    }
}

impl Lane for bf16 {
    type Value = f32;
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn store(value: f32) -> Self {
        let bits = value.to_bits();
        // To nearest, ties to even; a NaN stays one (quiet, with the upper bits of what it
        // carries).
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        Self::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

/// f16 to f32, exactly; without a branch, so that many go at once.
#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let sign = (bits & 0x8000) << 16;
    let rest = bits & 0x7fff;
    // Exponent and fraction moved into place; the multiplication corrects the bias, of subnormals
    // too.
    let scaled = f32::from_bits(rest << 13) * f32::from_bits((127 + 112) << 23);
    let special = f32::from_bits((rest << 13) | 0x7f80_0000 | if rest > 0x7c00 { 0x40_0000 } else { 0 });
    let magnitude = if rest >= 0x7c00 { special } else { scaled };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// f32 to f16, to nearest, ties to even; without a branch.
#[inline(always)]
fn narrow_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let rest = bits & 0x7fff_ffff;
    // Subnormal results: adding 0.5 puts the 24 bits that count where f16 has its own; the addition
    // rounds.
    let small = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    // Normal results: bias corrected, rounded to even.
    let normal = rest.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + ((rest >> 13) & 1)) >> 13;
    let nan = 0x7e00 | ((rest >> 13) & 0x3ff);
    let magnitude = if rest > 0x7f80_0000 {
        nan
    } else if rest >= (143 << 23) {
        0x7c00
    } else if rest < (113 << 23) {
        small
    } else {
        normal
    };
    (magnitude | sign) as u16
}

/// A byte that is 0 or 1.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);

impl Lane for Truth {
    type Value = Self;
    #[inline(always)]
    fn load(self) -> Self {
        self
    }
    #[inline(always)]
    fn store(value: Self) -> Self {
        value
    }
}

#[derive(Clone, Copy)]
pub(super) struct Sum;
/// Holds the number of ranks.
#[derive(Clone, Copy)]
pub(super) struct Avg(pub(super) usize);
#[derive(Clone, Copy)]
pub(super) struct Min;
#[derive(Clone, Copy)]
pub(super) struct Max;
#[derive(Clone, Copy)]
pub(super) struct Product;

macro_rules! of_floats {
    ($($value:ty),*) => {$(
        impl Operation<$value> for Sum {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                sum + next
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum
            }
        }
        impl Operation<$value> for Avg {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                sum + next
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum / self.0 as $value
            }
        }
        impl Operation<$value> for Min {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                if sum < next || sum.is_nan() { sum } else { next }
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum
            }
        }
        impl Operation<$value> for Max {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                if sum > next || sum.is_nan() { sum } else { next }
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum
            }
        }
        impl Operation<$value> for Product {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                sum * next
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum
            }
        }
    )*};
}

of_floats!(f32, f64);

macro_rules! of_integers {
    ($($operation:ident: $join:expr;)*) => {$(
        of_integers!($operation: $join, i8, i16, i32, i64, u8);
    )*};
    ($operation:ident: $join:expr, $($value:ty),*) => {$(
        impl Operation<$value> for $operation {
            #[inline(always)]
            fn join(self, sum: $value, next: $value) -> $value {
                let join: fn($value, $value) -> $value = $join;
                join(sum, next)
            }
            #[inline(always)]
            fn finish(self, sum: $value) -> $value {
                sum
            }
        }
    )*};
}

of_integers! {
    Sum: |a, b| a.wrapping_add(b);
    Min: |a, b| a.min(b);
    Max: |a, b| a.max(b);
    Product: |a, b| a.wrapping_mul(b);
}

macro_rules! of_truths {
    ($($operation:ident: $join:tt;)*) => {$(
        impl Operation<Truth> for $operation {
            #[inline(always)]
            fn join(self, sum: Truth, next: Truth) -> Truth {
                Truth(sum.0 $join next.0)
            }
            #[inline(always)]
            fn finish(self, sum: Truth) -> Truth {
                sum
            }
        }
    )*};
}

of_truths! {
    Sum: |;
    Max: |;
    Min: &;
    Product: &;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_that_of_the_half_crate_for_every_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (widen_f16(bits), f16::from_bits(bits).to_f32_const());
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "{bits:#x}: {ours} {theirs}"
            );
            assert!(f16::from_bits(bits).is_nan() || narrow_f16(ours) == bits, "{bits:#x} back");
            let wide = bf16::from_bits(bits);
            assert!(wide.is_nan() || <bf16 as Lane>::store(wide.load()).to_bits() == bits, "bf16 {bits:#x} back");
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        // Every 4099th f32: subnormals, ties, infinities, NaNs among them.
        for bits in (0..=u32::MAX).step_by(4099).chain([
            0x3880_0000,
            0x3880_1000,
            0x477f_f000,
            0x477f_efff,
            0x3300_0000,
            0x3300_0001,
        ]) {
            let value = f32::from_bits(bits);
            let (ours, theirs) = (f16::from_bits(narrow_f16(value)), f16::from_f32_const(value));
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "{value} ({bits:#x}): {ours} {theirs}"
            );
            let (ours, theirs) = (<bf16 as Lane>::store(value), bf16::from_f32_const(value));
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "bf16 {value} ({bits:#x}): {ours} {theirs}"
            );
        }
    }
}
