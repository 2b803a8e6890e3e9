//! `cargo xtask bench start`.

mod peer;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::{
    machine,
    report::{self, Goal},
    server::Server,
    titanic, waits,
};
use shoal_cli::{
    client::{Client, LogReader, now_ms},
    demo::{
        dataset::{Dataset, to_csv},
        training::{self, Seen},
    },
    exit::Exit,
    output::{Progress, show},
    setup, watch,
};

/// How often the client asks, as the issue of measuring has it.
const POLL: Duration = Duration::from_millis(10);

/// Jobs that are under way at once while memory is measured.
const AT_ONCE: usize = 32;

/// Arguments of `cargo xtask bench start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Directory with titanic/titanic_train.csv and titanic_test.csv.
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// How often each time is taken, each with a server of its own.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// How many ended jobs the idle server has seen.
    #[arg(long, default_value_t = 1000)]
    jobs: usize,
    /// A Python with the SageMaker SDK 2: measures its fit(), too.
    #[arg(long, value_name = "PYTHON")]
    sdk: Option<PathBuf>,
    /// A Python with the SageMaker SDK 3: measures its wait(), too.
    #[arg(long, value_name = "PYTHON")]
    sdk_v3: Option<PathBuf>,
    /// A Python with `ray[train]`: measures the first line of its worker, too, in turns with ours.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Seconds of a clean build that a person has measured, for the report.
    #[arg(long, value_name = "SECONDS")]
    build_s: Option<f64>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Measures and reports.
pub(crate) fn run(args: &StartArgs) -> Result<Exit> {
    setup::fetch(&shoal_algos::xgboost::LIBRARY)?;
    let machine = machine::describe();
    let dataset = titanic::load(&args.data.join("titanic"))?;
    let mut progress = Progress::on_stderr();
    let mut lines = Vec::new();
    let mut repeat = |what: &str, unit, goal, runs: usize, measure: &dyn Fn() -> Result<f64>| -> Result<()> {
        let mut values = Vec::new();
        for run in 1..=runs {
            progress.draw(&format!("{what}: run {run} of {runs}"));
            values.push(measure()?);
        }
        lines.push(report::line(what, values, unit, goal));
        Ok(())
    };
    repeat("submit to Completed, Titanic XGBoost, cold", "s", Some(Goal::AtMost(0.5)), args.runs, &|| cold(&dataset))?;
    repeat("submit to the first line of a `shoal/host` program, cold", "s", None, args.runs, &first_line)?;
    if let Some(python) = &args.sdk {
        repeat(
            "SDK v2 `fit(logs=\"All\")`, Titanic XGBoost, cold",
            "s",
            Some(Goal::AtMost(3.0)),
            args.runs.min(3),
            &|| waits::fit(python, &dataset),
        )?;
        let aws = python.with_file_name("aws");
        repeat(
            "`aws sagemaker wait` for a job of half a second, the start of `aws` included",
            "s",
            None,
            args.runs.min(5),
            &|| waits::aws_wait(&aws),
        )?;
    }
    if let Some(python) = &args.sdk_v3 {
        let what = "SDK v3 `TrainingJob.create` and `wait(logs=True)`, a job of half a second";
        repeat(what, "s", None, args.runs.min(5), &|| waits::sdk_v3(python))?;
    }
    let what = format!("memory of the idle server after {} ended jobs", args.jobs);
    repeat(&what, "MB", Some(Goal::AtMost(50.0)), 1, &|| memory(args.jobs))?;
    if let Some(seconds) = args.build_s {
        repeat("clean release build", "s", None, 1, &|| Ok(seconds))?;
    }
    lines.extend(peer::measure(args.peer.as_deref(), args.runs, &mut progress)?);
    drop(progress);
    let section = report::markdown("start", &machine, &lines);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

/// A new server, and the first job of its life, asked for every 10 ms; then its log and model are
/// looked at.
fn cold(dataset: &Dataset) -> Result<f64> {
    let server = Server::start()?;
    let client = server.client();
    training::upload(client, dataset, 1)?;
    let request = training::request(dataset, "cold", Seen::Train, 1);
    let started = Instant::now();
    client.sagemaker("CreateTrainingJob", &request)?;
    let description = completed(client, "cold")?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
    let lines = LogReader::new("cold").read(client)?;
    let rounds = lines.iter().filter(|event| event.message.contains("#011validation-logloss:")).count();
    ensure!(rounds == 100, "the log has {rounds} rounds instead of 100");
    let predictions =
        shoal_algos::xgboost::predict(&training::model(client, "cold")?, &to_csv(&dataset.validation, false))?;
    ensure!(predictions.len() == dataset.validation.len(), "the model predicts {} rows", predictions.len());
    Ok(seconds)
}

fn completed(client: &Client, name: &str) -> Result<Value> {
    loop {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}))?;
        if watch::is_over(&description) {
            return Ok(description);
        }
        thread::sleep(POLL);
    }
}

/// The program tells its own clock, so that no polling is in the number.
fn first_line() -> Result<f64> {
    let server = Server::start()?;
    let client = server.client();
    client.create_bucket("bench")?;
    let submitted = now_ms();
    client.sagemaker("CreateTrainingJob", &host_job("first-line", &["date", "+%s%N"]))?;
    let description = completed(client, "first-line")?;
    ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
    let lines = LogReader::new("first-line").read(client)?;
    let nanoseconds: f64 =
        lines.iter().find_map(|event| event.message.parse().ok()).context("the program printed no time")?;
    Ok(nanoseconds / 1e9 - submitted as f64 / 1e3)
}

pub(super) fn host_job(name: &str, command: &[&str]) -> Value {
    json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": command},
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    })
}

/// Megabytes (10^6 bytes) of a server that has run so many small jobs and has nothing to do.
fn memory(jobs: usize) -> Result<f64> {
    let server = Server::start()?;
    let client = server.client();
    client.create_bucket("bench")?;
    let mut running: Vec<String> = Vec::new();
    for number in 0..jobs {
        while running.len() >= AT_ONCE {
            retire(client, &mut running)?;
        }
        let name = format!("small-{number}");
        client.sagemaker("CreateTrainingJob", &host_job(&name, &["true"]))?;
        running.push(name);
    }
    while !running.is_empty() {
        retire(client, &mut running)?;
    }
    // Instances are released after their jobs are over.
    thread::sleep(Duration::from_secs(2));
    let bytes = machine::resident_bytes(server.pid()).context("the server's memory cannot be read")?;
    Ok(bytes as f64 / 1e6)
}

/// Takes the jobs that are over off the list; one of them failing is an error.
fn retire(client: &Client, running: &mut Vec<String>) -> Result<()> {
    thread::sleep(POLL);
    let mut still = Vec::new();
    for name in running.drain(..) {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}))?;
        if watch::is_over(&description) {
            ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
        } else {
            still.push(name);
        }
    }
    *running = still;
    Ok(())
}
