//! How the model sees a parameter: a place on an interval, or one of a few values.

use crate::{Domain, Rng, Space, Value};

/// Integers with more values than this are places.
const FEW: u64 = 32;

/// What the model keeps of a parameter's value is its mark: a place in [0, 1], or the index of the
/// value; NaN where the parameter is inactive.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Dim {
    /// [0, 1] of the scaled range.
    Place {
        /// Of integers.
        is_whole: bool,
    },
    /// Few integers, in their order: ends of their parts of [0, 1], one more than there are values.
    Steps { ends: Vec<f64> },
    /// Names.
    Names { count: usize },
}

impl Dim {
    pub(super) fn all(space: &Space) -> Vec<Self> {
        (0..space.parameters().len()).map(|index| Self::new(space, index)).collect()
    }

    fn new(space: &Space, index: usize) -> Self {
        let parameter = &space.parameters()[index];
        match (&parameter.domain, parameter.count()) {
            (Domain::Categorical { values }, _) => Self::Names { count: values.len() },
            (Domain::Integer { min, .. }, Some(count @ 1..=FEW)) => {
                let middle = |step: u64| space.unit(index, Value::Int(min.saturating_add_unsigned(step)));
                let between = (1..count).map(|step| 0.5 * (middle(step - 1) + middle(step)));
                Self::Steps { ends: std::iter::once(0.0).chain(between).chain([1.0]).collect() }
            }
            (Domain::Integer { .. }, _) => Self::Place { is_whole: true },
            (Domain::Continuous { .. }, _) => Self::Place { is_whole: false },
        }
    }

    /// How many values there are, if they are few.
    pub(super) fn few(&self) -> Option<usize> {
        match self {
            Self::Place { .. } => None,
            Self::Steps { ends } => Some(ends.len() - 1),
            Self::Names { count } => Some(*count),
        }
    }

    /// The mark of a value.
    pub(super) fn mark(&self, space: &Space, index: usize, value: Option<Value>) -> f64 {
        let Some(value) = value else { return f64::NAN };
        match (self, value, &space.parameters()[index].domain) {
            (Self::Place { .. }, value, _) => space.unit(index, value),
            // Fewer than FEW.
            (_, Value::Int(value), Domain::Integer { min, .. }) => {
                u32::try_from(value.abs_diff(*min)).map_or(0.0, f64::from)
            }
            (_, value, _) => value.number(),
        }
    }

    /// What the value of a mark takes of the interval: 0 of a real number.
    pub(super) fn cell(&self, space: &Space, index: usize, mark: f64) -> f64 {
        match (self, self.value(space, index, mark)) {
            (Self::Place { is_whole: true }, Value::Int(value)) => {
                let (above, below) = (Value::Int(value.saturating_add(1)), Value::Int(value.saturating_sub(1)));
                // Half the way from neighbour to neighbour; at an end the neighbour's place is the
                // end.
                0.5 * (space.unit(index, above) - space.unit(index, below))
            }
            _ => 0.0,
        }
    }

    /// The value of a mark.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    pub(super) fn value(&self, space: &Space, index: usize, mark: f64) -> Value {
        match (self, &space.parameters()[index].domain) {
            (Self::Place { .. }, _) => space.from_unit(index, mark),
            (_, Domain::Integer { min, .. }) => Value::Int(min + mark as i64),
            _ => Value::Choice(mark as u32),
        }
    }

    /// A mark at random.
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub(super) fn uniform(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Place { .. } => rng.unit(),
            Self::Steps { ends } => {
                let place = rng.unit();
                (ends[1..].partition_point(|&end| end <= place)).min(ends.len() - 2) as f64
            }
            Self::Names { count } => rng.index(*count) as f64,
        }
    }

    /// The chance of each of few values when one is drawn at random.
    #[expect(clippy::cast_precision_loss, reason = "few")]
    fn shares(&self) -> Vec<f64> {
        match self {
            Self::Place { .. } => Vec::new(),
            Self::Steps { ends } => ends.windows(2).map(|pair| pair[1] - pair[0]).collect(),
            Self::Names { count } => vec![1.0 / *count as f64; *count],
        }
    }

    /// Chances of the few values around each of them as the centre, row by row: normal of a width
    /// for steps; for names the centre but for a chance `other` that it is any.
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub(super) fn masses(&self, sigma: f64, other: f64) -> Vec<f64> {
        match self {
            Self::Place { .. } => Vec::new(),
            Self::Steps { ends } => {
                let mut rows = Vec::with_capacity(ends.len() * ends.len());
                for center in ends.windows(2) {
                    let middle = 0.5 * (center[0] + center[1]);
                    let below: Vec<f64> = ends.iter().map(|end| phi((end - middle) / sigma)).collect();
                    let all = below[ends.len() - 1] - below[0];
                    rows.extend(below.windows(2).map(|pair| ((pair[1] - pair[0]) / all).max(1e-12)));
                }
                rows
            }
            Self::Names { count } => {
                let share = other / *count as f64;
                let row =
                    |center| (0..*count).map(move |value| if value == center { 1.0 - other + share } else { share });
                (0..*count).flat_map(row).collect()
            }
        }
    }

    /// By value: the logarithm of its chance around each centre against that of a random draw; 0
    /// for the last, a centre without the parameter.
    pub(super) fn log_rows(&self, masses: &[f64]) -> Vec<Vec<f64>> {
        let shares = self.shares();
        let count = shares.len();
        let row = |value: usize| {
            let ratios = (0..count).map(|center| libm::log(masses[center * count + value] / shares[value]));
            ratios.chain([0.0]).collect()
        };
        (0..count).map(row).collect()
    }
}

/// Standard normal distribution function.
pub(super) fn phi(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Logarithm of the factor that makes a normal density of this centre and width one on [0, 1].
pub(super) fn log_norm(center: f64, sigma: f64) -> f64 {
    let reach = 6.0 * sigma;
    let inside =
        if center > reach && 1.0 - center > reach { 1.0 } else { phi((1.0 - center) / sigma) - phi(-center / sigma) };
    const ROOT_TAU: f64 = 2.506_628_274_631_000_5;
    -libm::log(sigma * ROOT_TAU * inside)
}

/// A normal draw within [0, 1].
pub(super) fn draw(center: f64, sigma: f64, rng: &mut Rng) -> f64 {
    // At a border half of the draws fall outside.
    let drawn = (0..32).map(|_| center + sigma * rng.normal()).find(|place| (0.0..=1.0).contains(place));
    drawn.unwrap_or(center)
}
