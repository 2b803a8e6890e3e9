//! All-reduces that send less: casts, 8-bit integers, the largest elements only, low rank. Wrappers
//! around any [`ProcessGroup`], on flat slices.
//!
//! | compressor | sends, of an f32 all-reduce's bytes | what is lost |
//! |---|---|---|
//! | [`Cast`] to bf16 or f16 | 1/2 | rounding, to 8 or 11 bits |
//! | [`Int8`] | about 1/4 | stochastic rounding to 8 bits, unbiased |
//! | [`TopK`] | n·k/len (n ranks) | nothing for ever: what is not sent is added to the next step |
//! | [`PowerSgd`] | r·(rows + columns)/len | likewise |
//!
//! Every rank gets the same bits, and the same bits again in another run. A [`Report`] says what a
//! step cost and what it left out. After an error the slice and the compressor are as they were, so
//! that the step can be tried again on the group of the living.
//!
//! What keeps a training stable with these (momentum correction, clipping, warm-up) belongs to the
//! optimizer and is not here.

mod cast;
mod int8;
mod lanes;
mod matrix;
mod power_sgd;
mod quantize;
mod random;
mod top_k;

use std::fmt;

pub use self::{
    cast::{Cast, Half},
    int8::Int8,
    power_sgd::PowerSgd,
    top_k::TopK,
};
use crate::{Error, ProcessGroup, ReduceOp};

/// An all-reduce that sends less. It may remember what it left out, so each slice that is reduced
/// again and again (each bucket) has a compressor of its own.
pub trait Compressor: Send + fmt::Debug {
    /// `values` become the sum or the average of all ranks', as nearly as the compressor can. All
    /// ranks call it with the same length and with compressors of the same settings. A group of one
    /// rank leaves them as they are.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`]; [`Error::Config`] for other operations than sum and average.
    /// Values and compressor are as before then.
    fn all_reduce(&mut self, group: &dyn ProcessGroup, values: &mut [f32], op: ReduceOp) -> Result<Report, Error>;

    /// Forgets what was left out of earlier steps.
    fn reset(&mut self) {}
}

/// What a compressed all-reduce cost and what it left out, on this rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// Bytes that this rank must give to others, however they travel: 2·(n-1)/n of the vector for
    /// an all-reduce.
    pub wire_bytes: u64,
    /// What an all-reduce of the same vector in f32 takes.
    pub plain_bytes: u64,
    /// L2 norm of this rank's input, with what earlier steps had left out.
    pub input: f64,
    /// L2 norm of what of it was not passed on. [`TopK`] and [`PowerSgd`] add it to the next step's
    /// input.
    pub lost: f64,
    /// No more than this (L2 norm) was changed by rounding the result once more; the same on all
    /// ranks.
    pub rounding: f64,
}

impl Report {
    /// What an all-reduce in f32 takes, in this one's bytes.
    pub fn ratio(&self) -> f64 {
        self.plain_bytes as f64 / self.wire_bytes as f64
    }

    /// The part of the input that was not passed on, from 0 to 1.
    pub fn relative_error(&self) -> f64 {
        if self.lost == 0.0 { 0.0 } else { self.lost / self.input }
    }

    /// Of a step that loses nothing.
    fn lossless(group: &dyn ProcessGroup, values: &[f32]) -> Self {
        let bytes = all_reduce_bytes(group, size_of_val(values));
        Self { wire_bytes: bytes, plain_bytes: bytes, input: lanes::norm(values), lost: 0.0, rounding: 0.0 }
    }
}

/// What each rank gives in an all-reduce of so many bytes.
fn all_reduce_bytes(group: &dyn ProcessGroup, bytes: usize) -> u64 {
    let n = group.size() as u64;
    2 * (n - 1) * bytes as u64 / n
}

/// Refuses operations of which no part can be left out. True for an average.
fn is_average(op: ReduceOp) -> Result<bool, Error> {
    match op {
        ReduceOp::Sum => Ok(false),
        ReduceOp::Avg => Ok(true),
        ReduceOp::Min | ReduceOp::Max | ReduceOp::Product => Err(Error::Config {
            problem: format!(
                "a compressed all-reduce is a sum or an average, not {}; reduce without compression",
                op.name()
            ),
        }),
    }
}

/// Zeros, where nothing has been left out so far. A slice of another length is another slice.
fn resume(residual: &mut Vec<f32>, len: usize) {
    if residual.len() != len {
        residual.clear();
        residual.resize(len, 0.0);
    }
}
