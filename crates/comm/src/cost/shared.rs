//! The same for memory that all ranks of a host share.

use std::time::Duration;

use super::{Algorithm, Link};

impl Link {
    /// The time of an all-reduce of so many bytes in memory that all ranks share. `bandwidth` is
    /// that of bytes which one writes and another reads. `Flat`: each writes what it gives, and all
    /// read everything. `Halves`: each reads its slice of all memories, and writes the result to
    /// all.
    pub(crate) fn shared_all_reduce(&self, algorithm: Algorithm, ranks: usize, bytes: usize) -> Duration {
        let (n, bytes) = (ranks.max(1) as f64, bytes as f64);
        // Bytes that a rank writes for others or reads of theirs: each is half of handing over.
        let (flags, touched) = match algorithm {
            Algorithm::Flat => (1.0, n * bytes),
            Algorithm::Halves | Algorithm::Ring => (2.0, 2.0 * (n - 1.0) / n * bytes),
        };
        let seconds = flags * self.latency + touched / 2.0 / self.bandwidth;
        Duration::from_secs_f64(if ranks > 1 { seconds } else { 0.0 })
    }

    /// Up to how many bytes `Flat` is the cheaper one in shared memory.
    pub(crate) fn shared_flat_limit(&self, ranks: usize) -> usize {
        let n = ranks.max(1) as f64;
        // The equation of both times, solved for the bytes.
        (2.0 * self.latency * self.bandwidth / (n - 2.0 * (n - 1.0) / n)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_where_both_cost_the_same() {
        let memory = Link { latency: 200e-9, bandwidth: 16e9 };
        for ranks in [2, 3, 4, 8, 64] {
            let limit = memory.shared_flat_limit(ranks);
            let [flat, halves] =
                [Algorithm::Flat, Algorithm::Halves].map(|algorithm| memory.shared_all_reduce(algorithm, ranks, limit));
            assert!(flat.abs_diff(halves) < Duration::from_nanos(3), "{ranks} ranks: {flat:?} and {halves:?}");
        }
        assert_eq!(memory.shared_all_reduce(Algorithm::Flat, 1, 1 << 20), Duration::ZERO);
    }
}
