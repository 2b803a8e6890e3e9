//! `cargo xtask bench threads`: how fast scripts of frameworks compute on 1, 2 and 4 instances that
//! share this machine's cores, against the same processes started by hand with the threads and the
//! wait policy that are best for them.

use std::{
    fs,
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

/// The script of both sides.
const PROGRAM: (&str, &str) = ("bench_threads.py", include_str!("../programs/bench_threads.py"));
/// Frameworks, the images whose environments have them, and rounds that take seconds.
const FRAMEWORKS: [(&str, &str, usize); 4] = [
    ("pytorch", "pytorch-training", 1500),
    ("tensorflow", "tensorflow-training", 4000),
    ("scikit-learn", "sagemaker-scikit-learn", 60),
    ("numpy", "sagemaker-scikit-learn", 400),
];
/// Instances of each job.
const INSTANCES: [usize; 3] = [1, 2, 4];
/// A setting is tried with this part of the rounds.
const TRIAL_DIVISOR: usize = 8;
/// Time here over that by hand.
const GOAL: Goal = Goal::AtMost(1.2);
/// More than a run takes.
const LIMIT: Duration = Duration::from_secs(1800);
/// Values of both sides may lie apart by this part: threads add in another order.
const TOLERANCE: f64 = 0.05;

/// Arguments of `cargo xtask bench threads`.
#[derive(Debug, Args)]
#[command(
    after_help = "Both sides run one script with one interpreter, that of the cached environment (`shoal env-cache \
                  prepare pytorch`, tensorflow, \
                  scikit-learn-1.4); a framework whose environment is not there is left out, and named. Each instance \
                  times its own loop; the \
                  slowest counts. By hand, every number of threads and every wait policy is tried once with an eighth \
                  of the rounds, and the best one is measured in turns with \
                  Shoal."
)]
pub(crate) struct ThreadsArgs {
    /// Runs of each side, in turns.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Frameworks to measure: pytorch, tensorflow, scikit-learn, numpy; all without it.
    #[arg(long = "framework", value_name = "NAME")]
    frameworks: Vec<String>,
    /// Multiplies the rounds of each loop.
    #[arg(long, default_value_t = 1.0)]
    rounds: f64,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// One loop on so many instances.
#[derive(Debug, Clone, Copy)]
struct Run<'a> {
    framework: &'a str,
    image: &'a str,
    rounds: usize,
    instances: usize,
}

/// What is tried by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    /// None: what libraries take by themselves.
    threads: Option<usize>,
    is_passive: bool,
}

/// What the slowest instance took, and what the first one computed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Loop {
    seconds: f64,
    value: f64,
}

/// Measures and reports.
pub(crate) fn run(args: &ThreadsArgs) -> Result<Exit> {
    let unknown = args.frameworks.iter().find(|name| FRAMEWORKS.iter().all(|(known, ..)| known != name));
    if let Some(unknown) = unknown {
        let known = FRAMEWORKS.map(|(name, ..)| name).join(", ");
        return Err(UsageError(format!("--framework {unknown}: it is one of {known}")).into());
    }
    if args.pairs == 0 || args.rounds.is_nan() || args.rounds <= 0.0 {
        return Err(UsageError("--pairs is at least 1, and --rounds more than 0".to_owned()).into());
    }
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    for (framework, image, rounds) in FRAMEWORKS {
        if !args.frameworks.is_empty() && !args.frameworks.iter().any(|name| name == framework) {
            continue;
        }
        let Cached { name, environment } = cached::environment(image)?;
        let Some(environment) = environment else {
            absent.push(format!("{framework} (`shoal env-cache prepare {name}`)"));
            continue;
        };
        for instances in INSTANCES {
            let rounds = ((rounds as f64 * args.rounds) as usize).max(1);
            rows.push(measure(Run { framework, image, rounds, instances }, &environment, args.pairs, &mut progress)?);
        }
    }
    drop(progress);
    let absent = if absent.is_empty() {
        String::new()
    } else {
        format!(" Not in the cache, and left out: {}.", absent.join(", "))
    };
    let intro = format!(
        "{machine}.\n\nA loop of each framework on 1, 2 and 4 instances of one job, which share this machine's cores, \
         against as many processes by hand \
         with the best of all settings that were tried (threads: the cores, the instance's share, 1; OMP_WAIT_POLICY: \
         none, PASSIVE). The time is the \
         slowest instance's loop, without start and imports; runs in turns: {}.{absent}",
        args.pairs
    );
    let section = report::table(
        "threads",
        &intro,
        &["what", "Shoal", "by hand", "its settings", "ratio of medians", "goal"],
        &rows,
    );
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn measure(run: Run<'_>, environment: &Prepared, pairs: usize, progress: &mut Progress) -> Result<Vec<String>> {
    let Run { framework, instances, .. } = run;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut tried = Vec::new();
    // The worst settings take many times as long as the best.
    let short = Run { rounds: run.rounds.div_ceil(TRIAL_DIVISOR), ..run };
    for settings in settings(cores, instances) {
        progress.draw(&format!("{framework}, {instances} instances: by hand, {}", settings.name()));
        tried.push((by_hand(short, settings, environment)?.seconds, settings));
    }
    let (_, best) = tried.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).expect("there is one at least");
    let (mut ours, mut theirs) = (Spread::default(), Spread::default());
    for pair in 1..=pairs {
        progress.draw(&format!("{framework}, {instances} instances: pair {pair} of {pairs}"));
        let (here, there) = (job(run)?, by_hand(run, best, environment)?);
        let scale = there.value.abs().max(1.0);
        ensure!(
            (here.value - there.value).abs() <= TOLERANCE * scale,
            "{framework}: the two sides computed {} and {}",
            here.value,
            there.value
        );
        ours.0.push(here.seconds);
        theirs.0.push(there.seconds);
    }
    let ratio = ours.median() / theirs.median();
    let plural = if instances == 1 { "" } else { "s" };
    let what = format!("{framework}, {instances} instance{plural}");
    Ok(vec![
        what,
        cell(&ours, "s"),
        cell(&theirs, "s"),
        best.name(),
        format!("{ratio:.2}"),
        GOAL.verdict(ratio, "times"),
    ])
}

/// All that is worth trying.
fn settings(cores: usize, instances: usize) -> Vec<Settings> {
    let mut threads = vec![None, Some((cores / instances).max(1)), Some(1)];
    threads.dedup();
    let both = |threads| [false, true].map(|is_passive| Settings { threads, is_passive });
    threads.into_iter().flat_map(both).collect()
}

impl Settings {
    fn name(self) -> String {
        let threads = self.threads.map_or("threads by default".to_owned(), |threads| {
            format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
        });
        if self.is_passive { format!("{threads}, PASSIVE") } else { threads }
    }
}

/// A training job on a server of its own.
fn job(run: Run<'_>) -> Result<Loop> {
    let server = Server::start()?;
    let client = server.client();
    client.create_bucket("bench")?;
    client.put_object("bench", &format!("code/{}", PROGRAM.0), &mut PROGRAM.1.as_bytes())?;
    client.sagemaker("CreateTrainingJob", &request(run))?;
    let description = loop {
        let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": "threads"}))?;
        if watch::is_over(&description) {
            break description;
        }
        // Rarely, so that asking takes nothing from the loop.
        thread::sleep(Duration::from_secs(1));
    };
    let lines = LogReader::new("threads").read(client)?;
    let text = lines.iter().map(|line| &*line.message).collect::<Vec<_>>().join("\n");
    ensure!(description["TrainingJobStatus"] == "Completed", "{}\n{text}", watch::summary(&description));
    slowest(&text, run.instances)
}

fn request(run: Run<'_>) -> Value {
    json!({
        "TrainingJobName": "threads",
        "AlgorithmSpecification": {"TrainingImage": run.image, "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "HyperParameters": {
            "sagemaker_program": PROGRAM.0,
            "sagemaker_submit_directory": "/opt/ml/input/data/code",
            "framework": run.framework,
            "rounds": run.rounds.to_string(),
        },
        "InputDataConfig": [{
            "ChannelName": "code",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bench/code/"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.24xlarge", "InstanceCount": run.instances, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": LIMIT.as_secs()},
    })
}

/// The same without us.
fn by_hand(run: Run<'_>, settings: Settings, environment: &Prepared) -> Result<Loop> {
    let dir = temporary_dir(None)?;
    fs::write(dir.path().join(PROGRAM.0), PROGRAM.1).context("could not write the script")?;
    let to = |number: usize| dir.path().join(format!("loop-{number}"));
    let commands = (0..run.instances).map(|number| command(run, settings, environment, dir.path(), &to(number)));
    processes::together(commands.collect(), dir.path(), LIMIT)?;
    let lines =
        (0..run.instances).map(|number| fs::read_to_string(to(number)).context("a process has written no result"));
    slowest(&lines.collect::<Result<Vec<_>>>()?.join("\n"), run.instances)
}

fn command(run: Run<'_>, settings: Settings, environment: &Prepared, dir: &Path, to: &Path) -> Command {
    let mut command = Command::new(environment.python());
    command.arg(PROGRAM.0).args(["--framework", run.framework, "--rounds", &run.rounds.to_string(), "--to"]).arg(to);
    command.current_dir(dir);
    if let Some(threads) = settings.threads {
        for name in ["OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"] {
            command.env(name, threads.to_string());
        }
    }
    if settings.is_passive {
        command.env("OMP_WAIT_POLICY", "PASSIVE");
    }
    command
}

/// Reads the instances' lines of JSON.
fn slowest(text: &str, instances: usize) -> Result<Loop> {
    let parse = |line: &str| -> Option<Loop> {
        let line: Value = serde_json::from_str(line).ok()?;
        Some(Loop { seconds: line["seconds"].as_f64()?, value: line["value"].as_f64()? })
    };
    let loops: Vec<Loop> = text.lines().filter_map(parse).collect();
    ensure!(loops.len() == instances, "{} of {instances} instances have reported their time:\n{text}", loops.len());
    let seconds = loops.iter().map(|it| it.seconds).fold(0.0, f64::max);
    Ok(Loop { seconds, value: loops[0].value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_instance_counts_and_none_may_be_missing() {
        let text = "a line\n{\"seconds\": 1.5, \"value\": 2.0}\n{\"seconds\": 3.5, \"value\": 2.0}";
        assert_eq!(slowest(text, 2).expect("both"), Loop { seconds: 3.5, value: 2.0 });
        assert!(slowest(text, 4).expect_err("two are missing").to_string().contains("2 of 4"));
    }

    #[test]
    fn every_setting_is_tried_once() {
        let names = |cores, instances| Vec::from_iter(settings(cores, instances).into_iter().map(Settings::name));
        assert_eq!(names(2, 2), ["threads by default", "threads by default, PASSIVE", "1 thread", "1 thread, PASSIVE"]);
        assert_eq!(names(8, 2).len(), 6);
    }
}
