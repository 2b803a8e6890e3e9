//! What users of AWS's own clients wait for, each with a server of its own and in the environment of `shoal exec`.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use super::{server::Server, start::host_job};
use crate::demo::dataset::{Dataset, to_csv};

/// What a job of half a second runs.
const HALF_A_SECOND: [&str; 2] = ["sleep", "0.5"];

/// SDK v2: the whole call as a user waits for it, imports aside.
pub(super) fn fit(python: &Path, dataset: &Dataset) -> Result<f64> {
    let server = Server::start()?;
    let dir = tempfile::tempdir().context("could not make a temporary directory")?;
    let (script, rows) = (dir.path().join("bench_fit.py"), dir.path().join("train.csv"));
    fs::write(&script, include_str!("../../python/bench_fit.py"))?;
    fs::write(&rows, to_csv(&dataset.train, true))?;
    let image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1".to_owned();
    let hyperparameters = dataset.hyperparameters.iter().map(|(name, value)| format!("{name}={value}"));
    let arguments: Vec<String> = [rows.display().to_string(), image].into_iter().chain(hyperparameters).collect();
    seconds(&exec(&server, python, [script.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)))?)
}

/// SDK v3: from creation to the end of its wait, imports aside.
pub(super) fn sdk_v3(python: &Path) -> Result<f64> {
    let server = Server::start()?;
    server.client().create_bucket("bench")?;
    let dir = tempfile::tempdir().context("could not make a temporary directory")?;
    let script = dir.path().join("bench_wait_v3.py");
    fs::write(&script, include_str!("../../python/bench_wait_v3.py"))?;
    seconds(&exec(&server, python, [script.as_os_str()].into_iter().chain(HALF_A_SECOND.map(OsStr::new)))?)
}

/// The AWS CLI: from creation to the end of the command that waits.
pub(super) fn aws_wait(aws: &Path) -> Result<f64> {
    let server = Server::start()?;
    server.client().create_bucket("bench")?;
    let started = Instant::now();
    server.client().sagemaker("CreateTrainingJob", &host_job("awaited", &HALF_A_SECOND))?;
    let arguments = ["sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "awaited"];
    let output = exec(&server, aws, arguments.map(OsStr::new).into_iter())?;
    let taken = started.elapsed().as_secs_f64();
    ensure!(output.status.success(), "aws sagemaker wait failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(taken)
}

fn exec<'a>(server: &Server, program: &Path, arguments: impl Iterator<Item = &'a OsStr>) -> Result<Output> {
    let mut command = Command::new(std::env::current_exe().context("could not find this executable")?);
    command.args(["exec", "--data-dir"]).arg(server.data_dir()).arg("--").arg(program).args(arguments);
    command.output().with_context(|| format!("could not run {}", program.display()))
}

/// What a script has measured.
fn seconds(output: &Output) -> Result<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix("seconds ")?.parse().ok()) {
        Some(seconds) if output.status.success() => Ok(seconds),
        _ => bail!("the client failed: {}", String::from_utf8_lossy(&output.stderr)),
    }
}
