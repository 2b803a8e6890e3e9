//! What an operation should take: delays and bytes over the wire, for each algorithm. Chooses between algorithms, and predicts.
//!
//! The model is the usual one (Hockney): a message of S bytes takes latency + S / bandwidth; a rank sends and receives at the same time, one
//! message at a time. See R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), section 3.

use std::time::Duration;

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
    /// Slices go around from each rank to the next: 2 (n-1) delays, 2 (n-1)/n S bytes, of which no two go to one rank at the same time.
    Ring,
}

impl Link {
    /// The time of an all-reduce of so many bytes among `ranks`.
    pub fn all_reduce(&self, algorithm: Algorithm, ranks: usize, bytes: usize) -> Duration {
        let (others, bytes) = (ranks.saturating_sub(1) as f64, bytes as f64);
        let seconds = match algorithm {
            Algorithm::Flat => self.latency + others * bytes / self.bandwidth,
            Algorithm::Ring => 2.0 * others * self.latency + 2.0 * others / ranks.max(1) as f64 * bytes / self.bandwidth,
            Algorithm::Halves => 2.0 * self.latency + 2.0 * others / ranks.max(1) as f64 * bytes / self.bandwidth,
        };
        Duration::from_secs_f64(if ranks > 1 { seconds } else { 0.0 })
    }

    /// The cheaper one of `Flat` and `Halves`, which give the same bits. `Ring` gives others, so it is chosen by length alone.
    pub fn choose(&self, ranks: usize, bytes: usize) -> Algorithm {
        if bytes <= self.flat_limit(ranks) { Algorithm::Flat } else { Algorithm::Halves }
    }

    /// Up to how many bytes `Flat` is the cheaper one; at two ranks always.
    pub fn flat_limit(&self, ranks: usize) -> usize {
        if ranks <= 2 {
            return usize::MAX;
        }
        let others = ranks as f64 - 1.0;
        // The equation of both times, solved for the bytes.
        (self.latency * self.bandwidth / (others * (1.0 - 2.0 / ranks as f64))) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s and 1 ms.
    const WIRE: Link = Link { latency: 1e-3, bandwidth: 118e6 };

    #[test]
    fn the_limit_is_where_both_cost_the_same() {
        for ranks in [3, 4, 8, 64] {
            let limit = WIRE.flat_limit(ranks);
            let (flat, halves) = (WIRE.all_reduce(Algorithm::Flat, ranks, limit), WIRE.all_reduce(Algorithm::Halves, ranks, limit));
            assert!(flat.abs_diff(halves) < Duration::from_micros(1), "{ranks} ranks: {flat:?} and {halves:?}");
            assert_eq!((WIRE.choose(ranks, limit), WIRE.choose(ranks, limit + 1)), (Algorithm::Flat, Algorithm::Halves));
        }
        assert_eq!(WIRE.choose(2, 1 << 30), Algorithm::Flat);
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
