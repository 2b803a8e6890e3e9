//! Trials of a tuning job on one instance: what comes between one and the next, and what it costs
//! that they take turns, in memory or by way of a checkpoint. Nobody asks meanwhile how they are:
//! times are those of the log and of the journal.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use shoal_plane::{Event, Fact};
use shoal_store::{DataDir, Journal, SqliteJournal};

use crate::{
    server::{Kind, Server},
    tuning::run_one,
};
use shoal_cli::client::LogReader;

/// Trials of which one runs at a time.
const TURNS: u32 = 24;
/// Rounds of a whole one of those.
pub(super) const ROUNDS: u32 = 27;
const TIMEOUT: Duration = Duration::from_secs(170);
const POLL: Duration = Duration::from_millis(200);

/// Milliseconds from the last line of each trial to the first line of the next.
pub(super) fn one_after_the_other(server: &Server, trials: u32) -> Result<Vec<f64>> {
    let client = server.client();
    run(server, &request("one-by-one", "Random", &json!({}), trials + 1, 2))?;
    let mut lived = Vec::new();
    let of = json!({"HyperParameterTuningJobName": "one-by-one"});
    for trial in client.list("ListTrainingJobsForHyperParameterTuningJob", "TrainingJobSummaries", of, usize::MAX)? {
        let name = trial["TrainingJobName"].as_str().unwrap_or_default();
        let lines = LogReader::new(name).read(client)?;
        let times = || lines.iter().filter(|line| !line.message.starts_with("[shoal]")).map(|line| line.at_ms);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { bail!("{name} has said nothing") };
        lived.push((first, last));
    }
    lived.sort_unstable();
    // The first one made the instance.
    Ok(lived.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64).collect())
}

/// Milliseconds of each switch from a trial that pauses to one that goes on, from the core's order
/// to the first value that it hears. With memory for one instance what rests is ended, and goes on
/// from its checkpoint as another attempt; with more it rests frozen.
pub(super) fn turns(memory: &str, rows: &str) -> Result<Vec<f64>> {
    let mut server = Server::start_with(Kind::Real, None, &[("SHOAL_MEMORY", memory)])?;
    put_rows(&server, rows)?;
    let rungs = json!({"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": ROUNDS}});
    run(&server, &request("turns", "Hyperband", &rungs, TURNS, ROUNDS))?;
    server.kill();
    let dir = DataDir::open(&server.data_dir())?;
    let switches = switches(&SqliteJournal::open(&dir.journal_path())?)?;
    ensure!(switches.len() >= 3, "only {} trials went on after they had paused", switches.len());
    Ok(switches)
}

/// Where requests look for it.
pub(super) fn put_rows(server: &Server, rows: &str) -> Result<()> {
    server.client().create_bucket("bench")?;
    server.client().put_object("bench", "tiny/train.csv", &mut rows.as_bytes())
}

fn request(name: &str, strategy: &str, config: &Value, trials: u32, rounds: u32) -> Value {
    let source =
        json!({"S3DataType": "S3Prefix", "S3Uri": "s3://bench/tiny/", "S3DataDistributionType": "FullyReplicated"});
    let channel =
        |name: &str| json!({"ChannelName": name, "ContentType": "text/csv", "DataSource": {"S3DataSource": source}});
    let mut request = json!({
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "validation:logloss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": 1},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "eta", "MinValue": "0.001", "MaxValue": "1", "ScalingType": "Logarithmic"}]},
            "RandomSeed": 1,
        },
        "TrainingJobDefinition": {
            "AlgorithmSpecification": {"TrainingImage": "xgboost:latest", "TrainingInputMode": "File"},
            "RoleArn": "arn:aws:iam::123456789012:role/bench",
            "StaticHyperParameters":
                {"num_round": rounds.to_string(), "objective": "binary:logistic", "eval_metric": "logloss", "nthread": "1"},
            "InputDataConfig": [channel("train"), channel("validation")],
            "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
            "ResourceConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        },
    });
    if config.as_object().is_some_and(|config| !config.is_empty()) {
        request["HyperParameterTuningJobConfig"]["StrategyConfig"] = config.clone();
    }
    request
}

/// Creates a tuning job and waits for its end.
fn run(server: &Server, request: &Value) -> Result<()> {
    let until = Instant::now() + TIMEOUT;
    let in_time = &mut |it: &Value| {
        ensure!(
            Instant::now() < until,
            "the tuning job is still {}\n{}",
            it["HyperParameterTuningJobStatus"],
            server.said().unwrap_or_default()
        );
        Ok(())
    };
    run_one(server, request, POLL, in_time).map(drop)
}

fn switches(journal: &SqliteJournal) -> Result<Vec<f64>> {
    let (mut paused, mut resumed, mut switches) = (None, HashMap::new(), Vec::new());
    journal.events_after(0, &mut |_, bytes| {
        let Ok(Event { at, name: job, fact }) = Event::decode(bytes) else { return Ok(()) };
        match fact {
            Fact::TrialPaused { .. } => paused = Some(at.0),
            Fact::TrialResumed { .. } => resumed.extend(paused.take().map(|since| (job, since))),
            Fact::ObjectiveReported { .. } => {
                switches.extend(resumed.remove(&job).map(|since: u64| at.0.saturating_sub(since) as f64));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(switches)
}
