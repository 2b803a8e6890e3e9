//! What collectives cost by latency and bandwidth, in seconds: ring algorithms, after Thakur,
//! Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005). N
//! ranks, M bytes on each.

use serde::{Deserialize, Serialize};

/// A connection between two ranks, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Seconds for a message of no bytes.
    pub latency: f64,
    /// Bytes in a second.
    pub bandwidth: f64,
}

impl Link {
    /// One message.
    pub fn send(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }

    /// All-gather or reduce-scatter: M (N - 1) / N bytes in N - 1 messages. `bytes`: of the whole.
    pub fn gather(&self, ranks: usize, bytes: f64) -> f64 {
        let others = ranks.saturating_sub(1) as f64;
        others * self.latency + bytes * others / (ranks.max(1) as f64 * self.bandwidth)
    }

    /// All-reduce: both one after the other.
    pub fn all_reduce(&self, ranks: usize, bytes: f64) -> f64 {
        2.0 * self.gather(ranks, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_cost_what_rings_do() {
        let link = Link { latency: 0.5, bandwidth: 100.0 };
        assert_eq!((link.send(200.0), link.gather(4, 400.0), link.all_reduce(4, 400.0)), (2.5, 4.5, 9.0));
        assert_eq!((link.gather(1, 400.0), link.all_reduce(1, 400.0)), (0.0, 0.0));
    }
}
