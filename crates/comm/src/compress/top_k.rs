//! Only the largest elements are sent; the rest waits for the next step.

use super::{Compressor, Report, all_reduce_bytes, is_average, lanes, resume};
use crate::{Error, ProcessGroup, ProcessGroupExt, ReduceOp};

/// Sends the k elements of greatest magnitude, each with its place: 8·k bytes of each rank to each
/// other. What is not sent is added to the next step's input (error feedback), so over the steps
/// nothing is lost. Equal magnitudes: the lower place first.
///
/// Sending wins while n·k is well below the vector's length: each rank's choice is another one. Of
/// vectors of more than 2^32 elements it is not possible.
///
/// Source: Lin et al., Deep Gradient Compression, 2018, section 2, without the parts that concern
/// the optimizer; error feedback: Karimireddy et al., 2019.
#[derive(Debug, Clone)]
pub struct TopK {
    share: f64,
    residual: Vec<f32>,
    corrected: Vec<f32>,
    candidates: Vec<u64>,
}

/// Below this length all elements are candidates.
const SHORT: usize = 1 << 14;
/// How many elements are looked at to guess which are candidates.
const SAMPLES: usize = 4096;

impl TopK {
    /// The largest `share` of the elements, above 0 and at most 1; at least one element.
    ///
    /// # Errors
    /// [`Error::Config`] for another share.
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self { share, residual: Vec::new(), corrected: Vec::new(), candidates: Vec::new() });
        }
        Err(Error::Config {
            problem: format!("top-k: a share of {share} of the elements; it must be above 0 and at most 1"),
        })
    }

    /// How many of `len` elements are sent.
    pub fn k(&self, len: usize) -> usize {
        ((self.share * len as f64).ceil() as usize).min(len)
    }
}

/// An element so that the greatest magnitude is the least number, and of equal ones the lowest
/// place. NaN is the greatest.
fn key(value: f32, place: usize) -> u64 {
    u64::from(!(value.to_bits() & 0x7fff_ffff)) << 32 | place as u64
}

/// The k elements of greatest magnitude, as keys in the order of their places. A sample tells which
/// elements need not be looked at twice; the choice itself is exact.
fn largest(values: &[f32], k: usize, candidates: &mut Vec<u64>) {
    candidates.clear();
    let mut limit = u64::MAX;
    if values.len() > SHORT {
        let stride = values.len() / SAMPLES;
        let mut sample: Vec<_> = values.iter().step_by(stride).map(|value| key(*value, 0)).collect();
        // Half as many again as needed, and a few: with fewer the choice would begin anew.
        let wanted = (k as f64 / values.len() as f64 * sample.len() as f64 * 1.5) as usize + 16;
        if wanted < sample.len() {
            limit = *sample.select_nth_unstable(wanted).1 | u64::from(u32::MAX);
        }
    }
    let mut collect = |limit: u64| {
        candidates.clear();
        let keys = values.iter().enumerate().map(|(place, value)| key(*value, place));
        candidates.extend(keys.filter(|key| *key <= limit));
        candidates.len()
    };
    if collect(limit) < k {
        collect(u64::MAX);
    }
    if k < candidates.len() {
        candidates.select_nth_unstable(k);
        candidates.truncate(k);
    }
    candidates.sort_unstable_by_key(|key| *key as u32);
}

impl Compressor for TopK {
    fn all_reduce(&mut self, group: &dyn ProcessGroup, values: &mut [f32], op: ReduceOp) -> Result<Report, Error> {
        let is_average = is_average(op)?;
        let (n, len) = (group.size(), values.len());
        if n == 1 {
            return Ok(Report::lossless(group, values));
        }
        let refuse = |problem: String| Err(Error::Config { problem: format!("top-k of {len} elements: {problem}") });
        if u32::try_from(len).is_err() {
            return refuse("places are numbers of 32 bits; split the vector".to_owned());
        }
        resume(&mut self.residual, len);
        self.corrected.resize(len, 0.0);
        lanes::add(&mut self.corrected, values, &self.residual);
        let k = self.k(len);
        largest(&self.corrected, k, &mut self.candidates);
        let places = || self.candidates.iter().map(|key| *key as u32);
        let mut gives: Vec<i32> = places().map(u32::cast_signed).collect();
        gives.extend(places().map(|place| self.corrected[place as usize].to_bits().cast_signed()));
        let mut gets = vec![0_i32; 2 * k * n];
        group.all_gather(&gives, &mut gets)?;

        for (from, list) in gets.chunks(2 * k.max(1)).enumerate() {
            if let Some(place) =
                list[..k].iter().map(|place| place.cast_unsigned()).find(|place| *place as usize >= len)
            {
                return refuse(format!("rank {from} sent an element {place}; all ranks must reduce the same length"));
            }
        }
        values.fill(0.0);
        for list in gets.chunks(2 * k.max(1)) {
            for (place, value) in list[..k].iter().zip(&list[k..]) {
                values[place.cast_unsigned() as usize] += f32::from_bits(value.cast_unsigned());
            }
        }
        if is_average {
            values.iter_mut().for_each(|value| *value /= n as f32);
        }
        let input = lanes::norm(&self.corrected);
        std::mem::swap(&mut self.residual, &mut self.corrected);
        for key in &self.candidates {
            self.residual[*key as u32 as usize] = 0.0;
        }
        if !input.is_finite() {
            // What is not a number was sent and seen by all; it must not come again.
            self.residual.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
        }
        Ok(Report {
            wire_bytes: (8 * k * (n - 1)) as u64,
            plain_bytes: all_reduce_bytes(group, 4 * len),
            input,
            lost: lanes::norm(&self.residual),
            rounding: 0.0,
        })
    }

    fn reset(&mut self) {
        self.residual.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_exact_whatever_the_sample_says() {
        let mut candidates = Vec::new();
        // Even ones, with ties; large ones that the sample misses; all equal; mostly zeros.
        let shapes: [&dyn Fn(usize) -> f32; 4] = [
            &|i| ((i * 7919) % 1009) as f32 - 500.0,
            &|i| if i % 5 == 1 { 100.0 + i as f32 } else { 1.0 },
            &|_| -2.0,
            &|i| {
                if i == 70_001 { 3.0 } else { 0.0 }
            },
        ];
        for shape in shapes {
            for len in [1, 100, SHORT + 1, 100_000] {
                let values: Vec<_> = (0..len).map(shape).collect();
                for k in [1, len.div_ceil(100), len.div_ceil(3), len] {
                    largest(&values, k, &mut candidates);
                    let mut order: Vec<_> = (0..len).collect();
                    order.sort_by(|a, b| values[*b].abs().total_cmp(&values[*a].abs()).then(a.cmp(b)));
                    order.truncate(k);
                    order.sort_unstable();
                    let got: Vec<_> = candidates.iter().map(|key| *key as u32 as usize).collect();
                    assert_eq!(got, order, "{k} of {len}");
                }
            }
        }
    }
}
