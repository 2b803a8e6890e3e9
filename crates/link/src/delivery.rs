//! How a channel reaches the program: as files, or through pipes, whose order is decided here so
//! that all instances of a job agree on it.

use serde::{Deserialize, Serialize};

/// How a channel reaches the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum Delivery {
    /// A directory whose files are all there before the program starts.
    #[default]
    Files,
    /// A read-only directory whose files are fetched while they are read, where they are not on
    /// this machine.
    FilesAsRead,
    /// A directory of this machine, which others change too: below the tree, reached without
    /// symbolic links.
    Directory {
        /// Names with `/` between them; empty for the tree itself.
        below: String,
        /// The program may change it.
        is_writable: bool,
    },
    /// A pipe for each epoch. The tree has the channel's manifest, and its objects by id.
    Pipe(Pipe),
}

impl Delivery {
    /// Whether it is [`Delivery::Files`].
    pub fn is_files(&self) -> bool {
        *self == Self::Files
    }
}

/// What is written into the pipes of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Objects are decompressed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gzip: bool,
    /// Each object, or text of the manifest, is a RecordIO record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_record_io: bool,
    /// Of `ShuffleConfig`; without one the order is the manifest's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_seed: Option<i64>,
    /// Entries of the manifest that are one sample, and stay together in order; at least 1.
    pub entries_per_sample: u32,
    /// Which samples are this instance's; all without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// An instance's part of what is sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 0.
    pub index: u32,
    /// At least 1.
    pub count: u32,
}

/// Which of `samples` samples an instance has in an epoch, in order. With a seed all of them are
/// shuffled first, so that a shard has others in each epoch.
#[must_use]
pub fn order(samples: usize, shuffle_seed: Option<i64>, epoch: u64, shard: Option<Shard>) -> Vec<usize> {
    let mut all = Vec::from_iter(0..samples);
    if let Some(seed) = shuffle_seed {
        // Fisher and Yates.
        let mut random = SplitMix { state: seed.cast_unsigned() ^ epoch.wrapping_mul(0xd605_1c8a_b7e5_f2c1) };
        for last in (1..samples).rev() {
            all.swap(last, random.below(last as u64 + 1));
        }
    }
    match shard {
        None => all,
        Some(Shard { index, count }) => all.into_iter().skip(index as usize).step_by(count.max(1) as usize).collect(),
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix {
    state: u64,
}

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The bias of the multiplication is below `bound / 2^64`.
    fn below(&mut self, bound: u64) -> usize {
        usize::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("below a number of samples")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_seed_the_order_is_the_manifests() {
        assert_eq!(order(4, None, 3, None), [0, 1, 2, 3]);
        assert_eq!(order(5, None, 0, Some(Shard { index: 1, count: 2 })), [1, 3]);
        assert!(order(0, Some(1), 0, None).is_empty());
        assert!(order(1, None, 0, Some(Shard { index: 1, count: 2 })).is_empty());
    }

    #[test]
    fn a_seed_gives_each_epoch_an_order_of_its_own_that_is_the_same_again() {
        let epochs = Vec::from_iter((0..4).map(|epoch| order(100, Some(7), epoch, None)));
        for (epoch, shuffled) in epochs.iter().enumerate() {
            assert_eq!(*shuffled, order(100, Some(7), epoch as u64, None));
            let mut sorted = shuffled.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, Vec::from_iter(0..100));
            assert!(epochs.iter().skip(epoch + 1).all(|other| other != shuffled));
        }
        assert_ne!(order(100, Some(7), 0, None), order(100, Some(8), 0, None));
        // Each sample is first about as often as another: no place is preferred.
        let first = Vec::from_iter((0..3000).map(|epoch| order(3, Some(1), epoch, None)[0]));
        for sample in 0..3 {
            let count = first.iter().filter(|it| **it == sample).count();
            assert!((850..1150).contains(&count), "{sample}: {count}");
        }
    }

    #[test]
    fn shards_are_disjoint_and_whole_and_change_with_the_epoch() {
        let shard = |index, epoch| order(10, Some(3), epoch, Some(Shard { index, count: 3 }));
        for epoch in 0..3 {
            let mut all = Vec::from_iter((0..3).flat_map(|index| shard(index, epoch)));
            all.sort_unstable();
            assert_eq!(all, Vec::from_iter(0..10));
        }
        let sorted = |mut samples: Vec<usize>| {
            samples.sort_unstable();
            samples
        };
        assert_ne!(sorted(shard(0, 0)), sorted(shard(0, 1)));
    }
}
