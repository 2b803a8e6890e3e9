//! Wrong tries cost patience: a few are free, then one more every few seconds.

use std::time::{Duration, Instant};

/// Wrong tries that are free after a quiet time.
const FREE: u32 = 10;
/// A try comes back after this.
const EACH: Duration = Duration::from_secs(6);

/// How many wrong tries are left. One count for everybody: the keys are the owner's, whoever guesses, and a link from `shoal console`
/// needs no patience.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// When all tries will have come back.
    whole: Instant,
}

impl Throttle {
    pub(crate) fn new(now: Instant) -> Self {
        Self { whole: now }
    }

    /// Seconds until a try counts; 0 if it counts now.
    pub(crate) fn wait_s(&self, now: Instant) -> u64 {
        let until = self.whole.saturating_duration_since(now).saturating_sub(EACH * (FREE - 1));
        until.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
    }

    /// A try was wrong.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.whole = self.whole.max(now) + EACH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_runs_out_and_comes_back() {
        let start = Instant::now();
        let mut throttle = Throttle::new(start);
        for _ in 0..FREE {
            assert_eq!(throttle.wait_s(start), 0);
            throttle.failed(start);
        }
        assert_eq!(throttle.wait_s(start), EACH.as_secs());
        assert_eq!(throttle.wait_s(start + EACH), 0);
        throttle.failed(start + EACH);
        assert_eq!(throttle.wait_s(start + EACH), EACH.as_secs());
        assert_eq!(throttle.wait_s(start + EACH * 100), 0);
    }
}
