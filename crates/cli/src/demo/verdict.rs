//! What the search was worth: XGBoost's defaults and the search's best, trained alike and measured
//! on rows that nobody has seen, and what it cost.

use anyhow::{Context, Result};
use shoal_wire::StudyDescription;

use super::{
    chart,
    curve::Curve,
    dataset::Dataset,
    house::House,
    training::{self, Job, Seen, Training},
};
use crate::{
    output::{show, table},
    tuning::study::{best, setting, units},
};

/// Trains both on all rows that the search has seen, and compares them; `before` is the defaults'
/// training of the first half.
pub(super) fn tell(house: &House, dataset: &Dataset, before: &Training, study: &StudyDescription) -> Result<()> {
    let (trial, found) = best(study).context("the tuning job has no best trial")?;
    show(&format!("  best: {}\n\n", setting(trial)))?;
    let train = |what: &str, tuned: &[(String, String)]| {
        training::run(
            house,
            dataset,
            &Job { name: format!("{}-{what}", dataset.name), seen: Seen::All, tuned, instances: 1 },
        )
    };
    let (defaults, tuned) = (train("defaults", &[])?, train("tuned", &trial.values)?);
    let metric = dataset.metric;
    let head = ["", &format!("validation {metric}"), &format!("test {metric}"), "rounds", "training", "wall time"]
        .map(str::to_owned);
    let of = |name: &str, validation: f64, training: &Training| {
        [
            format!("  {name}"),
            format!("{validation:.5}"),
            format!("{:.5}", training.measured.last()),
            dataset.rounds().to_string(),
            format!("{:.2} s", training.program_s),
            format!("{:.2} s", training.submit_to_completed_s),
        ]
    };
    let rows =
        [head, of("XGBoost's defaults", before.measured.last(), &defaults), of("tuned", found, &tuned), search(study)];
    show(&table(&rows.map(Vec::from)))?;
    let seen = dataset.train.len() + dataset.validation.len();
    let (was, is) = (defaults.measured.last(), tuned.measured.last());
    let wins = if dataset.more_is_better() { is > was } else { is < was };
    show(&format!(
        "\n  test: {} rows that were held out until both were trained on the other {seen}. {}\n\n",
        dataset.test.len(),
        if wins { "Tuning wins." } else { "Tuning has not won this time." }
    ))?;
    let curve = |name: &str, of: Training| Curve { name: name.to_owned(), points: of.measured.points };
    show(&chart::draw(&format!("test {metric} by round"), &[curve("defaults", defaults), curve("tuned", tuned)]))?;
    Ok(())
}

/// What it cost: rounds, the sum of all trials' training time, and the time until it was over.
fn search(study: &StudyDescription) -> [String; 6] {
    let (run, full) = units(study);
    let trained: f64 = study.trials.iter().filter_map(|trial| trial.billable_seconds).sum();
    let wall = study.end_time.map_or(0.0, |end| end - study.creation_time);
    let trials = study.trials.len();
    [
        format!("  the search, {trials} trials"),
        String::new(),
        String::new(),
        format!("{run} of {full}"),
        format!("{trained:.2} s"),
        format!("{wall:.2} s"),
    ]
}
