//! Which protocol runs for which size: what the cost model says of this machine, as rank 0 measured
//! it.

use super::{
    choice::{Choice, Large, SHORT, Staging},
    control::{INLINE, SLOT},
    processor::processor,
};
use crate::{
    Kind,
    cost::{Algorithm, Link},
    staging::Writing,
};

/// The least that goes through slots, and the most.
const LEAST_FLAT: usize = 1 << 10;
const MOST_FLAT: usize = SLOT;

/// What is known of the machine; the same on all ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Machine {
    /// From one rank to another: the delay of a flag, and bytes that one writes and the other
    /// reads.
    pub(super) link: Link,
    /// Whether it was measured, or is what such machines have: ranks that had to share a core could
    /// not measure it.
    pub(super) measured: bool,
    /// How many ranks can run at the same time.
    pub(super) cores: usize,
    /// Bytes of the last cache.
    pub(super) cache: usize,
}

impl Machine {
    /// As long as nothing was measured.
    pub(super) fn assumed() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { link: Link { latency: 200e-9, bandwidth: 16e9 }, measured: false, cores, cache: processor().last }
    }
}

/// Sizes at which protocols change, in bytes. The same on all ranks of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    ranks: usize,
    machine: Machine,
    /// What any rank gives at most to an all-reduce that goes through slots.
    flat: usize,
    /// Places are taken in turns: worth it where ranks do not take each other's caches away.
    pub(super) turns: bool,
    /// Pauses before a waiting rank gives its core away: about 30 us, a wake-up's cost, where each
    /// rank has a core; next to none where it has not.
    pub(super) spins: u32,
}

impl Tuning {
    /// For `ranks` ranks.
    pub(super) fn new(ranks: usize, machine: Machine) -> Self {
        let has_cores = ranks <= machine.cores;
        // Whole lines.
        let flat = machine.link.shared_flat_limit(ranks).clamp(LEAST_FLAT, MOST_FLAT) & !127;
        let spins = if has_cores { 1000 } else { 20 };
        Self { ranks, machine, flat, turns: has_cores, spins }
    }

    /// What any rank gives at most to an operation of this kind that goes through slots.
    pub(super) fn flat(&self, kind: Kind) -> usize {
        match kind {
            // Everybody reads everything.
            Kind::AllReduce(_) => self.flat,
            _ => MOST_FLAT,
        }
    }

    pub(super) fn plan(&self, choice: &Choice) -> String {
        let Self { ranks, machine: Machine { link, measured, cores, cache, .. }, flat, .. } = self;
        let large = match choice.large {
            Large::ByCache => format!("past the caches where all ranks' bytes exceed {cache}"),
            Large::Timed => "each rank through or past the caches, as is faster".to_owned(),
            Large::Always(stores) => format!("large results {stores:?}"),
        };
        let (short, long) = (staging(choice.short), staging(choice.long));
        let (nanoseconds, rate) = (link.latency * 1e9, link.bandwidth / 1e9);
        let how = if *measured {
            "measured at the start"
        } else {
            "assumed (not measured, as ranks 0 and 1 had no core each)"
        };
        let mut text = format!(
            "shared memory, {ranks} ranks on {cores} cores; {how}: {nanoseconds:.0} ns from rank to rank, {rate:.1} \
             GB/s written by one and read by another; by the \
             bytes that a rank gives:\n\
             up to {INLINE} in the flag's own line, one flag\n\
             up to {flat} (all-reduce) or {MOST_FLAT} (others) through slots, one flag\n\
             beyond, registered memory: directly, each rank its share, two flags; {large}\n\
             beyond, other memory, to {SHORT}: through stages, {short}\n\
             beyond {SHORT}, other memory: through stages, {long}\n",
        );
        for bytes in [4, 4096, 65_536, 1 << 20] {
            let (algorithm, how) =
                if bytes <= *flat { (Algorithm::Flat, "one flag") } else { (Algorithm::Halves, "directly") };
            let time = link.shared_all_reduce(algorithm, *ranks, bytes);
            text += &format!("all-reduce of {bytes} bytes, {how}: about {:.2} us\n", time.as_secs_f64() * 1e6);
        }
        text
    }
}

/// In words.
fn staging(staging: Staging) -> String {
    let Staging { stage, room, writing } = staging;
    let how = match writing {
        Writing::Timed => "past the caches where ranks are found to share none",
        Writing::Cached => "through the caches",
        Writing::Past => "past the caches",
    };
    format!("{stage} a step, at places in turn in {room}, {how}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReduceOp;

    #[test]
    fn slots_are_for_more_where_flags_are_slow() {
        let tuned = |ranks, latency| {
            Tuning::new(ranks, Machine { link: Link { latency, bandwidth: 16e9 }, cores: 2, ..Machine::assumed() })
        };
        let flat = |ranks, latency| tuned(ranks, latency).flat(Kind::AllReduce(ReduceOp::Sum));
        assert_eq!((flat(4, 1e-9), flat(2, 1e-3)), (LEAST_FLAT, MOST_FLAT));
        assert!(flat(4, 200e-9) > flat(4, 100e-9) && flat(4, 200e-9) > flat(8, 200e-9));
        assert!(tuned(2, 1e-6).turns && !tuned(3, 1e-6).turns && tuned(3, 1e-6).spins < tuned(2, 1e-6).spins);
        assert!(
            tuned(2, 1e-6).plan(&Choice::known()).contains("1000 ns from rank to rank, 16.0 GB/s"),
            "{}",
            tuned(2, 1e-6).plan(&Choice::known())
        );
    }
}
