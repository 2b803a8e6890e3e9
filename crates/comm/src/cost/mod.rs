//! What an operation should take: delays and bytes over the wire, for each algorithm. Chooses
//! between algorithms, and predicts.
//!
//! The model is the usual one (Hockney): a message of S bytes takes latency + S / bandwidth; a rank
//! sends and receives at the same time, one message at a time. See R. Thakur, R. Rabenseifner and
//! W. Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), section 3.

mod shared;

use std::time::Duration;

use crate::Error;

/// How many pairs of each are measured when a group over connections is made.
const SMALL_PROBES: usize = 5;
const LARGE_PROBES: usize = 3;
/// All-gathers that are not counted.
const WARM_UP: usize = 2;
/// Whatever the model says: up to so many bytes an all-reduce is flat, as everything fits into one
/// packet or few; above the second it is not, as memory and incast would be wasted.
const LEAST_FLAT: usize = 4096;
const MOST_FLAT: usize = 1 << 20;
/// Bytes for each rank from which vectors go around. Fixed, so that the order of reduction follows
/// from length and number of ranks, not from what was measured.
pub(crate) const LONG: usize = 256 * 1024;

/// A link between two ranks, as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// One way, in seconds.
    pub latency: f64,
    /// Bytes per second, each way.
    pub bandwidth: f64,
}

/// How an all-reduce over connections goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Everybody sends everything to everybody: one delay, (n-1) S bytes.
    Flat,
    /// Everybody reduces its slice and sends the result to all: two delays, 2 (n-1)/n S bytes.
    Halves,
    /// Slices go around from each rank to the next: 2 (n-1) delays, 2 (n-1)/n S bytes, of which no
    /// two go to one rank at the same time.
    Ring,
}

impl Link {
    /// The time of an all-reduce of so many bytes among `ranks`.
    pub fn all_reduce(&self, algorithm: Algorithm, ranks: usize, bytes: usize) -> Duration {
        let (others, bytes) = (ranks.saturating_sub(1) as f64, bytes as f64);
        let seconds = match algorithm {
            Algorithm::Flat => self.latency + others * bytes / self.bandwidth,
            Algorithm::Ring => {
                2.0 * others * self.latency + 2.0 * others / ranks.max(1) as f64 * bytes / self.bandwidth
            }
            Algorithm::Halves => 2.0 * self.latency + 2.0 * others / ranks.max(1) as f64 * bytes / self.bandwidth,
        };
        Duration::from_secs_f64(if ranks > 1 { seconds } else { 0.0 })
    }

    /// What TCP takes for an all-reduce of f32 over a wire (long vectors of two ranks of one host
    /// go around, too). `Flat` and `Halves` give the same bits, so the cheaper one; `Ring` gives
    /// others, so it is chosen by length alone.
    pub fn chosen(&self, ranks: usize, bytes: usize) -> Algorithm {
        match bytes {
            _ if ranks <= 2 => Algorithm::Flat,
            _ if bytes >= LONG * ranks => Algorithm::Ring,
            _ if bytes <= self.flat_limit(ranks) => Algorithm::Flat,
            _ => Algorithm::Halves,
        }
    }

    /// Up to how many bytes `Flat` is taken instead of `Halves`: where it is the cheaper one,
    /// within 4 KiB and 1 MiB.
    pub fn flat_limit(&self, ranks: usize) -> usize {
        self.break_even(ranks).clamp(LEAST_FLAT, MOST_FLAT)
    }

    /// Up to how many bytes `Flat` is the cheaper one; at two ranks always.
    fn break_even(&self, ranks: usize) -> usize {
        if ranks <= 2 {
            return usize::MAX;
        }
        let others = ranks as f64 - 1.0;
        // The equation of both times, solved for the bytes.
        (self.latency * self.bandwidth / (others * (1.0 - 2.0 / ranks as f64))) as usize
    }

    /// From seconds of [`probe`].
    pub(crate) fn of_probes(ranks: usize, [barrier, gather]: [f64; 2]) -> Self {
        let latency = barrier.max(1e-6);
        let bandwidth = (probe_bytes(ranks) * ranks.saturating_sub(1)) as f64 / (gather - latency).max(1e-6);
        Self { latency, bandwidth: bandwidth.clamp(1e5, 1e11) }
    }
}

/// Bytes of one rank in the measurement of bandwidth. A connection on which never more than its
/// first window came at a time keeps that window, and waits for acknowledgements; among many ranks
/// there is no time for so much, nor the need: a rank's connections share its wire.
const fn probe_bytes(ranks: usize) -> usize {
    match ranks {
        ..=4 => 512 * 1024,
        5..=8 => 256 * 1024,
        _ => 64 * 1024,
    }
}

/// Does an all-gather of these bytes, and says how many seconds it took.
pub(crate) type Gather<'a> = dyn FnMut(&[u8], &mut [u8]) -> Result<f64, Error> + 'a;

/// Seconds of a barrier and of a larger all-gather among `ranks`, by a group's own operations,
/// which say how many each took. They go in pairs, of which the mean counts: a rank that comes late
/// to one finds the others' bytes there already, and they find its late in the next. The median of
/// the pairs, as other programs' turns make some long; the first of each are not counted, as
/// windows have to open. The slowest rank's figures count: agree on the greatest.
pub(crate) fn probe(
    ranks: usize,
    barrier: &mut dyn FnMut() -> Result<f64, Error>,
    all_gather: &mut Gather<'_>,
) -> Result<[f64; 2], Error> {
    barrier()?;
    let small = median(SMALL_PROBES, barrier)?;
    let own = vec![0_u8; probe_bytes(ranks)];
    let mut all = vec![0_u8; own.len() * ranks];
    for _ in 0..WARM_UP {
        all_gather(&own, &mut all)?;
    }
    let large = median(LARGE_PROBES, &mut || all_gather(&own, &mut all))?;
    Ok([small, large])
}

/// Of an odd number of pairs.
fn median(pairs: usize, once: &mut dyn FnMut() -> Result<f64, Error>) -> Result<f64, Error> {
    let mut means = (0..pairs).map(|_| Ok((once()? + once()?) / 2.0)).collect::<Result<Vec<_>, Error>>()?;
    means.sort_by(f64::total_cmp);
    Ok(means[pairs / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s and 1 ms.
    const WIRE: Link = Link { latency: 1e-3, bandwidth: 118e6 };

    #[test]
    fn the_limit_is_where_both_cost_the_same() {
        for ranks in [3, 4, 8, 64] {
            let limit = WIRE.break_even(ranks);
            let (flat, halves) =
                (WIRE.all_reduce(Algorithm::Flat, ranks, limit), WIRE.all_reduce(Algorithm::Halves, ranks, limit));
            assert!(flat.abs_diff(halves) < Duration::from_micros(1), "{ranks} ranks: {flat:?} and {halves:?}");
        }
    }

    #[test]
    fn what_tcp_takes_depends_on_length_and_ranks() {
        let limit = WIRE.flat_limit(4);
        assert_eq!((WIRE.chosen(4, limit), WIRE.chosen(4, limit + 1)), (Algorithm::Flat, Algorithm::Halves));
        assert_eq!((WIRE.chosen(4, 4 * LONG - 1), WIRE.chosen(4, 4 * LONG)), (Algorithm::Halves, Algorithm::Ring));
        assert_eq!((WIRE.flat_limit(64), WIRE.flat_limit(2)), (LEAST_FLAT, MOST_FLAT));
        assert_eq!(WIRE.chosen(2, 1 << 30), Algorithm::Flat);
    }

    #[test]
    fn probes_give_back_the_link_that_they_were_of() {
        let gather = WIRE.latency + (3 * probe_bytes(4)) as f64 / WIRE.bandwidth;
        let link = Link::of_probes(4, [WIRE.latency, gather]);
        assert!(
            (link.latency - WIRE.latency).abs() < 1e-12 && (link.bandwidth / WIRE.bandwidth - 1.0).abs() < 1e-9,
            "{link:?}"
        );
        // Late and early ones in turns, and two that another program made long.
        let mut small = [50.0, 0.0, 4.0, 4.0, 0.0, 90.0, 0.5, 3.0, 1.0, 0.0, 3.0].into_iter();
        let mut large = [80.0, 9.0, 1.0, 9.0, 60.0, 5.0, 3.0, 5.0].into_iter();
        let figures = probe(2, &mut || Ok(small.next().expect("eleven barriers")), &mut |own, all| {
            assert_eq!((own.len(), all.len()), (probe_bytes(2), 2 * probe_bytes(2)));
            Ok(large.next().expect("eight all-gathers"))
        });
        assert_eq!(figures.expect("no error"), [2.0, 5.0]);
    }

    #[test]
    fn large_vectors_cost_the_wire() {
        let time = WIRE.all_reduce(Algorithm::Halves, 4, 16 << 20).as_secs_f64();
        let wire = 1.5 * (16 << 20) as f64 / 118e6;
        assert!((time - wire - 2e-3).abs() < 1e-9, "{time}");
        let ring = WIRE.all_reduce(Algorithm::Ring, 4, 16 << 20).as_secs_f64();
        assert!((ring - wire - 6e-3).abs() < 1e-9, "{ring}");
        assert_eq!(WIRE.all_reduce(Algorithm::Flat, 1, 100), Duration::ZERO);
    }
}
