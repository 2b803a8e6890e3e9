//! The demo's second half: hyperparameters that nobody tuned on three instances, then Hyperband.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use shoal_wire::StudyDescription;

use super::{
    INSTANCES,
    dataset::Dataset,
    house::House,
    training::{self, Training},
};
use crate::{
    output::{Progress, show, table},
    tuning::study::{best, fetch, rungs, setting, units},
};

/// How many trials, and how many at once.
const TRIALS: u32 = 30;
const PARALLEL: u32 = 4;

/// Boosting rounds of a whole trial.
const ROUNDS: u32 = 100;

/// Of the search, so that a demo can be repeated.
const SEED: u64 = 1729;

/// What is searched: name, least, greatest, scaling. The usual ranges for this algorithm.
const RANGES: [(&str, &str, &str, &str); 4] = [
    ("eta", "0.02", "0.5", "Logarithmic"),
    ("min_child_weight", "1", "20", "Logarithmic"),
    ("subsample", "0.5", "1", "Linear"),
    ("colsample_bytree", "0.3", "1", "Linear"),
];
const WHOLE: [(&str, &str, &str); 1] = [("max_depth", "2", "10")];

/// Trains with bad hyperparameters, tunes, and compares.
pub(super) fn run(house: &House, dataset: &Dataset) -> Result<()> {
    let metric = dataset.metric;
    let maximize = metric == "auc";
    let fixed = bad(dataset);
    show(&format!(
        "\nTuning: {} with hyperparameters that nobody tuned ({}), then {TRIALS} trials of Hyperband\n\n",
        dataset.name,
        text(&fixed)
    ))?;
    let prefix = format!("data/{}", dataset.name);
    let before = training::run_with(house, dataset, &fixed, &format!("{}-untuned", dataset.name), &prefix, INSTANCES)?;
    if house.is_interrupted() {
        return Ok(());
    }
    let name = format!("{}-hyperband", dataset.name);
    house.client().sagemaker("CreateHyperParameterTuningJob", &request(dataset, &name, &prefix, maximize))?;
    let study = wait(house, &name)?;
    if house.is_interrupted() {
        return Ok(());
    }
    ensure!(
        study.hyper_parameter_tuning_job_status == "Completed",
        "the tuning job is {}: {}",
        study.hyper_parameter_tuning_job_status,
        study.message.as_deref().unwrap_or_default()
    );
    tell(dataset, &before, &study)
}

/// The dataset's own, with steps and trees far too large.
fn bad(dataset: &Dataset) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = dataset.hyperparameters.iter().filter(|(name, _)| !is_tuned(name) && *name != "gamma").copied().collect();
    all.retain(|(name, _)| *name != "num_round");
    all.extend([("num_round", "100"), ("max_depth", "10"), ("eta", "1"), ("min_child_weight", "1")]);
    all
}

fn is_tuned(name: &str) -> bool {
    RANGES.iter().any(|(known, ..)| *known == name) || WHOLE.iter().any(|(known, ..)| *known == name)
}

fn text(hyperparameters: &[(&str, &str)]) -> String {
    let shown = hyperparameters.iter().filter(|(name, _)| is_tuned(name));
    shown.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn request(dataset: &Dataset, name: &str, prefix: &str, maximize: bool) -> Value {
    let training = training::request(dataset, name, prefix, 1);
    let mut fixed = training["HyperParameters"].as_object().cloned().unwrap_or_default();
    fixed.retain(|name, _| !is_tuned(name) && name != "gamma");
    fixed.insert("num_round".to_owned(), json!(ROUNDS.to_string()));
    let continuous =
        RANGES.map(|(name, min, max, scaling)| json!({"Name": name, "MinValue": min, "MaxValue": max, "ScalingType": scaling}));
    let integer = WHOLE.map(|(name, min, max)| json!({"Name": name, "MinValue": min, "MaxValue": max, "ScalingType": "Linear"}));
    json!({
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": "Hyperband",
            "StrategyConfig": {"HyperbandStrategyConfig": {"MaxResource": ROUNDS}},
            "HyperParameterTuningJobObjective": {
                "Type": if maximize { "Maximize" } else { "Minimize" }, "MetricName": format!("validation:{}", dataset.metric),
            },
            "ResourceLimits": {"MaxNumberOfTrainingJobs": TRIALS, "MaxParallelTrainingJobs": PARALLEL},
            "ParameterRanges": {"ContinuousParameterRanges": continuous, "IntegerParameterRanges": integer},
            "RandomSeed": SEED,
        },
        "TrainingJobDefinition": {
            "StaticHyperParameters": fixed,
            "AlgorithmSpecification": training["AlgorithmSpecification"],
            "RoleArn": training["RoleArn"],
            "InputDataConfig": training["InputDataConfig"],
            "OutputDataConfig": training["OutputDataConfig"],
            "ResourceConfig": training["ResourceConfig"],
            "StoppingCondition": training["StoppingCondition"],
        },
    })
}

/// Until it is over, or Ctrl-C stops it.
fn wait(house: &House, name: &str) -> Result<StudyDescription> {
    let mut progress = Progress::new();
    let mut stopped = false;
    loop {
        let description = house.client().sagemaker("DescribeHyperParameterTuningJob", &json!({"HyperParameterTuningJobName": name}))?;
        if matches!(description["HyperParameterTuningJobStatus"].as_str(), Some("Completed" | "Failed" | "Stopped")) {
            drop(progress);
            return Ok(fetch(house.client(), name, false)?);
        }
        if house.is_interrupted() && !stopped {
            stopped = true;
            progress.line("stopping");
            house.client().sagemaker("StopHyperParameterTuningJob", &json!({"HyperParameterTuningJobName": name}))?;
        }
        let counters = &description["TrainingJobStatusCounters"];
        let count = |name: &str| counters[name].as_u64().unwrap_or(0);
        progress.draw(&format!(
            "  {name}: {} of {TRIALS} trials over, {} running",
            count("Completed") + count("Stopped") + count("NonRetryableError"),
            count("InProgress")
        ));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn tell(dataset: &Dataset, before: &Training, study: &StudyDescription) -> Result<()> {
    let metric = dataset.metric;
    let last = before.curves.iter().find(|curve| curve.name == "validation").and_then(|curve| curve.points.last()).copied();
    let (trial, after) = best(study).ok_or_else(|| anyhow::anyhow!("the tuning job has no best trial"))?;
    let (run, full) = units(study);
    let billed: f64 = study.trials.iter().filter_map(|trial| trial.billable_seconds).sum();
    // What the trials that came to their end took, for each of them.
    let whole: Vec<f64> =
        study.trials.iter().filter(|trial| trial.resource() >= ROUNDS).filter_map(|trial| trial.billable_seconds).collect();
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let all = whole.iter().sum::<f64>() / whole.len().max(1) as f64 * study.trials.len() as f64;
    let in_full = if whole.is_empty() { String::new() } else { format!(" (all in full: about {all:.0})") };
    let wall = study.end_time.map_or(0.0, |end| end - study.creation_time);
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let share = 100.0 * run as f64 / full.max(1) as f64;
    let rows = [
        ["".to_owned(), "untuned".to_owned(), "Hyperband".to_owned()],
        [format!("validation {metric}"), last.map_or("-".to_owned(), |value| format!("{value:.5}")), format!("{after:.5}")],
        ["rounds run".to_owned(), format!("{ROUNDS}"), format!("{run} of {full} ({share:.0} %)")],
        ["billed seconds".to_owned(), format!("{:.2}", before.program_s), format!("{billed:.2}{in_full}")],
        ["wall time".to_owned(), format!("{:.2} s", before.submit_to_completed_s), format!("{wall:.2} s")],
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|[name, one, other]| vec![format!("  {name}"), one, other]).collect();
    show(&table(&rows))?;
    show(&format!("\n  best of {} trials: {}\n", study.trials.len(), setting(trial)))?;
    let rungs = rungs(study, 0);
    let parts: Vec<_> = rungs.iter().map(|rung| format!("{} of {} rounds", rung.reached, rung.resource)).collect();
    show(&format!("  trials that came so far: {}\n", parts.join(", ")))?;
    Ok(())
}
