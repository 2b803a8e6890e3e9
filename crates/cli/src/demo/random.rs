//! A fixed shuffle, so that every demo of everybody splits its data alike.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

/// Fisher and Yates' shuffle; the same for the same seed and length. (The remainder's bias is below
/// 2^-40 for any data here.)
pub(super) fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut random = SplitMix(seed);
    for last in (1..items.len()).rev() {
        let other = random.next() % (last as u64 + 1);
        items.swap(last, usize::try_from(other).expect("not greater than an index"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_all_and_can_be_repeated() {
        let order = |seed| {
            let mut items: Vec<_> = (0..100).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_generator_is_splitmix() {
        // First outputs for seed 1234567 of the reference implementation.
        let mut random = SplitMix(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
