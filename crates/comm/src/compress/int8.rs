//! f32 sent as 8-bit integers.

use std::{ops::Range, sync::mpsc::channel, thread};

use super::{
    Compressor, Report, all_reduce_bytes, is_average,
    quantize::{BLOCK, add_dequantized, bound, bytes, dequantize, quantize},
    random::Stream,
};
use crate::{Error, ProcessGroup, ProcessGroupExt, ReduceOp};

/// Sends f32 as 8-bit integers: 260 bytes for each 256 elements instead of 1,024.
///
/// Blocks of 256 elements have a scale in common: their greatest magnitude is 127 steps. A value
/// between two steps becomes the upper or the lower one at random, so that the mean is the value:
/// the result is unbiased, and each element is off by less than one step for each rank and one for
/// the result. A block with a NaN or an infinity becomes NaN; one whose greatest is below 1e-35
/// becomes zeros.
///
/// The scheme is ByteGrad's (Gan et al., BAGUA, 2021, section 3): quantise, all-to-all, sum in f32,
/// quantise again, all-gather. Two ranks exchange their whole vectors, which is as many bytes, and
/// sum by themselves: nothing is rounded twice. Long vectors go in parts, of which one is computed
/// while another travels. The random numbers are a function of the seed, the step, the rank and the
/// place: another run with the same seed has the same bits.
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

/// Elements from which two ranks exchange vectors in parts, and how many: each costs a delay, and
/// what is computed of one is hidden behind the other's way.
const LONG: usize = 1 << 18;
const PARTS: usize = 2;

/// The parts of a vector of two ranks.
fn parts(len: usize) -> Vec<Range<usize>> {
    pieces(len, if len < LONG { 1 } else { PARTS }).windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Cuts memory into pieces of these lengths.
fn cut(mut rest: &mut [u8], lengths: impl Iterator<Item = usize>) -> Vec<&mut [u8]> {
    let piece = |length| {
        let (piece, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        piece
    };
    lengths.map(piece).collect()
}

impl Int8 {
    /// The all-reduce of two ranks. A thread quantises all parts and then adds up what has come,
    /// while this one exchanges them. Memory stays for the next step: pages that are new each time
    /// take longer than the arithmetic.
    fn exchange(&mut self, group: &dyn ProcessGroup, values: &mut [f32], is_average: bool) -> Result<Report, Error> {
        let (rank, parts) = (group.rank() as u64, parts(values.len()));
        let Self { seed, step, gives, gets, sums: kept, .. } = self;
        let (seed, step) = (*seed, *step);
        kept.resize(values.len(), 0.0);
        let lengths = || parts.iter().map(|part| bytes(part.len()));
        let total = lengths().sum();
        gives.resize(total, 0);
        gets.resize(2 * total, 0);
        let messages = cut(gives, lengths());
        let places = cut(gets, lengths().map(|length| 2 * length));
        let (give, given) = channel::<&[u8]>();
        let (bring, brought) = channel::<&[u8]>();
        let (vector, list) = (&mut *values, &parts);
        let (input, lost, result) = thread::scope(|scope| {
            let computing = scope.spawn(move || {
                let (mut input, mut lost) = (0.0, 0.0);
                for (number, (part, message)) in list.iter().zip(messages).enumerate() {
                    let norms =
                        quantize(&vector[part.clone()], Stream::new(&[seed, step, rank, number as u64]), message);
                    (input, lost) = (input + norms.0, lost + norms.1);
                    // Nobody wants it where the group has failed.
                    let _ = give.send(message);
                }
                drop(give);
                let mut done = 0;
                for (part, both) in list.iter().zip(brought) {
                    let piece = &mut vector[part.clone()];
                    // Once the last has come, nothing can fail any more.
                    if part.end < kept.len() {
                        kept[part.clone()].copy_from_slice(piece);
                    }
                    let (first, second) = both.split_at(both.len() / 2);
                    dequantize(first, piece);
                    add_dequantized(second, piece);
                    if is_average {
                        piece.iter_mut().for_each(|sum| *sum /= 2.0);
                    }
                    done = part.end;
                }
                // All, or nothing.
                if done < vector.len() {
                    vector[..done].copy_from_slice(&kept[..done]);
                }
                (input, lost)
            });
            let mut result = Ok(());
            for (message, both) in given.into_iter().zip(places) {
                result = group.all_gather(message, both);
                if result.is_err() {
                    break;
                }
                let _ = bring.send(both);
            }
            drop(bring);
            let (input, lost) = computing.join().expect("computing does not panic");
            (input, lost, result)
        });
        result?;
        self.step += 1;
        Ok(Report {
            wire_bytes: parts.iter().map(|part| bytes(part.len()) as u64).sum(),
            plain_bytes: all_reduce_bytes(group, 4 * values.len()),
            input: input.sqrt(),
            lost: lost.sqrt(),
            rounding: 0.0,
        })
    }
}

/// Where the pieces of `len` elements begin, one for each of `n` ranks, and the end: whole blocks,
/// as equal as can be.
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
        if n == 2 {
            return self.exchange(group, values, is_average);
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
