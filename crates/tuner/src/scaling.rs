//! How a numeric range is spread over the unit interval.

use serde::{Deserialize, Serialize};

/// AWS's `ScalingType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Scaling {
    /// Logarithmic where all values are positive and the greatest is at least 1,000 times the
    /// least, else linear.
    Auto,
    /// Evenly.
    #[default]
    Linear,
    /// Evenly in the logarithm; needs values > 0.
    Logarithmic,
    /// Evenly in log(1 - x); needs 0 <= x < 1, continuous.
    ReverseLogarithmic,
}

/// From how many times the least value to the greatest `Auto` takes a range for logarithmic.
const AUTO_RATIO: f64 = 1000.0;

impl Scaling {
    /// What `Auto` comes to for a range; never `Auto`.
    #[must_use]
    pub fn resolved(self, min: f64, max: f64) -> Self {
        match self {
            Self::Auto if min > 0.0 && max / min >= AUTO_RATIO => Self::Logarithmic,
            Self::Auto => Self::Linear,
            fixed => fixed,
        }
    }

    /// Where a value stands in an increasing scale on which draws are uniform.
    pub(crate) fn forward(self, value: f64) -> f64 {
        match self {
            Self::Auto | Self::Linear => value,
            Self::Logarithmic => libm::log(value),
            Self::ReverseLogarithmic => -libm::log1p(-value),
        }
    }

    /// The inverse of [`Self::forward`].
    pub(crate) fn backward(self, place: f64) -> f64 {
        match self {
            Self::Auto | Self::Linear => place,
            Self::Logarithmic => libm::exp(place),
            Self::ReverseLogarithmic => -libm::expm1(-place),
        }
    }
}
