//! The demo's second half: a search by Hyperband that sees the training and the validation rows.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use shoal_wire::StudyDescription;

use super::{
    dataset::Dataset,
    house::House,
    training::{self, Seen},
};
use crate::{
    output::{Progress, show},
    tuning::study::{fetch, rungs},
};

/// How many trials, and how many at once.
pub(super) const TRIALS: u32 = 30;
const PARALLEL: u32 = 4;

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

/// The hyperparameters that are searched.
pub(super) fn names() -> String {
    RANGES.iter().map(|(name, ..)| *name).chain(WHOLE.iter().map(|(name, ..)| *name)).collect::<Vec<_>>().join(", ")
}

/// Searches, and waits for the end.
pub(super) fn run(house: &House, dataset: &Dataset) -> Result<StudyDescription> {
    let name = format!("{}-hyperband", dataset.name);
    house.client().sagemaker("CreateHyperParameterTuningJob", &request(dataset, &name))?;
    let study = wait(house, &name)?;
    ensure!(
        study.hyper_parameter_tuning_job_status == "Completed",
        "the tuning job is {}: {}",
        study.hyper_parameter_tuning_job_status,
        study.message.as_deref().unwrap_or_default()
    );
    let parts: Vec<_> =
        rungs(&study, 0).iter().map(|rung| format!("{} of {} rounds", rung.reached, rung.resource)).collect();
    show(&format!("  trials that came so far: {}\n", parts.join(", ")))?;
    Ok(study)
}

fn request(dataset: &Dataset, name: &str) -> Value {
    let training = training::request(dataset, name, Seen::Train, 1);
    let continuous = RANGES.map(
        |(name, min, max, scaling)| json!({"Name": name, "MinValue": min, "MaxValue": max, "ScalingType": scaling}),
    );
    let integer =
        WHOLE.map(|(name, min, max)| json!({"Name": name, "MinValue": min, "MaxValue": max, "ScalingType": "Linear"}));
    json!({
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": "Hyperband",
            "StrategyConfig": {"HyperbandStrategyConfig": {"MaxResource": dataset.rounds()}},
            "HyperParameterTuningJobObjective": {
                "Type": if dataset.more_is_better() { "Maximize" } else { "Minimize" }, "MetricName": format!("validation:{}", dataset.metric),
            },
            "ResourceLimits": {"MaxNumberOfTrainingJobs": TRIALS, "MaxParallelTrainingJobs": PARALLEL},
            "ParameterRanges": {"ContinuousParameterRanges": continuous, "IntegerParameterRanges": integer},
            "RandomSeed": SEED,
        },
        "TrainingJobDefinition": {
            "StaticHyperParameters": training["HyperParameters"],
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
    let mut progress = Progress::on_stderr();
    let mut stopped = false;
    loop {
        let description = house
            .client()
            .sagemaker("DescribeHyperParameterTuningJob", &json!({"HyperParameterTuningJobName": name}))?;
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
