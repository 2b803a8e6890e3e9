//! `cargo xtask bench xgboost`: a distributed training through this server against xgboost.dask
//! with the same library, in turns.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    machine,
    report::{self, Goal, cell},
    server::{Kind, Server, temporary_dir},
    spread::Spread,
};
use shoal_cli::{
    client::LogReader,
    exit::Exit,
    output::{Progress, show},
    watch,
};

/// Instances, and the peer's workers; one thread each.
const WORKERS: usize = 2;
/// What `cargo xtask bench` installs.
const PEER: &str = ".cache/shoal/peers/dask-xgboost-3.2.0/bin/python";
/// How far two losses of the same data and parameters may lie apart: both sides cut features by
/// sketches of their own parts.
const TOLERANCE: f64 = 0.01;

/// Arguments of `cargo xtask bench xgboost`.
#[derive(Debug, Args)]
pub(crate) struct XgboostArgs {
    /// Training rows of the large job; a fifth as many validate it.
    #[arg(long, default_value_t = 500_000)]
    rows: usize,
    /// Features of the large job.
    #[arg(long, default_value_t = 50)]
    features: usize,
    /// Boosting rounds of the large job.
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Training rows of the small job, which has 20 features and 30 rounds.
    #[arg(long, default_value_t = 50_000)]
    small_rows: usize,
    /// Pairs of runs, the other side first in every second one.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A Python with xgboost, dask, distributed and pandas; its libxgboost is used by both sides.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// A training job of both sides.
struct Work {
    name: &'static str,
    rows: usize,
    features: usize,
    rounds: usize,
}

/// What one side took, by run.
#[derive(Default)]
struct Times {
    /// From submission to Completed; the peer: from a cluster that is up to a model that is saved.
    work: Spread,
    /// The peer's process from its start to its end.
    whole: Spread,
    /// Of all processes.
    cpu: Spread,
    /// Of our training programs alone, from their start to their end.
    program: Spread,
}

/// Measures and reports.
pub(crate) fn run(args: &XgboostArgs) -> Result<Exit> {
    let machine = machine::describe();
    let python = peer(args.peer.as_deref())?;
    let library = library_of(&python)?;
    let mut progress = Progress::on_stderr();
    let mut rows = Vec::new();
    for work in [
        Work { name: "large", rows: args.rows, features: args.features, rounds: args.rounds },
        Work { name: "small", rows: args.small_rows, features: 20, rounds: 30 },
    ] {
        let data = temporary_dir(None)?;
        progress.draw(&format!("{}: making the data", work.name));
        make(&work, data.path())?;
        let (mut ours, mut theirs) = (Times::default(), Times::default());
        for run in 1..=args.runs {
            let mut losses = (0.0, 0.0);
            for turn in [run % 2 == 1, run % 2 == 0] {
                progress.draw(&format!(
                    "{}: pair {run} of {}, {}",
                    work.name,
                    args.runs,
                    if turn { "Shoal" } else { "xgboost.dask" }
                ));
                if turn {
                    losses.0 = train(&work, data.path(), &library, &mut ours)?;
                } else {
                    losses.1 = dask(&work, data.path(), &python, &mut theirs)?;
                }
            }
            let (own, other) = losses;
            ensure!(
                (own - other).abs() <= TOLERANCE * other,
                "validation losses {own} and {other}: the two sides did not learn the same"
            );
        }
        rows.extend(lines(&work, &ours, &theirs));
    }
    drop(progress);
    let intro = format!(
        "{machine}.\n\nThe same libxgboost ({}) on both sides, {WORKERS} workers of one thread each, hist, depth 6, \
         the same CSV files, one per worker, \
         made from a seed; training and validation loss in every round. Shoal: a job of {WORKERS} instances from \
         CreateTrainingJob to Completed, with its \
         channels in S3, sandboxes, logs and model upload. The peer: xgboost.dask with a DaskQuantileDMatrix on a \
         LocalCluster, from the \
         cluster's being up to the saved model, and with its start-up (imports, cluster) and end. Validation losses \
         agree within {} %. Pairs in turns: {}.",
        version_of(&python)?,
        TOLERANCE * 100.0,
        args.runs
    );
    let header = ["what", "Shoal", "xgboost.dask 3.2.0", "ratio of medians", "goal"];
    let section = report::table("xgboost", &intro, &header, &rows);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn lines(work: &Work, ours: &Times, theirs: &Times) -> Vec<Vec<String>> {
    let what = format!("{} x {}, {} rounds", work.rows, work.features, work.rounds);
    let row = |more: &str, ours: &Spread, theirs: &Spread, goal: Option<f64>| {
        let ratio = theirs.median() / ours.median();
        let goal = goal.map_or_else(String::new, |goal| Goal::AtLeast(goal).verdict(ratio, "times"));
        vec![format!("{what}: {more}"), cell(ours, "s"), cell(theirs, "s"), format!("{ratio:.2}"), goal]
    };
    let goal = (work.name == "large").then_some(1.6);
    vec![
        row("wall, the peer's cluster being up", &ours.work, &theirs.work, goal),
        row("wall, with the peer's start-up", &ours.work, &theirs.whole, None),
        row("wall of our training program alone", &ours.program, &theirs.work, None),
        row("CPU of all processes", &ours.cpu, &theirs.cpu, None),
    ]
}

/// The peer's Python.
fn peer(named: Option<&Path>) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let python = named.map_or_else(|| home.join(PEER), Path::to_owned);
    ensure!(
        python.is_file(),
        "there is no {}: `cargo xtask bench` installs the peer (python3 -m venv, then pip install xgboost-cpu==3.2.0 \
         'dask[dataframe]' distributed), or name \
         a Python that has them by --peer",
        python.display()
    );
    Ok(python)
}

fn ask(python: &Path, code: &str) -> Result<String> {
    let output = Command::new(python)
        .args(["-c", code])
        .output()
        .with_context(|| format!("could not run {}", python.display()))?;
    ensure!(
        output.status.success(),
        "{} has no xgboost: {}",
        python.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn library_of(python: &Path) -> Result<String> {
    ask(python, "import xgboost.libpath; print(xgboost.libpath.find_lib_path()[0])")
}

fn version_of(python: &Path) -> Result<String> {
    ask(python, "import xgboost; print(xgboost.__version__)")
}

/// Rows from a seed: a label that follows from some of the features and from noise, a file per
/// worker.
fn make(work: &Work, dir: &Path) -> Result<()> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for (name, rows) in [("train", work.rows), ("validation", work.rows / 5)] {
        for worker in 0..WORKERS {
            let mut text = String::new();
            for _ in 0..rows / WORKERS {
                let features: Vec<f64> = (0..work.features).map(|_| 2.0 * uniform() - 1.0).collect();
                let signal = features[0] * features[1] + 0.5 * features[2] - 0.3 * features[3 % work.features].abs();
                let label = u8::from(signal + 0.4 * (uniform() - 0.5) > -0.1);
                write!(text, "{label}")?;
                features.iter().try_for_each(|value| write!(text, ",{value:.5}"))?;
                text.push('\n');
            }
            fs::write(dir.join(format!("{name}-{worker}.csv")), text)?;
        }
    }
    Ok(())
}

fn parameters(work: &Work) -> Vec<(&'static str, String)> {
    let of = |text: &str| text.to_owned();
    vec![
        ("num_round", work.rounds.to_string()),
        ("objective", of("binary:logistic")),
        ("eval_metric", of("logloss")),
        ("max_depth", of("6")),
        ("eta", of("0.3")),
        ("tree_method", of("hist")),
        ("nthread", of("1")),
    ]
}

/// A job through a server of its own; returns its last validation loss.
fn train(work: &Work, data: &Path, library: &str, times: &mut Times) -> Result<f64> {
    let server = Server::start_with(Kind::Real, None, &[("XGB_LIB", library)])?;
    let client = server.client();
    client.create_bucket("bench")?;
    for name in ["train", "validation"] {
        for worker in 0..WORKERS {
            let mut file = fs::File::open(data.join(format!("{name}-{worker}.csv")))?;
            client.put_object("bench", &format!("data/{name}/{worker}.csv"), &mut file)?;
        }
    }
    let channel = |name: &str| {
        let uri = format!("s3://bench/data/{name}/");
        let source = json!({"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "ShardedByS3Key"});
        json!({"ChannelName": name, "ContentType": "text/csv", "DataSource": {"S3DataSource": source}})
    };
    let request = json!({
        "TrainingJobName": work.name,
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": {"TrainingImage": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "TrainingInputMode": "File"},
        "HyperParameters": parameters(work).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>(),
        "InputDataConfig": [channel("train"), channel("validation")],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": WORKERS, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    });
    let before = machine::cpu_s(server.pid()).context("the server's CPU time cannot be read")?;
    let started = Instant::now();
    client.sagemaker("CreateTrainingJob", &request)?;
    let description = loop {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": work.name}))?;
        if watch::is_over(&description) {
            break description;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let seconds = started.elapsed().as_secs_f64();
    ensure!(description["TrainingJobStatus"] == "Completed", "{}", watch::summary(&description));
    times.work.0.push(seconds);
    let at = |field: &str| description[field].as_f64().with_context(|| format!("the description has no {field}"));
    times.program.0.push(at("TrainingEndTime")? - at("TrainingStartTime")?);
    // The instances' time is the server's once it has waited for its agents.
    shoal_cli::serve::wait_for_release(&server.data_dir());
    thread::sleep(Duration::from_millis(200));
    let after = machine::cpu_s(server.pid()).context("the server's CPU time cannot be read")?;
    times.cpu.0.push(after - before);
    let lines = LogReader::new(work.name).read(client)?;
    let of_round = |line: &str| {
        line.split("#011validation-logloss:")
            .nth(1)
            .and_then(|rest| rest.split("#011").next()?.trim().parse::<f64>().ok())
    };
    let losses: Vec<f64> = lines.iter().filter_map(|line| of_round(&line.message)).collect();
    ensure!(losses.len() == work.rounds, "the log has {} rounds of {}", losses.len(), work.rounds);
    Ok(losses[losses.len() - 1])
}

/// The peer's turn; returns its last validation loss.
fn dask(work: &Work, data: &Path, python: &Path, times: &mut Times) -> Result<f64> {
    let script = data.join("bench_dask.py");
    fs::write(&script, include_str!("../programs/bench_dask.py"))?;
    let mut command = Command::new(python);
    command.arg(&script).arg(data).args([WORKERS.to_string(), work.rounds.to_string()]);
    let told = parameters(work).into_iter().filter(|(name, _)| *name != "num_round");
    let output =
        command.args(told.map(|(name, value)| format!("{name}={value}"))).output().context("could not run the peer")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(told) = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object))
    else {
        bail!("xgboost.dask failed: {}", String::from_utf8_lossy(&output.stderr));
    };
    let number = |name: &str| told[name].as_f64().with_context(|| format!("the peer does not tell {name}"));
    times.work.0.push(number("work_s")?);
    times.whole.0.push(number("whole_s")?);
    times.cpu.0.push(number("cpu_s")?);
    ensure!(told["rounds"] == work.rounds, "the peer made {} rounds", told["rounds"]);
    number("logloss")
}
