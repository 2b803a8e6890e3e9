//! f32 sent as f16 or bf16.

use std::fmt;

use half::{bf16, f16};

use super::{Compressor, Report, all_reduce_bytes, is_average, lanes};
use crate::{Error, Plain, ProcessGroup, ProcessGroupExt, ReduceOp, reduce::Lane};

/// Sends f32 as `f16` or `bf16`: half the bytes. Each value is rounded once before it is sent, the
/// sum is made in f32 and rounded once; over hosts with several ranks each, once more on each
/// level, which a [`Report`] does not count.
///
/// f16 has 11 significant bits and ends at 65,504: beyond it is infinity. bf16 has 8 and f32's
/// range.
#[derive(Debug)]
pub struct Cast<E: Half> {
    narrow: Vec<E>,
}

impl<E: Half> Cast<E> {
    /// A cast; it has no settings.
    pub const fn new() -> Self {
        Self { narrow: Vec::new() }
    }
}

impl<E: Half> Default for Cast<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// A 16-bit floating type.
pub trait Half: Plain + fmt::Debug + Default {
    /// Half the distance of two neighbours, relative to them.
    const ROUNDOFF: f64;
    /// Half the distance of the neighbours around zero.
    const TINY: f64;

    /// Casts a slice.
    fn narrow(from: &[f32], to: &mut [Self]);

    /// Casts a slice back.
    fn widen(from: &[Self], to: &mut [f32]);

    /// L2 norm of what a cast changed.
    fn distance(from: &[f32], to: &[Self]) -> f64;
}

macro_rules! half {
    ($type:ty, $module:ident, $roundoff:expr, $tiny:expr) => {
        mod $module {
            use super::*;

            lanes::vectorised! {
                fn narrow(from: &[f32], to: &mut [$type]) {
                    for (from, to) in from.iter().zip(to) {
                        *to = <$type as Lane>::store(*from);
                    }
                }
            }

            lanes::vectorised! {
                fn widen(from: &[$type], to: &mut [f32]) {
                    for (from, to) in from.iter().zip(to) {
                        *to = Lane::load(*from);
                    }
                }
            }

            lanes::vectorised! {
                fn distance(from: &[f32], to: &[$type]) -> f64 {
                    let mut sum = 0.0;
                    let mut difference = [0_f32; 256];
                    for (from, to) in from.chunks(256).zip(to.chunks(256)) {
                        for (difference, (from, to)) in difference.iter_mut().zip(from.iter().zip(to)) {
                            *difference = from - Lane::load(*to);
                        }
                        let difference = &difference[..from.len()];
                        sum += lanes::dot(difference, difference);
                    }
                    sum.sqrt()
                }
            }
        }

        impl Half for $type {
            const ROUNDOFF: f64 = $roundoff;
            const TINY: f64 = $tiny;

            fn narrow(from: &[f32], to: &mut [Self]) {
                $module::narrow(from, to);
            }

            fn widen(from: &[Self], to: &mut [f32]) {
                $module::widen(from, to);
            }

            fn distance(from: &[f32], to: &[Self]) -> f64 {
                $module::distance(from, to)
            }
        }
    };
}

half!(f16, of_f16, 1.0 / 2048.0, 1.0 / (1_u64 << 25) as f64);
half!(bf16, of_bf16, 1.0 / 256.0, f32::from_bits(1 << 15) as f64);

/// Elements that are worked on while they are in the first cache.
const STRETCH: usize = 4096;

impl<E: Half> Compressor for Cast<E> {
    fn all_reduce(&mut self, group: &dyn ProcessGroup, values: &mut [f32], op: ReduceOp) -> Result<Report, Error> {
        is_average(op)?;
        if group.size() == 1 {
            return Ok(Report::lossless(group, values));
        }
        self.narrow.resize(values.len(), E::default());
        let (mut input, mut lost) = (0.0, 0.0);
        // Once through memory for all three.
        for (values, narrow) in values.chunks(STRETCH).zip(self.narrow.chunks_mut(STRETCH)) {
            E::narrow(values, narrow);
            input += lanes::dot(values, values);
            lost += E::distance(values, narrow).powi(2);
        }
        let (input, lost) = (input.sqrt(), lost.sqrt());
        group.all_reduce(&mut self.narrow, op)?;
        let mut squares = 0.0;
        for (values, narrow) in values.chunks_mut(STRETCH).zip(self.narrow.chunks(STRETCH)) {
            E::widen(narrow, values);
            squares += lanes::dot(values, values);
        }
        Ok(Report {
            wire_bytes: all_reduce_bytes(group, 2 * values.len()),
            plain_bytes: all_reduce_bytes(group, 4 * values.len()),
            input,
            lost,
            rounding: E::ROUNDOFF * squares.sqrt() + E::TINY * (values.len() as f64).sqrt(),
        })
    }
}
