//! Random numbers and random orders from a seed. Ours, so that the order of an epoch never changes
//! under a stored seed.

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014): 64 bits to 64 mixed bits.
pub(crate) fn mix(bits: u64) -> u64 {
    let z = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A uniform number below `n` made of 64 random bits; the bias is below n / 2^64.
fn below(bits: u64, n: u64) -> u64 {
    ((u128::from(bits) * u128::from(n)) >> 64) as u64
}

/// A random permutation of 0..n whose members are computed one by one, so that an order of a
/// billion samples needs no memory: swap-or-not (Hoang, Morris and Rogaway, "An enciphering scheme
/// based on a card shuffle", 2012).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    key: u64,
    rounds: u64,
}

impl Permutation {
    /// Of 0..`n`, by a seed and the number of the epoch: other seeds and epochs give unrelated
    /// orders.
    pub fn new(n: u64, seed: u64, epoch: u64) -> Self {
        // The paper's bound for an adversary who sees most of the order: a few times lg n rounds.
        let rounds = 6 * u64::from(64 - n.leading_zeros()) + 16;
        Self { n, key: mix(mix(seed) ^ epoch.wrapping_mul(0xD1B5_4A32_D192_ED03)), rounds }
    }

    /// What stands at a position below n.
    pub fn at(&self, position: u64) -> u64 {
        let mut place = position;
        for round in 0..self.rounds {
            let key = mix(self.key ^ round);
            let offset = below(key, self.n);
            // Partners see the same partner and the same bit, so both swap or none does.
            let partner = if offset >= place { offset - place } else { offset + (self.n - place) };
            if mix(key ^ place.max(partner)) & 1 == 1 {
                place = partner;
            }
        }
        place
    }
}

/// A stream for tests: seeded, uniform.
#[cfg(test)]
pub(crate) struct Rng(u64);

#[cfg(test)]
impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    /// Of low..=high.
    pub(crate) fn from(&mut self, low: usize, high: usize) -> usize {
        low + below(self.bits(), (high - low + 1) as u64) as usize
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.from(0, items.len() - 1)]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.from(0, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_number_stands_once_in_an_order() {
        for n in (1..70).chain([1000, 4096, 10_007]) {
            for seed in 0..3 {
                let order = Permutation::new(n, seed, 2);
                let mut all: Vec<u64> = (0..n).map(|position| order.at(position)).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..n), "{n} {seed}");
            }
        }
    }

    #[test]
    fn all_orders_of_four_come_equally_often() {
        let mut counts = BTreeMap::new();
        for seed in 0..24_000 {
            let order = Permutation::new(4, seed / 8, seed % 8);
            *counts.entry([0, 1, 2, 3].map(|position| order.at(position))).or_insert(0) += 1;
        }
        // 1,000 each, with a standard deviation of 31.
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (860..1140).contains(count)), "{counts:?}");
    }

    #[test]
    fn neighbours_do_not_stay_together() {
        let order = Permutation::new(10_000, 7, 0);
        let near = (1..10_000).filter(|&position| order.at(position).abs_diff(order.at(position - 1)) <= 10).count();
        // 20 of 10,000 places lie within 10.
        assert!((5..45).contains(&near), "{near}");
    }

    #[test]
    fn the_order_of_a_seed_is_fixed() {
        let order = Permutation::new(1000, 7, 3);
        assert_eq!([0, 1, 2, 999].map(|position| order.at(position)), FIRST);
    }

    const FIRST: [u64; 4] = [235, 788, 607, 922];
}
