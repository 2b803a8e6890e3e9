//! The score that boosting begins with. For these objectives the library takes the mean label, in
//! double precision on one host; over several hosts it adds their parts in single precision, which
//! would make the last bits of every prediction depend on the number of hosts.

use super::data::Source;
use super::failure::Failure;
use super::group::Group;
use super::hyperparameters::Hyperparameters;

/// What one host with all rows would begin with, where the library of several hosts would not; a
/// collective call.
pub(super) fn of_all_hosts(
    hyperparameters: &Hyperparameters,
    train: &Source,
    group: &Group,
) -> Result<Option<f32>, Failure> {
    let objective = hyperparameters.parameter("objective", "reg:squarederror");
    let is_mean = matches!(
        objective,
        "reg:squarederror"
            | "reg:logistic"
            | "binary:logistic"
            | "binary:logitraw"
            | "reg:gamma"
            | "reg:tweedie"
            | "count:poisson"
    );
    // With `scale_pos_weight` the library takes a Newton step instead.
    let is_free = !hyperparameters.parameters.contains_key("base_score")
        && !hyperparameters.parameters.contains_key("scale_pos_weight");
    if group.size() == 1 || !is_mean || !is_free {
        return Ok(None);
    }
    let weight = |row: usize| train.weights().get(row).map_or(1.0, |weight| f64::from(*weight));
    let mut sums = [0.0, 0.0];
    for (row, label) in train.labels().iter().enumerate() {
        sums[0] += weight(row) * f64::from(*label);
        sums[1] += weight(row);
    }
    group.sum(&mut sums)?;
    let mean = (sums[0] / sums[1]) as f32;
    let is_valid = match objective {
        "reg:squarederror" => mean.is_finite(),
        "reg:gamma" | "reg:tweedie" | "count:poisson" => mean > 0.0,
        _ => mean > 0.0 && mean < 1.0,
    };
    Ok(is_valid.then_some(mean))
}
