//! Places of gangs that lose and gain instances while the others run, as the journal has them.

use shoal_plane::Host;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of an instance that counts, and whether its program runs.
    Member {
        runs: bool,
    },
    Lost,
    /// It is leaving, or being removed.
    Away,
    /// There is nothing.
    Empty,
}

/// Of an attempt.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) least: u32,
    /// By host number - 1.
    pub(crate) places: Vec<Place>,
    /// All programs have run at the same time.
    pub(crate) complete: bool,
    pub(crate) changed_ms: u64,
}

impl Places {
    pub(crate) fn set(&mut self, host: Host, place: Place) {
        self.places[host.0 as usize - 1] = place;
    }

    pub(crate) fn count(&self, is_wanted: impl Fn(&Place) -> bool) -> usize {
        self.places.iter().filter(|place| is_wanted(place)).count()
    }
}
