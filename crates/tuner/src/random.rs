//! xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021),
//! seeded by SplitMix64. Ours, so that its stream never changes under a stored seed.

/// A stream of random numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng([u64; 4]);

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of one purpose: what one purpose draws does not change what another does. Studies
    /// use the number of the ask.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut state = seed;
        let mut state = split_mix(&mut state) ^ purpose.wrapping_mul(0xD1B5_4A32_D192_ED03);
        Self([split_mix(&mut state), split_mix(&mut state), split_mix(&mut state), split_mix(&mut state)])
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        // Exact: 53 bits fit a double.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let numerator = (self.bits() >> 11) as f64;
        numerator * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform in 0..`n` without bias; 0 for `n` = 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        // Lemire's method with rejection.
        loop {
            let product = u128::from(self.bits()) * u128::from(n);
            let low = product as u64;
            if low >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }

    /// An index below `n`.
    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    /// Standard normal (Box and Muller), one of two kept nowhere.
    pub fn normal(&mut self) -> f64 {
        // In (0, 1].
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_fixed() {
        let mut rng = Rng::new(7, 3);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, FIRST);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.index(7)] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }

    const FIRST: [u64; 3] = [16_797_533_668_171_152_095, 11_348_593_741_808_135_473, 5_016_922_231_475_059_204];
}
