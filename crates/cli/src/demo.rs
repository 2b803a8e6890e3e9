//! `shoal demo`: a server in a temporary directory, and one story told through its API on real
//! data. XGBoost's defaults on one instance and on three give the same model; then Hyperband
//! searches better hyperparameters, and both are measured on rows that neither has seen.

mod bank;
mod chart;
mod curve;
pub mod dataset;
mod house;
mod instances;
mod leftovers;
mod random;
pub mod training;
mod tuning;
mod verdict;
mod wine;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use dataset::Dataset;
use house::House;
use instances::INSTANCES;

use crate::{exit::Exit, output::show, setup};

/// Arguments of `shoal demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Use bank/bank-additional-full.csv.gz (bank marketing) of this directory instead of red wine
    /// quality.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Leave the server up at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

/// Trains, tunes, compares, draws.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit> {
    let dataset = match &args.data {
        Some(dir) => bank::load(&dir.join("bank"))?,
        None => wine::load()?,
    };
    setup::fetch(&shoal_algos::xgboost::LIBRARY)?;
    let house = House::open()?;
    let told = story(&house, &dataset);
    // Ctrl-C stops what runs; that it did not complete is then no news.
    let is_stopped = house.is_interrupted();
    if args.keep && told.is_ok() && !is_stopped {
        show(&house.invitation())?;
        house.wait();
    }
    house.close();
    if is_stopped {
        return Ok(Exit::Stopped);
    }
    told.map(|()| Exit::Ok)
}

fn story(house: &House, dataset: &Dataset) -> Result<()> {
    let Dataset { title, metric, train, validation, test, .. } = dataset;
    let rounds = dataset.rounds();
    show(&format!(
        "\n{title}\n  {} rows to train on, {} to validate, {} held out, {} features; {rounds} rounds and {metric} \
         throughout\n\n",
        train.len(),
        validation.len(),
        test.len(),
        dataset.features()
    ))?;
    show(&format!("XGBoost's default hyperparameters on 1 and {INSTANCES} instances\n\n"))?;
    training::upload(house.client(), dataset, INSTANCES)?;
    let defaults = instances::compare(house, dataset)?;
    show(&format!("\nTuning: {} trials of Hyperband over {}\n\n", tuning::TRIALS, tuning::names()))?;
    let study = tuning::run(house, dataset)?;
    verdict::tell(house, dataset, &defaults, &study)
}
