//! Random numbers that are a function of a key and a place: the same in every run, in any order, as
//! many at once as the vectors hold.

/// A stream of random numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream(u64);

/// The numbers of one block of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    low: u32,
    high: u32,
}

impl Stream {
    /// The stream of a list of words; another list, another stream.
    pub(super) fn new(words: &[u64]) -> Self {
        Self(words.iter().fold(0x243f_6a88_85a3_08d3, |state, word| mix(state ^ mix(*word))))
    }

    /// The block of this number.
    pub(super) fn block(self, number: usize) -> Block {
        let key = mix(self.0.wrapping_add(number as u64));
        Block { low: key as u32, high: (key >> 32) as u32 }
    }
}

impl Block {
    /// The number at place `i`: a multiple of 2^-24 from 0 to below 1. The hash is Wellons'
    /// lowbias32, keyed before and between its multiplications.
    #[inline(always)]
    pub(super) fn uniform(self, i: u32) -> f32 {
        let mut x = i.wrapping_mul(0x9e37_79b9).wrapping_add(self.low);
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_add(self.high).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        ((x >> 8) as i32) as f32 * (1.0 / 16_777_216.0)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_independent() {
        let n = 1 << 20;
        for words in [[1, 0], [1, 1], [7, 3]] {
            let stream = Stream::new(&words);
            let numbers: Vec<f64> = (0..n).map(|i| f64::from(stream.block(i / 256).uniform(i as u32 % 256))).collect();
            let mut boxes = [0_f64; 64];
            numbers.iter().for_each(|x| boxes[(x * 64.0) as usize] += 1.0);
            let expected = n as f64 / 64.0;
            let chi: f64 = boxes.iter().map(|count| (count - expected).powi(2) / expected).sum();
            // 63 degrees of freedom: mean 63, standard deviation 11; fixed streams, so this passes
            // always or never.
            assert!((25.0..110.0).contains(&chi), "chi-square {chi}");
            for lag in [1, 2, 8, 16, 256] {
                let covariance: f64 =
                    numbers.iter().zip(&numbers[lag..]).map(|(a, b)| (a - 0.5) * (b - 0.5)).sum::<f64>()
                        / (n - lag) as f64;
                assert!(
                    (covariance * 12.0).abs() < 4.5 / (n as f64).sqrt(),
                    "lag {lag}: correlation {}",
                    covariance * 12.0
                );
            }
        }
        let (one, other) = (Stream::new(&[1, 2]), Stream::new(&[2, 1]));
        assert_ne!(one.block(0).uniform(5).to_bits(), other.block(0).uniform(5).to_bits());
    }
}
