//! f32 as 8-bit integers with a scale for each block, rounded up or down at random so that the mean
//! is the value.

use super::{
    lanes,
    random::{Block, Stream},
};

/// Elements that have a scale in common.
pub(super) const BLOCK: usize = 256;

/// Where the greatest of a block is below this, the block is sent as zeros: its scale could not be
/// inverted.
const NOTHING: f32 = 1e-35;

/// Bytes of so many elements: a scale of 4 bytes for each block, then a byte for each element.
pub(super) const fn bytes(len: usize) -> usize {
    len.div_ceil(BLOCK) * 4 + len
}

/// The elements of one block, and its bytes.
type Values = [f32; BLOCK];
type Codes = [u8; BLOCK];

lanes::vectorised! {
    /// Quantises `values` into `message`, of [`bytes`] bytes. Gives the squared L2 norms of the
    /// values and of what rounding changed.
    ///
    /// The greatest magnitude of a block becomes 127. A value between two steps becomes the upper
    /// one with the probability that makes the mean right (to 2^-24 of a step). A block with a NaN
    /// or an infinity becomes NaN.
    fn quantize(values: &[f32], stream: Stream, message: &mut [u8]) -> (f64, f64) {
        let (scales, codes) = message.split_at_mut(values.len().div_ceil(BLOCK) * 4);
        let scales = scales.as_chunks_mut::<4>().0;
        let (whole, rest) = values.as_chunks::<BLOCK>();
        let (whole_codes, rest_codes) = codes.as_chunks_mut::<BLOCK>();
        let (mut input, mut lost) = (Squares::default(), Squares::default());
        for (number, (values, codes)) in whole.iter().zip(whole_codes).enumerate() {
            scales[number] = quantize_block(values, stream.block(number), codes, &mut input, &mut lost).to_le_bytes();
        }
        if !rest.is_empty() {
            // A shorter block is one with zeros, which cost nothing.
            let (mut padded, mut codes) = ([0.0; BLOCK], [0; BLOCK]);
            padded[..rest.len()].copy_from_slice(rest);
            let scale = quantize_block(&padded, stream.block(whole.len()), &mut codes, &mut input, &mut lost);
            scales[whole.len()] = scale.to_le_bytes();
            rest_codes.copy_from_slice(&codes[..rest.len()]);
        }
        (input.sum(), lost.sum())
    }
}

/// Sums of squares, in parts that wait for each other seldom; how many parts follows from nothing
/// else, so the bits are the same on every machine.
#[derive(Default)]
struct Squares([f64; PARTS]);

const PARTS: usize = 16;

impl Squares {
    #[inline(always)]
    fn add(&mut self, values: &Values) {
        let mut parts = [0_f32; 4 * PARTS];
        for values in values.as_chunks::<{ 4 * PARTS }>().0 {
            for i in 0..4 * PARTS {
                parts[i] += values[i] * values[i];
            }
        }
        for i in 0..PARTS {
            self.0[i] += f64::from((parts[i] + parts[i + PARTS]) + (parts[i + 2 * PARTS] + parts[i + 3 * PARTS]));
        }
    }

    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// Gives the scale, and adds the squares of the values and of what rounding changed. Loops over
/// fixed lengths, which become vectors.
#[inline(always)]
fn quantize_block(values: &Values, random: Block, codes: &mut Codes, input: &mut Squares, lost: &mut Squares) -> f32 {
    // As bits, NaN is the greatest, then infinity.
    let mut greatest = 0;
    for value in values {
        greatest = greatest.max(value.to_bits() & 0x7fff_ffff);
    }
    let greatest = f32::from_bits(greatest);
    let (scale, inverse) = match greatest {
        _ if !greatest.is_finite() => (f32::NAN, 0.0),
        _ if greatest < NOTHING => (0.0, 0.0),
        _ => (greatest / 127.0, 127.0 / greatest),
    };
    let mut errors = [0_f32; BLOCK];
    let mut whole = [0_i32; BLOCK];
    for i in 0..BLOCK {
        let exact = values[i] * inverse;
        // Written so that NaN becomes -127.
        let exact = if exact > -127.0 { exact } else { -127.0 };
        let exact = if exact < 127.0 { exact } else { 127.0 };
        let below = exact.floor();
        let up = if random.uniform(i as u32) < exact - below { 1.0 } else { 0.0 };
        let rounded = below + up;
        errors[i] = rounded * scale - values[i];
        #[expect(unsafe_code, reason = "the checked conversion is not a vector's")]
        // SAFETY: a whole number from -127 to 127, and never NaN.
        let code = unsafe { rounded.to_int_unchecked::<i32>() };
        whole[i] = code;
    }
    for i in 0..BLOCK {
        codes[i] = whole[i] as u8;
    }
    input.add(values);
    lost.add(&errors);
    scale
}

lanes::vectorised! {
    /// What a message of [`quantize`] says.
    fn dequantize(message: &[u8], values: &mut [f32]) {
        let (scales, codes) = message.split_at(values.len().div_ceil(BLOCK) * 4);
        let blocks = values.chunks_mut(BLOCK).zip(codes.chunks(BLOCK));
        for ((values, codes), scale) in blocks.zip(scales.as_chunks::<4>().0) {
            let scale = f32::from_le_bytes(*scale);
            if let (Ok(values), Ok(codes)) = (<&mut Values>::try_from(&mut *values), <&Codes>::try_from(codes)) {
                for i in 0..BLOCK {
                    values[i] = f32::from(codes[i].cast_signed()) * scale;
                }
                continue;
            }
            for (value, code) in values.iter_mut().zip(codes) {
                *value = f32::from(code.cast_signed()) * scale;
            }
        }
    }
}

lanes::vectorised! {
    /// Adds what a message of [`quantize`] says.
    fn add_dequantized(message: &[u8], sums: &mut [f32]) {
        let (scales, codes) = message.split_at(sums.len().div_ceil(BLOCK) * 4);
        for ((sums, codes), scale) in sums.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)).zip(scales.as_chunks::<4>().0) {
            let scale = f32::from_le_bytes(*scale);
            if let (Ok(sums), Ok(codes)) = (<&mut Values>::try_from(&mut *sums), <&Codes>::try_from(codes)) {
                for i in 0..BLOCK {
                    sums[i] += f32::from(codes[i].cast_signed()) * scale;
                }
                continue;
            }
            for (sum, code) in sums.iter_mut().zip(codes) {
                *sum += f32::from(code.cast_signed()) * scale;
            }
        }
    }
}

/// No more than this (squared L2 norm) lies between what was quantised into a message of `len`
/// elements and what the message says.
pub(super) fn bound(message: &[u8], len: usize) -> f64 {
    let scales = message[..len.div_ceil(BLOCK) * 4].as_chunks::<4>().0;
    let of_block = |(i, scale): (usize, &[u8; 4])| {
        let scale = f64::from(f32::from_le_bytes(*scale));
        let tiny = if scale == 0.0 { f64::from(NOTHING) } else { 0.0 };
        (scale * scale + tiny * tiny) * BLOCK.min(len - i * BLOCK) as f64
    };
    scales.iter().enumerate().map(of_block).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(values: &[f32], seed: u64) -> Vec<f32> {
        let mut message = vec![0; bytes(values.len())];
        quantize(values, Stream::new(&[seed]), &mut message);
        let mut back = vec![0.0; values.len()];
        dequantize(&message, &mut back);
        let mut added = vec![0.0; values.len()];
        add_dequantized(&message, &mut added);
        assert!(back.iter().zip(&added).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        back
    }

    /// Values of all magnitudes, from a formula.
    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.7).sin() * ((i % 13) as f32 - 6.0).exp2()).collect()
    }

    #[test]
    fn the_mean_is_the_value() {
        let values = values(1000);
        let rounds = 4000;
        let mut mean = vec![0.0; values.len()];
        for seed in 0..rounds {
            there_and_back(&values, seed)
                .iter()
                .zip(&mut mean)
                .for_each(|(x, mean)| *mean += f64::from(*x) / rounds as f64);
        }
        let mut worst = 0_f64;
        let mut whole = 0.0;
        for (i, (value, mean)) in values.iter().zip(&mean).enumerate() {
            let block = &values[i / BLOCK * BLOCK..(i / BLOCK * BLOCK + BLOCK).min(values.len())];
            let step = f64::from(block.iter().fold(0_f32, |m, x| m.max(x.abs())) / 127.0);
            // One rounding has a standard deviation of at most half a step.
            let deviation = (mean - f64::from(*value)) / (0.5 * step / (rounds as f64).sqrt());
            worst = worst.max(deviation.abs());
            whole += deviation;
        }
        assert!(worst < 4.5, "an element is biased by {worst} standard deviations");
        assert!(whole.abs() / (values.len() as f64).sqrt() < 3.5, "all together are biased: {whole}");
    }

    #[test]
    fn no_value_is_off_by_a_step() {
        for len in [0, 1, 255, 256, 257, 1000] {
            let values = values(len);
            let mut message = vec![0; bytes(len)];
            let (input, lost) = quantize(&values, Stream::new(&[3]), &mut message);
            let mut back = vec![0.0; len];
            dequantize(&message, &mut back);
            let squares = |f: &dyn Fn(usize) -> f64| (0..len).map(|i| f(i) * f(i)).sum::<f64>();
            let off = squares(&|i| f64::from(values[i]) - f64::from(back[i]));
            assert!((lost - off).abs() <= 1e-4 * off, "says {lost}, is {off}");
            assert!((input - squares(&|i| f64::from(values[i]))).abs() <= 1e-5 * input);
            assert!(off <= bound(&message, len));
            for (i, (value, back)) in values.iter().zip(&back).enumerate() {
                let scale = f32::from_le_bytes(message.as_chunks::<4>().0[i / BLOCK]);
                assert!((value - back).abs() <= scale * 1.000_01, "element {i} of {len}: {value} became {back}");
            }
        }
    }

    #[test]
    fn extremes() {
        assert_eq!(there_and_back(&[0.0; 300], 1), [0.0; 300]);
        assert_eq!(there_and_back(&[1e-38, -1e-40], 1), [0.0, 0.0]);
        assert_eq!(there_and_back(&[f32::MAX, -f32::MAX, 0.0], 1)[2], 0.0);
        assert!((there_and_back(&[3e-35, 0.0], 1)[0] / 3e-35 - 1.0).abs() < 1e-6);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 2 * BLOCK];
            values[3] = odd;
            let back = there_and_back(&values, 1);
            assert!(back[..BLOCK].iter().all(|x| x.is_nan()), "a block with {odd} is seen by all");
            assert!(back[BLOCK..].iter().all(|x| *x == 1.0));
        }
    }
}
