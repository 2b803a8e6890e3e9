//! The agent's clock, as reports and log lines carry it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch; 0 on a machine whose clock stands before it.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
