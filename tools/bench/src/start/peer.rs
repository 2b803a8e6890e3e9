//! A Python script's first line, beside Ray Train's.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::completed;
use crate::{
    report::{Goal, Line, line},
    server::{Server, temporary_dir},
};
use shoal_cli::{
    client::{LogReader, now_ms},
    output::Progress,
    watch,
};

/// Tells its own clock, so that neither polling nor the log's way is in the number.
const SCRIPT: &str = "import time\nprint(time.time())\n";

/// For longer than the measurement takes.
const KEPT_S: u32 = 3600;

/// Seconds to the first line.
#[derive(Debug, Default)]
struct Times {
    /// From the start of the server, or of Ray.
    cold: Vec<f64>,
    /// From the request, on a server that runs; from `fit()`, on a Ray that runs and has run one.
    warm: Vec<f64>,
    /// From the request, on an instance that a job before has kept.
    kept: Vec<f64>,
}

/// Takes both in turns, `runs` times each, the peer only if there is one.
pub(super) fn measure(peer: Option<&Path>, runs: usize, progress: &mut Progress) -> Result<Vec<Line>> {
    let (mut ours, mut theirs, mut version) = (Times::default(), Times::default(), String::new());
    for run in 1..=runs {
        progress.draw(&format!("a Python script's first line: run {run} of {runs}"));
        shoal(&mut ours)?;
        if let Some(python) = peer {
            progress.draw(&format!("Ray Train's first line: run {run} of {runs}"));
            version = ray(python, &mut theirs)?;
        }
    }
    let ratio =
        |ours: &[f64], theirs: &[f64]| theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect::<Vec<_>>();
    let (cold, warm) = (ratio(&ours.cold, &theirs.cold), ratio(&ours.warm, &theirs.warm));
    let mut lines = vec![line("start of the server to the first line of a Python script", ours.cold, "s", None)];
    if peer.is_some() {
        lines.push(line(
            format!("- Ray Train {version}: `ray.init()` to the worker's first line"),
            theirs.cold,
            "s",
            None,
        ));
        lines.push(line("- Ray Train's time against ours", cold, "times", None));
    }
    lines.push(line(
        "submit to the first line of a Python script, a new instance",
        ours.warm,
        "s",
        Some(Goal::AtMost(0.5)),
    ));
    if peer.is_some() {
        lines.push(line(
            format!("- Ray Train {version}: a second `fit()` to the worker's first line"),
            theirs.warm,
            "s",
            None,
        ));
        lines.push(line("- Ray Train's time against ours", warm, "times", None));
    }
    lines.push(line(
        "submit to the first line of a Python script, a kept instance",
        ours.kept,
        "s",
        Some(Goal::AtMost(0.2)),
    ));
    Ok(lines)
}

fn shoal(times: &mut Times) -> Result<()> {
    let began = now_ms();
    let server = Server::start()?;
    server.client().create_bucket("bench")?;
    server.client().put_object("bench", "code/first.py", &mut SCRIPT.as_bytes())?;
    times.cold.push(first_line(&server, "cold", 0)? - seconds(began));
    for (name, keep_s, of) in
        [("warm", 0, Some(&mut times.warm)), ("keeps", KEPT_S, None), ("kept", KEPT_S, Some(&mut times.kept))]
    {
        let began = now_ms();
        let at = first_line(&server, name, keep_s)?;
        if let Some(of) = of {
            of.push(at - seconds(began));
        }
    }
    Ok(())
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

/// When it was, in seconds of this machine's clock.
fn first_line(server: &Server, name: &str, keep_s: u32) -> Result<f64> {
    let client = server.client();
    client.sagemaker("CreateTrainingJob", &request(name, keep_s))?;
    let description = completed(client, name)?;
    ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
    let lines = LogReader::new(name).read(client)?;
    lines.iter().find_map(|event| event.message.parse().ok()).context("the script printed no time")
}

fn request(name: &str, keep_s: u32) -> Value {
    json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File"},
        "HyperParameters": {"sagemaker_program": "first.py", "sagemaker_submit_directory": "/opt/ml/input/data/code"},
        "InputDataConfig": [{
            "ChannelName": "code",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bench/code/"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": keep_s},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    })
}

/// The peer's turn; gives its version.
fn ray(python: &Path, times: &mut Times) -> Result<String> {
    let dir = temporary_dir(None)?;
    let script = dir.path().join("bench_ray_train.py");
    std::fs::write(&script, include_str!("../../programs/bench_ray_train.py"))
        .context("could not write the peer's script")?;
    let out = Command::new(python)
        .arg(&script)
        .arg(dir.path())
        .output()
        .with_context(|| format!("could not run {}", python.display()))?;
    let said = String::from_utf8_lossy(&out.stdout);
    let word = |name: &str| said.split_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
    let number = |name: &str| {
        let number = word(name).and_then(|number| number.parse::<f64>().ok()).filter(|_| out.status.success());
        number.with_context(|| {
            format!("Ray Train failed (it needs ray[train]):\n{said}{}", String::from_utf8_lossy(&out.stderr))
        })
    };
    times.cold.push(number("cold=")?);
    times.warm.push(number("warm=")?);
    Ok(word("version=").unwrap_or_default())
}
