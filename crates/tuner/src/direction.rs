//! Which way an objective is better.

use serde::{Deserialize, Serialize};

/// Which way an objective is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Direction {
    /// Less is better.
    #[default]
    Minimize,
    /// More is better.
    Maximize,
}

impl Direction {
    /// The value as it is minimised inside; its own inverse.
    pub fn minimised(self, value: f64) -> f64 {
        match self {
            Self::Minimize => value,
            Self::Maximize => -value,
        }
    }
}
