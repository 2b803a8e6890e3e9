//! How many requests a user may make: a bucket that fills with time, and of which each takes one.
//! It holds what a second brings.

/// Of one user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Thousandths of requests.
    left: u64,
    at_ms: u64,
}

impl Bucket {
    /// One of which nothing was taken.
    pub(super) fn full(per_s: u32, now_ms: u64) -> Self {
        Self { left: most(per_s), at_ms: now_ms }
    }

    /// Takes one request; `false`: there is none.
    pub(super) fn take(&mut self, per_s: u32, now_ms: u64) -> bool {
        // A clock that was set back brings nothing until it is where it was.
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        self.left = self.left.saturating_add(passed_ms.saturating_mul(per_s.into())).min(most(per_s));
        self.at_ms = self.at_ms.max(now_ms);
        let is_there = self.left >= 1000;
        if is_there {
            self.left -= 1000;
        }
        is_there
    }
}

fn most(per_s: u32) -> u64 {
    u64::from(per_s).max(1) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_brings_what_it_may() {
        let mut bucket = Bucket::full(2, 10_000);
        let taken = [10_000, 10_000, 10_000, 10_499, 10_500, 10_501, 60_000, 60_000, 60_000, 1000, 60_500]
            .map(|now| bucket.take(2, now));
        assert_eq!(taken, [true, true, false, false, true, false, true, true, false, false, true]);
    }
}
