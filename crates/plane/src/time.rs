//! Points in time.

use serde::{Deserialize, Serialize};

/// Milliseconds since the epoch; always an argument, never read from a clock here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    pub(crate) fn plus_s(self, seconds: u64) -> Time {
        self.plus_ms(seconds.saturating_mul(1000))
    }

    pub(crate) fn plus_ms(self, milliseconds: u64) -> Time {
        Time(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds since an earlier time; zero if that is later.
    pub(crate) fn ms_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
