//! How ranks of one host hand memory to each other that is not registered: what is known of the
//! processor's kind, and what a trial found. Without I/O.
//!
//! On AMD the figures of docs/notes/collectives.md hold, found by hand in both modes of such a
//! machine. Others try each candidate when a group is made (`trial`), and leave what is known only
//! for one that is clearly faster. `SHOAL_COMM_STAGING` decides instead of both.

use crate::{
    reduce::Stores,
    staging::{Fixed, Order, STAGE, Writing},
};

/// Whose processor it is, and its caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processor {
    pub(super) vendor: Vendor,
    /// Bytes of a core's second cache.
    pub(super) second: usize,
    /// Bytes of the last cache, as the system says. A guest is told the whole socket's, of which it
    /// may have a small part.
    pub(super) last: usize,
}

/// Who made the processor, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vendor {
    Amd,
    Other,
}

/// How one operation goes through stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Staging {
    /// Bytes of one step, at most [`STAGE`].
    pub(super) stage: usize,
    /// Places are taken in turns among so many bytes; none where it is less than two stages.
    pub(super) room: usize,
    pub(super) writing: Writing,
}

/// How results that may exceed the caches are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Large {
    /// Past the caches where all ranks' bytes exceed the last one.
    ByCache,
    /// Each rank times both ways ([`super::large`]).
    Timed,
    Always(Stores),
}

/// What all ranks of a host keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// Where a rank gives at most [`SHORT`] bytes.
    pub(super) short: Staging,
    pub(super) long: Staging,
    pub(super) large: Large,
}

/// What a rank gives at most to a short operation.
pub(super) const SHORT: usize = 512 << 10;
/// What ranks give in a trial: one short, one long.
pub(super) const TRIED: [usize; 2] = [256 << 10, 1 << 20];
/// A candidate takes the known one's place if it takes at most this share of its time: less is the
/// machine's moods.
const CLEARLY: f64 = 0.85;
/// Candidates of a trial; the first is what is known.
pub(super) const CANDIDATES: usize = 5;
/// Seconds that each candidate took for each of [`TRIED`].
pub(super) type Times = [[f64; CANDIDATES]; TRIED.len()];

/// What was found by hand on AMD.
const KNOWN: Staging = Staging { stage: STAGE, room: 2 * STAGE, writing: Writing::Timed };

impl Choice {
    /// As long as nothing was tried.
    pub(super) const fn known() -> Self {
        Self { short: KNOWN, long: KNOWN, large: Large::ByCache }
    }

    /// What follows from order and processor, and whether ranks that have a core each are to try.
    pub(super) fn begin(order: Order, processor: Processor) -> (Self, bool) {
        match (order, processor.vendor) {
            (Order::Auto, Vendor::Amd) => (Self::known(), false),
            (Order::Auto, Vendor::Other) | (Order::Measured, _) => {
                (Self { large: Large::Timed, ..Self::known() }, true)
            }
            (Order::Fixed(fixed), _) => (Self::fixed(fixed), false),
        }
    }

    /// The owner's.
    fn fixed(fixed: Fixed) -> Self {
        let staging = Staging {
            stage: fixed.stage.unwrap_or(KNOWN.stage),
            room: fixed.room.unwrap_or(KNOWN.room),
            writing: fixed.writing.unwrap_or(KNOWN.writing),
        };
        Self { short: staging, long: staging, large: fixed.large.map_or(Large::ByCache, Large::Always) }
    }

    /// What a trial found.
    pub(super) fn found(self, second: usize, times: &Times) -> Self {
        let candidates = candidates(second);
        let fastest = |times: &[f64; CANDIDATES]| {
            let (best, time) =
                times.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).expect("there are candidates");
            candidates[if *time <= CLEARLY * times[0] { best } else { 0 }]
        };
        Self { short: fastest(&times[0]), long: fastest(&times[1]), ..self }
    }

    /// For other ranks of the host.
    pub(super) fn words(self) -> [u64; 3] {
        let staging = |it: Staging| it.stage as u64 | (it.room as u64) << 24 | (it.writing as u64) << 48;
        let large = match self.large {
            Large::ByCache => 0,
            Large::Timed => 1,
            Large::Always(Stores::Cached) => 2,
            Large::Always(_) => 3,
        };
        [staging(self.short), staging(self.long), large]
    }

    /// What they read.
    pub(super) fn of_words([short, long, large]: [u64; 3]) -> Self {
        let staging = |word: u64| Staging {
            stage: (word & 0xff_ffff) as usize,
            room: (word >> 24 & 0xff_ffff) as usize,
            writing: match word >> 48 {
                0 => Writing::Timed,
                1 => Writing::Cached,
                _ => Writing::Past,
            },
        };
        let large = match large {
            0 => Large::ByCache,
            1 => Large::Timed,
            2 => Large::Always(Stores::Cached),
            _ => Large::Always(Stores::Streaming),
        };
        Self { short: staging(short), long: staging(long), large }
    }

    pub(super) const fn of(&self, given: usize) -> Staging {
        if given <= SHORT { self.short } else { self.long }
    }
}

/// What is tried where a core's second cache has so many bytes.
pub(super) fn candidates(second: usize) -> [Staging; CANDIDATES] {
    // A step of which all places, four of stages and two of results, stay in the second cache
    // beside what is reduced.
    let small = (second / 16).next_power_of_two().clamp(32 << 10, STAGE / 4);
    let one = |stage, room, writing| Staging { stage, room, writing };
    [
        KNOWN,
        one(STAGE, 2 * STAGE, Writing::Cached),
        one(STAGE, 0, Writing::Cached),
        one(small, 0, Writing::Cached),
        one(small, 2 * STAGE, Writing::Past),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD: Processor = Processor { vendor: Vendor::Amd, second: 1 << 20, last: 32 << 20 };
    /// Granite Rapids as a guest with two of its cores sees it.
    const OTHER: Processor = Processor { vendor: Vendor::Other, second: 2 << 20, last: 480 << 20 };

    fn times(short: [f64; CANDIDATES], long: [f64; CANDIDATES]) -> Times {
        [short, long]
    }

    #[test]
    fn the_kind_of_processor_decides_who_tries() {
        let timed = Choice { large: Large::Timed, ..Choice::known() };
        for (order, processor, expected) in [
            (Order::Auto, AMD, (Choice::known(), false)),
            (Order::Auto, OTHER, (timed, true)),
            (Order::Measured, AMD, (timed, true)),
            (Order::parse("stage=65536").expect("good"), OTHER, (fixed(65536), false)),
        ] {
            assert_eq!(Choice::begin(order, processor), expected, "{order:?} {processor:?}");
        }
    }

    fn fixed(stage: usize) -> Choice {
        let staging = Staging { stage, ..KNOWN };
        Choice { short: staging, long: staging, large: Large::ByCache }
    }

    #[test]
    fn what_is_clearly_faster_is_taken_size_by_size() {
        let (begun, _) = Choice::begin(Order::Auto, OTHER);
        let small = candidates(OTHER.second)[3];
        assert_eq!(
            (small.stage, candidates(AMD.second)[3].stage, candidates(64 << 20)[3].stage),
            (128 << 10, 64 << 10, STAGE / 4)
        );
        let found = |times: Times| {
            let found = begun.found(OTHER.second, &times);
            assert_eq!(found.large, begun.large);
            (found.short, found.long)
        };
        assert_eq!(found(times([10.0, 9.0, 9.0, 8.6, 9.0], [10.0; CANDIDATES])), (KNOWN, KNOWN), "the machine's moods");
        assert_eq!(found(times([10.0, 9.0, 8.0, 5.0, 9.0], [10.0, 30.0, 30.0, 30.0, 30.0])), (small, KNOWN));
        assert_eq!(
            found(times([10.0, 9.0, 9.0, 9.0, 7.0], [1.0, 0.9, 0.5, 0.4, 0.8])),
            (candidates(OTHER.second)[4], small)
        );
        assert_eq!(found([[f64::INFINITY; CANDIDATES]; 2]), (KNOWN, KNOWN));
        let choice = begun.found(OTHER.second, &times([10.0, 9.0, 9.0, 9.0, 7.0], [1.0, 0.9, 0.5, 0.4, 0.8]));
        assert_eq!((choice.of(SHORT), choice.of(SHORT + 1)), (choice.short, choice.long));
    }

    #[test]
    fn others_read_what_was_chosen() {
        let larges = [Large::ByCache, Large::Timed, Large::Always(Stores::Cached), Large::Always(Stores::Streaming)];
        for (staging, large) in candidates(2 << 20).into_iter().flat_map(|it| larges.map(|large| (it, large))) {
            let choice = Choice { short: staging, long: KNOWN, large };
            assert_eq!(Choice::of_words(choice.words()), choice);
        }
    }

    #[test]
    fn an_owner_says_part_or_all() {
        let order = Order::parse("stage=131072, room=0,writes=past,large=cached").expect("good");
        let staging = Staging { stage: 131_072, room: 0, writing: Writing::Past };
        let choice = Choice { short: staging, long: staging, large: Large::Always(Stores::Cached) };
        assert_eq!(Choice::begin(order, AMD), (choice, false));
        assert_eq!((Order::parse("auto"), Order::parse("measured")), (Ok(Order::Auto), Ok(Order::Measured)));
        for wrong in ["", "fast", "stage=0", "stage=2097152", "room=-1", "writes=slow", "large", "stage=4096;room=0"] {
            assert!(Order::parse(wrong).is_err_and(|text| text.contains("stage=BYTES")), "{wrong:?}");
        }
    }
}
