//! The demo's first half: one training on one instance and on three, and whether both models
//! predict the same.

use anyhow::{Result, ensure};

use super::{
    chart,
    dataset::{Dataset, to_csv},
    house::House,
    training::{self, Job, Seen, Training},
};
use crate::output::{show, table};

/// The greatest difference of predictions between one instance and three that we promise. Sums over
/// rows are taken in another order, so the last digits of single precision may differ; a different
/// tree would differ by far more.
const BOUND: f64 = 1e-4;

/// How many instances the second training has.
pub(super) const INSTANCES: usize = 3;

/// Two trainings, their difference, table and curves. Returns the one of one instance.
pub(super) fn compare(house: &House, dataset: &Dataset) -> Result<Training> {
    let train = |instances: usize| {
        let name = format!("{}-{instances}", dataset.name);
        training::run(house, dataset, &Job { name, seen: Seen::Train, tuned: &[], instances })
    };
    let (one, many) = (train(1)?, train(INSTANCES)?);
    show(&table(&rows(dataset, &[&one, &many])))?;
    let rows = to_csv(&dataset.validation, false);
    let predict = |training: &Training| shoal_algos::xgboost::predict(&training.model, &rows);
    let (of_one, of_many) = (predict(&one)?, predict(&many)?);
    let difference = greatest_difference(&of_one, &of_many)?;
    show(&format!(
        "\n  greatest difference of {} predictions between 1 and {INSTANCES} instances: {} (bound {BOUND:e})\n\n",
        of_one.len(),
        if difference == 0.0 { "none".to_owned() } else { format!("{difference:.1e}") }
    ))?;
    show(&chart::draw(&format!("{} by round, {INSTANCES} instances", dataset.metric), &[many.train, many.measured]))?;
    ensure!(
        difference <= BOUND,
        "the models of 1 and {INSTANCES} instances differ by {difference:.1e}, more than {BOUND:e}"
    );
    Ok(one)
}

fn rows(dataset: &Dataset, trainings: &[&Training]) -> Vec<Vec<String>> {
    let metric = &dataset.metric;
    let head = [
        "  instances",
        "submit to Completed",
        "in the program",
        &format!("train {metric}"),
        &format!("validation {metric}"),
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for training in trainings {
        let seconds = |seconds: f64| format!("{seconds:.2} s");
        rows.push(vec![
            format!("  {}", training.instances),
            seconds(training.submit_to_completed_s),
            seconds(training.program_s),
            format!("{:.5}", training.train.last()),
            format!("{:.5}", training.measured.last()),
        ]);
    }
    rows
}

fn greatest_difference(one: &[f32], other: &[f32]) -> Result<f64> {
    ensure!(
        one.len() == other.len() && !one.is_empty(),
        "{} predictions of one model, {} of the other",
        one.len(),
        other.len()
    );
    let differences = one.iter().zip(other).map(|(a, b)| f64::from((a - b).abs()));
    // A NaN is not smaller than any bound.
    Ok(differences.fold(
        0.0,
        |greatest, difference| if difference > greatest || difference.is_nan() { difference } else { greatest },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        assert_eq!(greatest_difference(&[1.0, 2.0], &[1.0, 2.5]).unwrap(), 0.5);
        assert_eq!(greatest_difference(&[1.0], &[1.0]).unwrap(), 0.0);
        assert!(greatest_difference(&[f32::NAN, 1.0], &[1.0, 1.0]).unwrap().is_nan());
        assert!(greatest_difference(&[], &[]).is_err());
        assert!(greatest_difference(&[1.0], &[1.0, 2.0]).is_err());
    }
}
