//! What most rules need of a tensor, computed once.

use shoal_contract::tensors::{Reduction, ReductionKind, Tensor, TensorError};

/// Of a tensor's values. Moments are those of its finite values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Values.
    pub count: u64,
    /// Values that are not a number.
    pub nans: u64,
    /// Infinite values.
    pub infinities: u64,
    /// Values that are zero.
    pub zeros: u64,
    /// Least finite value.
    pub min: f64,
    /// Greatest finite value.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Mean of the absolute values.
    pub mean_abs: f64,
    /// Population variance.
    pub variance: f64,
}

impl Statistics {
    /// In two passes, as a variance of large numbers needs their mean.
    pub fn of(tensor: &Tensor<'_>) -> Result<Self, TensorError> {
        let count = tensor.len() as u64;
        let (mut nans, mut infinities, mut zeros) = (0_u64, 0_u64, 0_u64);
        let (mut min, mut max, mut sum, mut sum_abs) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        tensor.for_each(|value| {
            // Without branches, so that the loop is done in vectors.
            let finite = if value.is_finite() { value } else { 0.0 };
            nans += u64::from(value.is_nan());
            infinities += u64::from(value.is_infinite());
            zeros += u64::from(value == 0.0);
            let (low, high) = if value.is_finite() { (value, value) } else { (f64::INFINITY, f64::NEG_INFINITY) };
            min = if low < min { low } else { min };
            max = if high > max { high } else { max };
            sum += finite;
            sum_abs += finite.abs();
        })?;
        let finite = (count - nans - infinities) as f64;
        let mean = sum / finite;
        let mut squares = 0.0;
        tensor.for_each(|value| {
            let distance = if value.is_finite() { value - mean } else { 0.0 };
            squares += distance * distance;
        })?;
        let (mean_abs, variance) = (sum_abs / finite, squares / finite);
        Ok(Self { count, nans, infinities, zeros, min, max, mean, mean_abs, variance })
    }

    /// The value of a reduction, if these have it.
    pub(crate) fn reduction(&self, reduction: Reduction) -> Option<f64> {
        match (reduction.kind, reduction.is_absolute) {
            (ReductionKind::Min, false) => Some(self.min),
            (ReductionKind::Max, false) => Some(self.max),
            (ReductionKind::Max, true) => Some(self.max.abs().max(self.min.abs())),
            (ReductionKind::Mean, false) => Some(self.mean),
            (ReductionKind::Mean, true) => Some(self.mean_abs),
            (ReductionKind::Variance, false) => Some(self.variance),
            (ReductionKind::Std, false) => Some(self.variance.sqrt()),
            _ => None,
        }
        .filter(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_finite_values() {
        let values = [1.0, -3.0, f32::NAN, 0.0, f32::INFINITY, 6.0, f32::NEG_INFINITY];
        let statistics = Statistics::of(&Tensor::of_f32("t", &[7], &values)).unwrap();
        assert_eq!(
            statistics,
            Statistics {
                count: 7,
                nans: 1,
                infinities: 2,
                zeros: 1,
                min: -3.0,
                max: 6.0,
                mean: 1.0,
                mean_abs: 2.5,
                variance: 10.5,
            }
        );
        let largest = Reduction { kind: ReductionKind::Max, is_absolute: true };
        assert_eq!(statistics.reduction(largest), Some(6.0));
        let empty = Statistics::of(&Tensor::of_f32("t", &[0], &[])).unwrap();
        assert_eq!((empty.count, empty.reduction(largest)), (0, None));
    }

    #[test]
    fn a_variance_next_to_a_large_mean_is_exact() {
        let values: Vec<f32> = (0..1000).map(|index| 1e6 + (index % 2) as f32).collect();
        assert_eq!(Statistics::of(&Tensor::of_f32("t", &[1000], &values)).unwrap().variance, 0.25);
    }
}
