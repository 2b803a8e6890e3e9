//! `cargo xtask bench waits`: how long after a job's end each client's call returns that waits for
//! it, in the environment of `shoal exec`. And what users of AWS's own clients wait for in all, for
//! `cargo xtask bench start`.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::{
    machine,
    report::{self, Goal, number},
    server::{Server, shoal},
    start::host_job,
};
use shoal_cli::{
    client::{Client, now_ms},
    demo::dataset::{Dataset, to_csv},
    exit::Exit,
    output::{Progress, show},
};

/// From the end to the return.
const GOAL: Goal = Goal::AtMost(1.5);
/// `aws` has no call that creates a job and waits for it: its job comes before, and is so much
/// longer.
const HEAD_START_S: u32 = 20;
/// The programs, which print when they returned.
const PROGRAMS: [(&str, &str); 3] = [
    ("bench_waits_v2.py", include_str!("../programs/bench_waits_v2.py")),
    ("bench_waits_v3.py", include_str!("../programs/bench_waits_v3.py")),
    ("bench_waits_boto3.py", include_str!("../programs/bench_waits_boto3.py")),
];

/// Arguments of `cargo xtask bench waits`.
#[derive(Debug, Args)]
#[command(
    after_help = "For each length all clients wait at once, each for a job of its own. The end is the job's own, \
                  TrainingEndTime; the return \
                        is told by the client's program, or is the end of the command."
)]
pub(crate) struct WaitsArgs {
    /// Lengths of the jobs.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "5,15,90")]
    lengths: Vec<u32>,
    /// A Python with the SageMaker SDK 2, and `aws` beside it.
    #[arg(long, value_name = "PYTHON")]
    sdk: Option<PathBuf>,
    /// A Python with the SageMaker SDK 3.
    #[arg(long, value_name = "PYTHON")]
    sdk_v3: Option<PathBuf>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The client and its arguments, for a job and its seconds.
type Words = dyn Fn(&str, &str) -> Vec<OsString> + Sync;

/// One client's call.
struct Way {
    /// For people, and as part of a name.
    what: &'static str,
    name: &'static str,
    /// The client creates no job: there is one before it comes, which is so many seconds longer.
    head_start_s: Option<u32>,
    /// It prints when its call returned; else the end of its process counts.
    says_when: bool,
    command: Box<Words>,
}

/// Measures and reports.
pub(crate) fn run(args: &WaitsArgs) -> Result<Exit> {
    let dir = tempfile::tempdir().context("could not make a temporary directory")?;
    for (name, text) in PROGRAMS {
        fs::write(dir.path().join(name), text)?;
    }
    let ways = ways(args, dir.path())?;
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let mut columns = Vec::new();
    for length in &args.lengths {
        progress.draw(&format!("{} clients wait for jobs of {length} s", ways.len()));
        let server = Server::start()?;
        server.client().create_bucket("bench")?;
        let server = &server;
        let measured: Vec<Result<f64>> = thread::scope(|scope| {
            let started: Vec<_> = ways.iter().map(|way| scope.spawn(move || measure(server, way, *length))).collect();
            started
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a measurement panicked")))
                .collect()
        });
        columns.push(measured.into_iter().collect::<Result<Vec<_>>>()?);
    }
    drop(progress);
    let lengths: Vec<String> = args.lengths.iter().map(|length| format!("a job of {length} s")).collect();
    let header: Vec<&str> = ["client"].into_iter().chain(lengths.iter().map(String::as_str)).chain(["goal"]).collect();
    let row = |(at, way): (usize, &Way)| -> Vec<String> {
        let values: Vec<f64> = columns.iter().map(|column: &Vec<f64>| column[at]).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let cells = values.iter().map(|value| number(*value, "s"));
        [way.what.to_owned()].into_iter().chain(cells).chain([GOAL.verdict(most, "s")]).collect()
    };
    let rows: Vec<Vec<String>> = ways.iter().enumerate().map(row).collect();
    let intro = format!(
        "{machine}. From a job's end to the return of the call that waits for it, {} clients at once.",
        ways.len()
    );
    let section = report::table("waits", &intro, &header, &rows);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

/// The clients that are there.
fn ways(args: &WaitsArgs, programs: &Path) -> Result<Vec<Way>> {
    let script = |what, name, python: &Path, program: &str, way: &'static str| {
        let start = [python.as_os_str().to_owned(), programs.join(program).into_os_string()];
        let command = move |job: &str, seconds: &str| -> Vec<OsString> {
            start.iter().cloned().chain([way, job, seconds].map(OsString::from)).collect()
        };
        Way { what, name, head_start_s: None, says_when: true, command: Box::new(command) }
    };
    let ours = shoal()?.into_os_string();
    let of_ours = |what, name, head_start_s, words: &'static [&'static str]| {
        let ours = ours.clone();
        let command = move |job: &str, seconds: &str| -> Vec<OsString> {
            let word = |word: &&str| OsString::from(word.replace("JOB", job).replace("SECONDS", seconds));
            [ours.clone()].into_iter().chain(words.iter().map(word)).collect()
        };
        Way { what, name, head_start_s, says_when: false, command: Box::new(command) }
    };
    let mut ways = vec![
        of_ours("`shoal train`", "train", None, &["train", "--name", "JOB", "--", "sleep", "SECONDS"]),
        of_ours("`shoal jobs logs --follow`", "follow", Some(0), &["jobs", "logs", "--follow", "JOB"]),
    ];
    if let Some(python) = &args.sdk {
        for (what, way) in [
            ("SDK v2 `Estimator.fit()`", "fit"),
            ("SDK v2 `Estimator.fit(logs=\"None\")`", "fit-without-logs"),
            ("SDK v2 `Estimator.logs()`", "logs"),
            ("SDK v2 `HyperparameterTuner.wait()`", "tuner"),
        ] {
            ways.push(script(what, way, python, PROGRAMS[0].0, way));
        }
        ways.push(script("boto3's waiter", "boto3", python, PROGRAMS[2].0, "training_job_completed_or_stopped"));
        let aws = python.with_file_name("aws");
        ensure!(aws.is_file(), "there is no `aws` beside {}", python.display());
        let command = move |job: &str, _: &str| -> Vec<OsString> {
            let words = ["sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", job];
            [aws.clone().into_os_string()].into_iter().chain(words.map(OsString::from)).collect()
        };
        ways.push(Way {
            what: "`aws sagemaker wait`",
            name: "aws",
            head_start_s: Some(HEAD_START_S),
            says_when: false,
            command: Box::new(command),
        });
    }
    if let Some(python) = &args.sdk_v3 {
        for (what, way) in
            [("SDK v3 `TrainingJob.wait()`", "wait"), ("SDK v3 `TrainingJob.wait(logs=True)`", "wait-with-logs")]
        {
            ways.push(script(what, way, python, PROGRAMS[1].0, way));
        }
    }
    Ok(ways)
}

/// Seconds from the end of its job to its return.
fn measure(server: &Server, way: &Way, length: u32) -> Result<f64> {
    let (job, seconds) = (format!("{}-{length}", way.name), length.to_string());
    if let Some(more) = way.head_start_s {
        server.client().sagemaker("CreateTrainingJob", &host_job(&job, &["sleep", &(length + more).to_string()]))?;
    }
    let command = (way.command)(&job, &seconds);
    let output = exec(server, Path::new(&command[0]), command[1..].iter().map(OsString::as_os_str))?;
    let ended = now_ms() as f64 / 1000.0;
    ensure!(output.status.success(), "{} failed: {}", way.what, String::from_utf8_lossy(&output.stderr));
    let returned = if way.says_when { number_after(&output, "returned") } else { Some(ended) };
    Ok(returned.with_context(|| format!("{} did not say when it returned", way.what))? - end(server.client(), &job)?)
}

/// When a training or a tuning job ended, in seconds since the epoch.
fn end(client: &Client, job: &str) -> Result<f64> {
    let description = match client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": job})) {
        Err(error) if error.is_not_found() => {
            client.sagemaker("DescribeHyperParameterTuningJob", &json!({"HyperParameterTuningJobName": job}))?
        }
        found => found?,
    };
    let end =
        ["TrainingEndTime", "HyperParameterTuningEndTime"].into_iter().find_map(|name| description[name].as_f64());
    end.with_context(|| format!("{job} has no end: {}", description.get("FailureReason").unwrap_or(&Value::Null)))
}

/// SDK v2: the whole call as a user waits for it, imports aside.
pub(super) fn fit(python: &Path, dataset: &Dataset) -> Result<f64> {
    let server = Server::start()?;
    let dir = tempfile::tempdir().context("could not make a temporary directory")?;
    let (script, rows) = (dir.path().join("bench_fit.py"), dir.path().join("train.csv"));
    fs::write(&script, include_str!("../programs/bench_fit.py"))?;
    fs::write(&rows, to_csv(&dataset.train, true))?;
    let image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1".to_owned();
    let hyperparameters = dataset.hyperparameters.iter().map(|(name, value)| format!("{name}={value}"));
    let arguments: Vec<String> = [rows.display().to_string(), image].into_iter().chain(hyperparameters).collect();
    seconds(&exec(&server, python, [script.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)))?)
}

/// SDK v3: from creation to the end of its wait, imports aside; a job of half a second.
pub(super) fn sdk_v3(python: &Path) -> Result<f64> {
    let server = Server::start()?;
    server.client().create_bucket("bench")?;
    let dir = tempfile::tempdir().context("could not make a temporary directory")?;
    let script = dir.path().join(PROGRAMS[1].0);
    fs::write(&script, PROGRAMS[1].1)?;
    seconds(&exec(
        &server,
        python,
        [script.as_os_str()].into_iter().chain(["wait-with-logs", "bench-v3", "0.5"].map(OsStr::new)),
    )?)
}

/// The AWS CLI: from creation to the end of the command that waits.
pub(super) fn aws_wait(aws: &Path) -> Result<f64> {
    let server = Server::start()?;
    server.client().create_bucket("bench")?;
    let started = Instant::now();
    server.client().sagemaker("CreateTrainingJob", &host_job("awaited", &["sleep", "0.5"]))?;
    let arguments = ["sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "awaited"];
    let output = exec(&server, aws, arguments.map(OsStr::new).into_iter())?;
    let taken = started.elapsed().as_secs_f64();
    ensure!(output.status.success(), "aws sagemaker wait failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(taken)
}

fn exec<'a>(server: &Server, program: &Path, arguments: impl Iterator<Item = &'a OsStr>) -> Result<Output> {
    let mut command = Command::new(shoal()?);
    command.args(["exec", "--data-dir"]).arg(server.data_dir()).arg("--").arg(program).args(arguments);
    command.output().with_context(|| format!("could not run {}", program.display()))
}

/// What a script has measured.
fn seconds(output: &Output) -> Result<f64> {
    match number_after(output, "seconds") {
        Some(seconds) if output.status.success() => Ok(seconds),
        _ => bail!("the client failed: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// The number of the line that starts with this word.
fn number_after(output: &Output, word: &str) -> Option<f64> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
}
