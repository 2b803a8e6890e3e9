//! Types of elements.

use std::fmt;

use half::{bf16, f16};

/// The type of a buffer's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point.
    F64,
    /// IEEE half precision; reduced in 32 bits, rounded once.
    F16,
    /// bfloat16; reduced in 32 bits, rounded once.
    BF16,
    /// 8-bit integer; sums and products wrap.
    I8,
    /// 16-bit integer; sums and products wrap.
    I16,
    /// 32-bit integer; sums and products wrap.
    I32,
    /// 64-bit integer; sums and products wrap.
    I64,
    /// Unsigned byte; sums and products wrap.
    U8,
    /// A byte that is 0 or 1: sum and max are "or", product and min are "and".
    Bool,
}

impl DType {
    /// All of them.
    pub const ALL: [Self; 10] =
        [Self::F32, Self::F64, Self::F16, Self::BF16, Self::I8, Self::I16, Self::I32, Self::I64, Self::U8, Self::Bool];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Its name as Rust and the field write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// Whether an average of such elements is one.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be an element.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed + 'static {
    /// Its name at the seam.
    const DTYPE: DType;
}

/// An element of which every bit pattern is a value, so that bytes may be looked at as such. `bool`
/// is not.
pub trait Plain: Element {}

macro_rules! elements {
    ($($element:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16);
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, bool => Bool);

macro_rules! plain {
    ($($element:ty),*) => {$(impl Plain for $element {})*};
}

plain!(f32, f64, f16, bf16, i8, i16, i32, i64, u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_rust_types() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.size(), size_of::<T>(), "{}", T::DTYPE);
        }
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<bf16>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<u8>();
        check::<bool>();
    }
}
