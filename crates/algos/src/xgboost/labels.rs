//! Labels that an objective cannot take, told before the library does so in its own terms, and with
//! the row.

use super::data::Source;
use super::failure::Failure;
use super::hyperparameters::Hyperparameters;

/// Checks the labels of a channel against the objective.
pub(super) fn check(channel: &str, source: &Source, hyperparameters: &Hyperparameters) -> Result<(), Failure> {
    let classes: f32 = hyperparameters.parameter("num_class", "0").parse().unwrap_or(0.0);
    let objective = hyperparameters.parameter("objective", "reg:squarederror");
    let (is_good, rule): (Box<dyn Fn(f32) -> bool>, String) = match objective {
        "binary:logistic" | "binary:logitraw" | "reg:logistic" => (
            Box::new(|label| (0.0..=1.0).contains(&label)),
            "label must be in [0,1] for logistic regression".to_owned(),
        ),
        "binary:hinge" => {
            (Box::new(|label| label == 0.0 || label == 1.0), "label must be 0 or 1 for binary:hinge".to_owned())
        }
        "multi:softmax" | "multi:softprob" => (
            Box::new(move |label| label >= 0.0 && label < classes),
            format!("label must be in [0, num_class), and num_class is {classes}"),
        ),
        "count:poisson" | "reg:tweedie" => {
            (Box::new(|label| label >= 0.0), format!("label must be nonnegative for {objective}"))
        }
        "reg:gamma" => (Box::new(|label| label > 0.0), "label must be positive for reg:gamma".to_owned()),
        _ => return Ok(()),
    };
    match source.labels().iter().position(|label| !is_good(*label)) {
        None => Ok(()),
        Some(row) => Err(Failure::User(format!(
            "{rule}; row {} of the {channel} channel has label {}",
            row + 1,
            source.labels()[row]
        ))),
    }
}
