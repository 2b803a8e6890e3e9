//! The hosts of an attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host of an attempt, by its number: the first is 1, and programs know it as `algo-1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Host(pub u32);

impl Host {
    /// The one that decides when a gang is done.
    pub const FIRST: Host = Host(1);

    /// The hosts of an attempt with this number of instances, in order.
    pub fn all(instances: u32) -> impl DoubleEndedIterator<Item = Host> + Clone {
        (1..=instances).map(Host)
    }

    /// All hosts that there could be, in order: those of a list are its first ones.
    pub fn numbered() -> impl Iterator<Item = Host> + Clone {
        (1..).map(Host)
    }

    /// Place in a list of all hosts; none of number 0, which no host has.
    pub fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

/// `algo-1`
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "algo-{}", self.0)
    }
}
