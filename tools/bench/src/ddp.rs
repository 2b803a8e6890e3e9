//! `cargo xtask bench ddp`: what it costs a training by DistributedDataParallel that it runs here,
//! against the same torchrun started by hand, in turns.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use shoal_environments::Prepared;

use super::{
    cached::{self, Cached},
    machine, processes,
    report::{self, Goal, cell},
    server::{Server, temporary_dir},
    spread::Spread,
};
use shoal_cli::{
    client::LogReader,
    exit::{Exit, UsageError},
    output::{Progress, show},
    watch,
};

/// Whose environment both sides have.
const IMAGE: &str = "pytorch-training";
/// The script of both sides.
const PROGRAM: (&str, &str) = ("bench_ddp.py", include_str!("../programs/bench_ddp.py"));
/// What a job of one instance runs, as torchrun of `distribution` starts one process where there is
/// no GPU.
const BOTH: (&str, &str) = ("both.sh", "exec torchrun --nproc_per_node 2 bench_ddp.py \"$@\"\n");
/// Processes of every training, one thread each.
const PROCESSES: usize = 2;
/// Steps that are not timed.
const WARM_UP: usize = 100;
/// By so much may two losses of the same seed lie apart.
const TOLERANCE: f64 = 1e-3;
/// A step's time here over that by hand.
const GOAL: Goal = Goal::AtMost(1.01);
/// More than a run by hand takes.
const LIMIT: Duration = Duration::from_secs(3600);

/// Arguments of `cargo xtask bench ddp`.
#[derive(Debug, Args)]
#[command(
    after_help = "Both sides run one script with one interpreter, that of the cached environment (`shoal env-cache \
                  prepare pytorch` makes it). A \
                  perceptron learns on 2 processes of one thread each, and times its own steps: what comes before and \
                  after them is not in the \
                  numbers. Let nothing else run, as the processes wait in every step for the one that was kept from \
                  its core."
)]
pub(crate) struct DdpArgs {
    /// Pairs of runs of each kind, the other side first in every second one.
    #[arg(long, default_value_t = 6)]
    pairs: usize,
    /// Timed steps of a run; 100 before them are not.
    #[arg(long, default_value_t = 1500)]
    steps: usize,
    /// Rank 0 prints its loss every so many steps.
    #[arg(long, default_value_t = 10)]
    every: usize,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What each run does.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// That are timed.
    steps: usize,
    /// Rank 0 prints its loss every so many.
    every: usize,
}

/// How the processes are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Both on one instance, started by one torchrun.
    Together,
    /// One on each of two instances, each with a torchrun: what
    /// `distribution={"torch_distributed": ..}` starts.
    Apart,
}

/// What rank 0 says of its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Steps {
    median_ms: f64,
    /// A tenth of them were faster: what others on the machine hardly touch.
    fast_ms: f64,
    /// All together over their number.
    mean_ms: f64,
    /// Processor time of one.
    cpu_ms: f64,
    loss: f64,
}

/// Measures and reports.
pub(crate) fn run(args: &DdpArgs) -> Result<Exit> {
    if [args.pairs, args.steps, args.every].contains(&0) {
        return Err(UsageError("--pairs, --steps and --every are at least 1".to_owned()).into());
    }
    let run = Run { steps: args.steps, every: args.every };
    let machine = machine::describe();
    let environment = environment()?;
    let mut progress = Progress::on_stderr();
    let mut rows = Vec::new();
    for kind in [Kind::Together, Kind::Apart] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for pair in 1..=args.pairs {
            for is_ours in [pair % 2 == 1, pair % 2 == 0] {
                progress.draw(&format!(
                    "{}: pair {pair} of {}, {}",
                    kind.name(),
                    args.pairs,
                    if is_ours { "Shoal" } else { "by hand" }
                ));
                if is_ours {
                    ours.push(job(kind, run)?);
                } else {
                    theirs.push(by_hand(kind, run, &environment)?);
                }
            }
        }
        let losses = (ours[0].loss, theirs[0].loss);
        ensure!(
            (losses.0 - losses.1).abs() <= TOLERANCE,
            "losses {} and {}: the two sides did not learn the same",
            losses.0,
            losses.1
        );
        rows.extend(compared(kind, &ours, &theirs));
    }
    drop(progress);
    let intro = format!(
        "{machine}.\n\nA perceptron (784, 256, 256, 10) by DistributedDataParallel over Gloo, {PROCESSES} processes of \
         one thread, 64 samples each; \
         {WARM_UP} steps to warm up, then {} that rank 0 times itself, printing its loss every {} steps. By hand: \
         `torchrun` of the same environment \
         on this machine, over loopback. Shoal: a training job in its sandboxes, its lines in the job's log. Pairs in \
         turns: {}. The value of a run is its \
         median step, one that a tenth of its steps beat, its mean step, or the processor time of a step; cells are \
         medians of runs, and the least and the most.",
        args.steps, args.every, args.pairs
    );
    let header = ["what", "Shoal", "torchrun by hand", "ratio of medians", "ratio of the least", "goal"];
    let section = report::table("ddp", &intro, &header, &rows);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn compared(kind: Kind, ours: &[Steps], theirs: &[Steps]) -> Vec<Vec<String>> {
    let row = |what: &str, of: fn(&Steps) -> f64, goal: Option<Goal>| {
        let [ours, theirs] = [ours, theirs].map(|runs| Spread(runs.iter().map(of).collect()));
        let (ratio, of_least) = (ours.median() / theirs.median(), ours.bounds().0 / theirs.bounds().0);
        let goal = goal.map_or_else(String::new, |goal| goal.verdict(ratio, "times"));
        let what = format!("{}: {what}", kind.name());
        vec![what, cell(&ours, "ms"), cell(&theirs, "ms"), format!("{ratio:.3}"), format!("{of_least:.3}"), goal]
    };
    vec![
        row("median step", |it| it.median_ms, Some(GOAL)),
        row("step that a tenth of all beat", |it| it.fast_ms, None),
        row("mean step", |it| it.mean_ms, None),
        row("processor time of a step", |it| it.cpu_ms, None),
    ]
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Together => "one instance, 2 processes",
            Self::Apart => "2 instances, one process each",
        }
    }
}

/// The environment, if this machine has it.
fn environment() -> Result<Prepared> {
    let Cached { name, environment } = cached::environment(IMAGE)?;
    let text = || {
        format!("the environment {name} is not in the cache; make it first (5.6 GB): shoal env-cache prepare {name}")
    };
    environment.ok_or_else(|| UsageError(text()).into())
}

/// A training job on a server of its own.
fn job(kind: Kind, run: Run) -> Result<Steps> {
    let server = Server::start()?;
    let client = server.client();
    client.create_bucket("bench")?;
    for (name, text) in [PROGRAM, BOTH] {
        client.put_object("bench", &format!("code/{name}"), &mut text.as_bytes())?;
    }
    client.sagemaker("CreateTrainingJob", &request(kind, run))?;
    let description = loop {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": "ddp"}))?;
        if watch::is_over(&description) {
            break description;
        }
        // Rarely, so that asking takes nothing from the steps.
        thread::sleep(Duration::from_secs(1));
    };
    let lines = LogReader::new("ddp").read(client)?;
    let said = lines.iter().map(|line| &*line.message).collect::<Vec<_>>().join("\n");
    ensure!(description["TrainingJobStatus"] == "Completed", "{}\n{said}", watch::summary(&description));
    told(&said, run)
}

fn request(kind: Kind, run: Run) -> Value {
    let (program, distribution, instances) = match kind {
        Kind::Together => (BOTH.0, "false", 1),
        Kind::Apart => (PROGRAM.0, "true", PROCESSES),
    };
    json!({
        "TrainingJobName": "ddp",
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "HyperParameters": {
            "sagemaker_program": program,
            "sagemaker_submit_directory": "/opt/ml/input/data/code",
            "sagemaker_torch_distributed_enabled": distribution,
            "steps": run.steps.to_string(),
            "warm-up": WARM_UP.to_string(),
            "every": run.every.to_string(),
        },
        "InputDataConfig": [{
            "ChannelName": "code",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bench/code/"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    })
}

/// The same without us.
fn by_hand(kind: Kind, run: Run, environment: &Prepared) -> Result<Steps> {
    let dir = temporary_dir(None)?;
    fs::write(dir.path().join(PROGRAM.0), PROGRAM.1).context("could not write the script")?;
    let commands = match kind {
        Kind::Together => vec![torchrun(environment, dir.path(), &["--nproc_per_node", &PROCESSES.to_string()], run)],
        Kind::Apart => {
            let port = free_port()?.to_string();
            let node = |rank: usize| {
                let [nodes, rank] = [PROCESSES, rank].map(|number| number.to_string());
                let words =
                    ["--nnodes", &nodes, "--nproc_per_node", "1", "--master_addr", "127.0.0.1", "--master_port", &port];
                torchrun(environment, dir.path(), &[&words[..], &["--node_rank", &rank]].concat(), run)
            };
            (0..PROCESSES).map(node).collect()
        }
    };
    told(&processes::together(commands, dir.path(), LIMIT)?, run)
}

fn torchrun(environment: &Prepared, dir: &Path, options: &[&str], run: Run) -> Command {
    let bin = environment.python().with_file_name("");
    let path = env::var("PATH").unwrap_or_default();
    let mut command = Command::new(bin.join("torchrun"));
    command.args(options).arg(PROGRAM.0);
    for (name, number) in [("--every", run.every), ("--steps", run.steps), ("--warm-up", WARM_UP)] {
        command.args([name, &number.to_string()]);
    }
    command.current_dir(dir).env("PATH", format!("{}:{path}", bin.display()));
    // This machine's name need not be an address.
    command.env("GLOO_SOCKET_IFNAME", "lo");
    command
}

/// One that nobody listens at now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// What rank 0 has printed at its end.
fn told(said: &str, run: Run) -> Result<Steps> {
    let object = |line: &str| serde_json::from_str::<Value>(line).ok().filter(Value::is_object);
    let told =
        said.lines().find_map(object).with_context(|| format!("the script has said nothing of its steps:\n{said}"))?;
    let number = |name: &str| told[name].as_f64().with_context(|| format!("the script does not tell {name}: {told}"));
    let printed = said.lines().filter(|line| line.contains("loss=")).count();
    ensure!(printed == run.steps.div_ceil(run.every), "{printed} losses were printed in {} steps", run.steps);
    ensure!(number("ranks")? == PROCESSES as f64, "not {PROCESSES} processes took part: {told}");
    let of_step = 1e3 / run.steps as f64;
    Ok(Steps {
        median_ms: number("median_s")? * 1e3,
        fast_ms: number("fast_s")? * 1e3,
        mean_ms: number("whole_s")? * of_step,
        cpu_ms: number("cpu_s")? * of_step,
        loss: number("loss")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "step=0; loss=2.30000;\nstep=10; loss=2.10000;\n{\"median_s\": 0.002, \"fast_s\": 0.001, \
                        \"whole_s\": 0.05, \"cpu_s\": 0.03, \"loss\": 2.0, \"ranks\": 2}\n";

    fn run(steps: usize) -> Run {
        Run { steps, every: 10 }
    }

    #[test]
    fn what_a_run_says_is_read() {
        let steps = told(SAID, run(20)).expect("all is told");
        assert_eq!(steps, Steps { median_ms: 2.0, fast_ms: 1.0, mean_ms: 2.5, cpu_ms: 1.5, loss: 2.0 });
        assert!(told(SAID, run(1000)).expect_err("lines are missing").to_string().contains("2 losses"));
        assert!(told("nothing", run(20)).expect_err("no steps").to_string().contains("nothing of its steps"));
        assert!(told(&SAID.replace("\"ranks\": 2", "\"ranks\": 1"), run(20)).is_err());
    }

    #[test]
    fn ratios_are_held_to_the_goal() {
        let runs = |times: &[f64]| {
            Vec::from_iter(times.iter().map(|ms| Steps {
                median_ms: *ms,
                fast_ms: *ms,
                mean_ms: *ms,
                cpu_ms: *ms,
                loss: 2.0,
            }))
        };
        let rows = compared(Kind::Together, &runs(&[2.04, 2.02, 2.06]), &runs(&[2.0, 1.0, 3.0]));
        assert_eq!(rows[0][3..], ["1.020", "2.020", "at most 1.01 times: missed"]);
        assert_eq!(compared(Kind::Apart, &runs(&[1.0]), &runs(&[1.0]))[0][5], "at most 1.01 times: kept");
    }
}
