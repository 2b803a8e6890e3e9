//! How many configurations a tuning job can try.

use crate::Error;

use super::{ParameterRange, RangeValues};

/// The number of combinations; `None` where a continuous range has more than can be counted, or the
/// number is beyond all limits.
pub(super) fn combinations(ranges: &[ParameterRange]) -> Option<u64> {
    ranges.iter().try_fold(1_u64, |product, range| {
        let values = match &range.values {
            RangeValues::Integer { min, max, .. } => max.abs_diff(*min).checked_add(1)?,
            RangeValues::Continuous { min, max, .. } => (min == max).then_some(1)?,
            RangeValues::Categorical(values) => values.len() as u64,
        };
        product.checked_mul(values)
    })
}

/// Refuses more training jobs than there are combinations, in AWS's words.
pub(super) fn check(combinations: u64, max_jobs: u32) -> Result<(), Error> {
    if combinations >= u64::from(max_jobs) {
        return Ok(());
    }
    Err(Error::validation(format!(
        "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter combinations \
         for the provided ranges \
         [{combinations}.0] must be equal or greater than the value of MaxNumberOfJobs, [{max_jobs}]."
    )))
}
