//! The two clocks of an event.

use std::{ops::Add, time::Duration};

use shoal_plane::Time;

/// Monotonic time, since an origin of the driver's choice. All timers use it: setting the machine's
/// clock expires nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// Time since an earlier moment; zero since a later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

/// When an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For timers.
    pub mono: Mono,
    /// For times that are stored or shown.
    pub wall: Time,
}
