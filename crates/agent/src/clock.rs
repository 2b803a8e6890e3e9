//! The agent's clock, as reports and log lines carry it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since the epoch; 0 on a machine whose clock stands before it.
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Milliseconds since the epoch; 0 as there.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1000
}

/// Clocks that differ by less are no reason for a word.
const MAX_DIFFERENCE_MS: u64 = 5000;

/// What a job's owner should know of this machine's clock beside the server's. The server looked at
/// its clock at some time between `before` and `after`, by this one.
pub(crate) fn doubt(before: u64, after: u64, server: u64, machine: &str) -> Option<String> {
    let (difference, how) = match (before.checked_sub(server), server.checked_sub(after)) {
        (Some(ahead), _) => (ahead, "ahead of"),
        (None, Some(behind)) => (behind, "behind"),
        (None, None) => return None,
    };
    (difference > MAX_DIFFERENCE_MS).then(|| {
        format!(
            "the clock of {machine} is {} s {how} the server's: the times of this host's log lines and metrics are wrong by \
             that, and of several hosts that fail another one may be named: have both machines synchronise their clocks \
             (chrony, NTP)",
            difference / 1000
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_a_reason_for_a_word() {
        let of = |before, after, server| doubt(before, after, server, "n1");
        for (before, after, server) in [(10_000, 10_001, 5000), (5000, 5001, 10_001), (5000, 20_000, 12_000)] {
            assert_eq!(of(before, after, server), None);
        }
        assert!(
            of(3_605_001, 3_606_000, 5000).unwrap().starts_with("the clock of n1 is 3600 s ahead of the server's:")
        );
        assert!(of(4000, 5000, 66_000).unwrap().starts_with("the clock of n1 is 61 s behind the server's:"));
        assert_eq!(of(0, 20_000, 24_000), None, "it may have waited for the answer");
    }
}
