//! `shoal demo`: a server in a temporary directory, and XGBoost trained through its API on real data, on one instance and on three.
//! It shows that the two models predict the same, what it took, and how the metric went.

mod bank;
mod chart;
mod curve;
pub(crate) mod dataset;
mod house;
mod leftovers;
mod random;
pub(crate) mod titanic;
pub(crate) mod training;
mod tuning;
mod wine;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use dataset::Dataset;
use house::House;
use training::Training;

use crate::{
    exit::Exit,
    output::{show, table},
    setup::ensure_library,
};

/// The greatest difference of predictions between one instance and three that we promise. Sums over rows are taken in another order, so
/// the last digits of single precision may differ; a different tree would differ by far more.
const BOUND: f64 = 1e-4;

/// How many instances the second training has.
const INSTANCES: usize = 3;

/// Arguments of `shoal demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Use titanic/ and bank/ of this directory instead of red wine quality.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Leave the server up at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

/// Trains, compares, draws.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit> {
    let datasets = match &args.data {
        Some(dir) => vec![titanic::load(&dir.join("titanic"))?, bank::load(&dir.join("bank"))?],
        None => vec![wine::load()],
    };
    ensure_library()?;
    let house = House::open()?;
    let shown = datasets.iter().take_while(|_| !house.is_interrupted()).try_for_each(|dataset| compare(&house, dataset));
    // Ctrl-C stops the training that runs; that it did not complete is then no news.
    if house.is_interrupted() {
        house.close();
        return Ok(Exit::Stopped);
    }
    shown?;
    if let Some(dataset) = datasets.last() {
        let tuned = tuning::run(&house, dataset);
        if house.is_interrupted() {
            house.close();
            return Ok(Exit::Stopped);
        }
        tuned?;
    }
    if args.keep {
        show(&house.invitation())?;
        house.wait();
    }
    house.close();
    Ok(Exit::Ok)
}

/// One dataset: two trainings, their difference, table and curves.
fn compare(house: &House, dataset: &Dataset) -> Result<()> {
    show(&format!(
        "\n{}\n  {} rows to train on, {} to validate, {} features\n\n",
        dataset.title,
        dataset.train.len(),
        dataset.validation.len(),
        dataset.features()
    ))?;
    let prefix = training::upload(house.client(), dataset, INSTANCES)?;
    let one = training::run(house, dataset, &prefix, 1)?;
    let many = training::run(house, dataset, &prefix, INSTANCES)?;
    show(&table(&rows(dataset, &[&one, &many])))?;
    let difference = greatest_difference(&one.predictions, &many.predictions)?;
    show(&format!(
        "\n  greatest difference of {} predictions between 1 and {INSTANCES} instances: {} (bound {BOUND:e})\n\n",
        one.predictions.len(),
        if difference == 0.0 { "none".to_owned() } else { format!("{difference:.1e}") }
    ))?;
    show(&chart::draw(&format!("{} by round, {INSTANCES} instances", dataset.metric), &many.curves))?;
    ensure!(difference <= BOUND, "the models of 1 and {INSTANCES} instances differ by {difference:.1e}, more than {BOUND:e}");
    Ok(())
}

fn rows(dataset: &Dataset, trainings: &[&Training]) -> Vec<Vec<String>> {
    let metric = &dataset.metric;
    let head = ["  instances", "submit to Completed", "in the program", &format!("train {metric}"), &format!("validation {metric}")];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for training in trainings {
        let last = |name: &str| training.curves.iter().find(|curve| curve.name == name).and_then(|curve| curve.points.last());
        let text = |name: &str| last(name).map_or_else(|| "-".to_owned(), |value| format!("{value:.5}"));
        let seconds = |seconds: f64| format!("{seconds:.2} s");
        rows.push(vec![
            format!("  {}", training.instances),
            seconds(training.submit_to_completed_s),
            seconds(training.program_s),
            text("train"),
            text("validation"),
        ]);
    }
    rows
}

fn greatest_difference(one: &[f32], other: &[f32]) -> Result<f64> {
    ensure!(one.len() == other.len() && !one.is_empty(), "{} predictions of one model, {} of the other", one.len(), other.len());
    let differences = one.iter().zip(other).map(|(a, b)| f64::from((a - b).abs()));
    // A NaN is not smaller than any bound.
    Ok(differences.fold(0.0, |greatest, difference| if difference > greatest || difference.is_nan() { difference } else { greatest }))
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
