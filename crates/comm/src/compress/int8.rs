//! f32 sent as 8-bit integers.

use super::{
    Compressor, Report, all_reduce_bytes, is_average,
    quantize::{BLOCK, add_dequantized, bound, bytes, dequantize, quantize},
    random::Stream,
};
use crate::{Error, ProcessGroup, ProcessGroupExt, ReduceOp};

/// Sends f32 as 8-bit integers: 260 bytes for each 256 elements instead of 1,024.
///
/// Blocks of 256 elements have a scale in common: their greatest magnitude is 127 steps. A value between two steps becomes the upper or the lower one at random, so
/// that the mean is the value: the result is unbiased, and each element is off by less than one step for each rank and one for the result. A block with a NaN or an
/// infinity becomes NaN; one whose greatest is below 1e-35 becomes zeros.
///
/// The scheme is ByteGrad's (Gan et al., BAGUA, 2021, section 3): quantise, all-to-all, sum in f32, quantise again, all-gather. The random numbers are a function
/// of the seed, the step, the rank and the place: another run with the same seed has the same bits.
#[derive(Debug, Clone)]
pub struct Int8 {
    seed: u64,
    step: u64,
    gives: Vec<u8>,
    gets: Vec<u8>,
    sums: Vec<f32>,
    result: Vec<u8>,
}

impl Int8 {
    /// With random numbers of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, step: 0, gives: Vec::new(), gets: Vec::new(), sums: Vec::new(), result: Vec::new() }
    }

    /// What the others would get of these values in the next step, without a group.
    pub fn round_trip(&mut self, values: &mut [f32]) {
        self.gives.resize(bytes(values.len()), 0);
        quantize(values, Stream::new(&[self.seed, self.step]), &mut self.gives);
        dequantize(&self.gives, values);
    }
}

/// Where the pieces of `len` elements begin, one for each of `n` ranks, and the end: whole blocks, as equal as can be.
fn pieces(len: usize, n: usize) -> Vec<usize> {
    let blocks = len.div_ceil(BLOCK);
    (0..=n).map(|r| (blocks * r / n * BLOCK).min(len)).collect()
}

impl Compressor for Int8 {
    fn all_reduce(&mut self, group: &dyn ProcessGroup, values: &mut [f32], op: ReduceOp) -> Result<Report, Error> {
        let is_average = is_average(op)?;
        let (rank, n) = (group.rank(), group.size());
        if n == 1 {
            return Ok(Report::lossless(group, values));
        }
        let starts = pieces(values.len(), n);
        let counts: Vec<_> = starts.windows(2).map(|ends| bytes(ends[1] - ends[0])).collect();
        let total: usize = counts.iter().sum();
        let (mut input, mut lost) = (0.0, 0.0);
        self.gives.resize(total, 0);
        let mut rest = &mut self.gives[..];
        for r in 0..n {
            let (message, others) = rest.split_at_mut(counts[r]);
            rest = others;
            let stream = Stream::new(&[self.seed, self.step, rank as u64, r as u64]);
            let (of_input, of_lost) = quantize(&values[starts[r]..starts[r + 1]], stream, message);
            input += of_input;
            lost += of_lost;
        }
        let own = counts[rank];
        self.gets.resize(own * n, 0);
        group.all_to_all_uneven(&self.gives, &counts, &mut self.gets, &vec![own; n])?;

        self.sums.clear();
        self.sums.resize(starts[rank + 1] - starts[rank], 0.0);
        if own > 0 {
            self.gets.chunks(own).for_each(|message| add_dequantized(message, &mut self.sums));
        }
        if is_average {
            self.sums.iter_mut().for_each(|sum| *sum /= n as f32);
        }
        let reduced = &mut self.gets[..own];
        quantize(&self.sums, Stream::new(&[self.seed, self.step, n as u64, rank as u64]), reduced);
        self.result.resize(total, 0);
        group.all_gather_uneven(reduced, &mut self.result, &counts)?;

        let mut rounding = 0.0;
        let mut rest = &self.result[..];
        for r in 0..n {
            let (message, others) = rest.split_at(counts[r]);
            rest = others;
            let piece = &mut values[starts[r]..starts[r + 1]];
            rounding += bound(message, piece.len());
            dequantize(message, piece);
        }
        self.step += 1;
        Ok(Report {
            wire_bytes: (total - own + (n - 1) * own) as u64,
            plain_bytes: all_reduce_bytes(group, 4 * values.len()),
            input: input.sqrt(),
            lost: lost.sqrt(),
            rounding: rounding.sqrt(),
        })
    }

    fn reset(&mut self) {
        self.step = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_blocks_and_nearly_equal() {
        assert_eq!(pieces(1000, 3), [0, 256, 512, 1000]);
        assert_eq!(pieces(10, 4), [0, 0, 0, 0, 10]);
        assert_eq!(pieces(0, 2), [0, 0, 0]);
        for (len, n) in [(100_000, 7), (5000, 3), (257, 2)] {
            let starts = pieces(len, n);
            assert_eq!((starts[0], starts[n]), (0, len));
            assert!(starts.windows(2).all(|ends| ends[1] >= ends[0] && ends[1] - ends[0] <= len.div_ceil(n) + BLOCK));
        }
    }
}
