//! `cargo xtask bench tuning`: what the control plane of tuning jobs costs, with training jobs that
//! are nearly nothing.

mod delays;
mod peer;
mod study;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{
    machine,
    report::{self, Line},
    server::Server,
};
use shoal_cli::{
    exit::Exit,
    output::{Progress, show},
};

/// Arguments of `cargo xtask bench tuning`.
#[derive(Debug, Args)]
pub(crate) struct TuningArgs {
    /// Trials of the large study, whose agents are played; 0 leaves it out.
    #[arg(long, default_value_t = 100_000)]
    trials: u32,
    /// How many of them run at once, 1000 at most.
    #[arg(long, default_value_t = 1000)]
    parallel: u32,
    /// How many pages of each kind are timed.
    #[arg(long, default_value_t = 500)]
    calls: usize,
    /// Runs of the small studies on real agents; 0 leaves them out.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A Python with `ray[tune]`: runs 100 trials that do nothing there, too.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Measures and reports.
pub(crate) fn run(args: &TuningArgs) -> Result<Exit> {
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let mut lines: Vec<Line> = Vec::new();
    if args.runs > 0 {
        delays::measure(args.runs, &mut progress, &mut lines)?;
        peer::measure(args, &mut progress, &mut lines)?;
    }
    if args.trials > 0 {
        study::measure(args, &mut progress, &mut lines)?;
    }
    drop(progress);
    let intro = format!(
        "{machine}.\n\nDelays: trials of `shoal/host` that print a value with the time every 20 ms, on real agents, {} \
         at once; when a value was judged and when a trial had \
         ended is what the journal says, when the next one ran what it printed itself. Trials that do nothing: random \
         search, each one prints a value and \
         ends, {} at once, from the request to the tuning job's end. The large study: {} trials, {} at once, on a \
         server whose launcher plays their agents over the real socket; \
         a decision is the tuner's own time for one suggestion or judgement",
        delays::PARALLEL,
        peer::PARALLEL,
        args.trials,
        args.parallel,
    );
    let section = report::markdown("tuning: control plane", &intro, &lines);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

/// A request for a tuning job over one number, `x` in [0, 1], that minimises `loss`, of trials that
/// run a program below `s3://bench/code/`.
fn request(name: &str, strategy: &str, trials: u32, parallel: u32, program: &str) -> Value {
    json!({
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": parallel},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}]},
            "RandomSeed": 1,
        },
        "TrainingJobDefinition": {
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=(\S+);"}]},
            "RoleArn": "arn:aws:iam::123456789012:role/bench",
            "StaticHyperParameters": {"sagemaker_program": program, "sagemaker_submit_directory": "/opt/ml/input/data/code"},
            "InputDataConfig": [{
                "ChannelName": "code",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bench/code/"}}}],
            "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
            "ResourceConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        },
    })
}

/// Puts a program where requests look for it.
fn put_program(server: &Server, name: &str, text: &str) -> Result<()> {
    server.client().create_bucket("bench")?;
    server.client().put_object("bench", &format!("code/{name}"), &mut text.as_bytes())
}

/// Creates a tuning job and waits for its end; `look` sees each description.
pub(super) fn run_one(
    server: &Server,
    request: &Value,
    every: Duration,
    look: &mut dyn FnMut(&Value) -> Result<()>,
) -> Result<Value> {
    server.client().sagemaker("CreateHyperParameterTuningJob", request)?;
    let name = json!({"HyperParameterTuningJobName": request["HyperParameterTuningJobName"]});
    loop {
        let it = server.client().sagemaker("DescribeHyperParameterTuningJob", &name)?;
        look(&it)?;
        match it["HyperParameterTuningJobStatus"].as_str() {
            Some("InProgress" | "Stopping") => thread::sleep(every),
            Some("Completed") => return Ok(it),
            other => bail!(
                "the tuning job ended as {other:?}: {}\n{}",
                it["FailureReason"],
                server.said().unwrap_or_default()
            ),
        }
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
