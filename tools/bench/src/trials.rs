//! `cargo xtask bench trials`: what a trial costs beside its training, on a new instance and on a
//! kept one; and what it costs that two trials take turns.

mod study;

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use shoal_sandbox::{Isolation, Mount, Network, Sandbox, SandboxSpec, Support};

use super::{
    machine,
    report::{self, Goal, Line},
    server::{Server, temporary_dir},
};
use shoal_cli::{
    client::{Client, LogReader, now_ms},
    exit::Exit,
    output::{Progress, show},
    setup,
};

/// How often the client asks.
const POLL: Duration = Duration::from_millis(1);
/// For longer than the measurement takes.
const KEPT_S: u32 = 3600;

/// Arguments of `cargo xtask bench trials`.
#[derive(Debug, Args)]
pub(crate) struct TrialsArgs {
    /// How many training jobs of each kind, one after the other.
    #[arg(long, default_value_t = 100)]
    trials: usize,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Milliseconds of one trial.
struct Took {
    /// From the request to the program's first line.
    start: f64,
    /// From the program's last line to `Completed`.
    end: f64,
    /// What the training is told to have been, from the first line to the last.
    program: f64,
}

/// Measures and reports.
pub(crate) fn run(args: &TrialsArgs) -> Result<Exit> {
    setup::fetch(&shoal_algos::xgboost::LIBRARY)?;
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let server = Server::start()?;
    let client = server.client();
    let rows: String = (0..500_u32).map(|row| format!("{},{},{}\n", row % 2, row % 7, row * row % 101)).collect();
    study::put_rows(&server, &rows)?;
    let mut lines = Vec::new();
    let kinds = [
        ("xgboost", "XGBoost of 2 rounds", None),
        ("host", "a `shoal/host` program", Some("echo begins; echo ends")),
        ("python", "a Python script", Some("python3 -c 'print(\"begins\"); print(\"ends\")'")),
    ];
    for (kind, what, program) in kinds {
        for (how, keep_s, goal_ms) in [("new instances", 0, 500.0), ("a kept instance", KEPT_S, 200.0)] {
            progress.draw(&format!("{what}, {how}"));
            let kind = format!("{kind}-{keep_s}");
            let took = trials(client, &kind, program, keep_s, args.trials)?;
            let all = |of: fn(&Took) -> f64| took.iter().map(of).collect::<Vec<f64>>();
            let mut add = |part: &str, values, goal| {
                lines.push(report::line(format!("{what}, {how}: {part}"), values, "ms", goal));
            };
            add("request to first line", all(|it| it.start), Some(Goal::AtMost(goal_ms)).filter(|_| program.is_some()));
            add("last line to `Completed`", all(|it| it.end), None);
            add("both", all(|it| it.start + it.end), None);
            add("first line to last", all(|it| it.program), None);
        }
    }
    progress.draw("a tuning job");
    let gaps = study::one_after_the_other(&server, u32::try_from(args.trials)?)?;
    let what = "XGBoost of 2 rounds in a tuning job, one trial after the other: last line to the next one's first";
    lines.push(report::line(what, gaps, "ms", Some(Goal::AtMost(10.0))));
    drop(server);
    progress.draw("taking turns");
    lines.extend(turns(args.trials)?);
    for (memory, what) in
        [("64GiB", "the trial that rests is frozen"), ("4GiB", "it ends, and goes on from its checkpoint")]
    {
        let what = format!("a switch of turns in a tuning job, from the order to the next trial's first value: {what}");
        lines.push(report::line(what, study::turns(memory, &rows)?, "ms", None));
    }
    drop(progress);
    let intro = format!(
        "{machine}.\n\n{} training jobs of each kind, one after the other, of 500 rows; lines are dated when the agent \
         reads them, whole milliseconds. A kept \
         instance is what trials of a tuning job get, here by `KeepAlivePeriodInSeconds`; the client asks for the end \
         of a training job all the time, which \
         takes a part of the machine. A tuning job's trials are not asked for. A switch of turns by freezing is the \
         time from the order that freezes one instance \
         to the first sign of life of another that is thawed; those in a tuning job are Hyperband's, {} rounds at \
         most, with one place",
        args.trials,
        study::ROUNDS,
    );
    let section = report::markdown("Tuning: trials", &intro, &lines);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

/// The first one makes the instance that others have, and does not count.
fn trials(client: &Client, kind: &str, program: Option<&str>, keep_s: u32, count: usize) -> Result<Vec<Took>> {
    let mut took = Vec::with_capacity(count);
    for number in 0..=count {
        let one = trial(client, &format!("{kind}-{number}"), program, keep_s)?;
        if number > 0 {
            took.push(one);
        }
    }
    Ok(took)
}

fn trial(client: &Client, name: &str, program: Option<&str>, keep_s: u32) -> Result<Took> {
    let algorithm = match program {
        None => json!({"TrainingImage": "xgboost:latest", "TrainingInputMode": "File"}),
        Some(line) => {
            json!({"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["/bin/sh", "-c", line]})
        }
    };
    let source =
        json!({"S3DataType": "S3Prefix", "S3Uri": "s3://bench/tiny/", "S3DataDistributionType": "FullyReplicated"});
    let mut request = json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": algorithm,
        "InputDataConfig": [{"ChannelName": "train", "ContentType": "text/csv", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": keep_s},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    });
    if program.is_none() {
        request["HyperParameters"] =
            json!({"num_round": "2", "objective": "binary:logistic", "eval_metric": "logloss", "nthread": "1"});
    }
    let began = now_ms();
    client.sagemaker("CreateTrainingJob", &request)?;
    let told = ended(client, name)?;
    let ended = now_ms();
    ensure!(told["TrainingJobStatus"] == "Completed", "{name}: {told}");
    let lines = LogReader::new(name).read(client)?;
    let times = || lines.iter().filter(|line| !line.message.starts_with("[shoal]")).map(|line| line.at_ms);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { anyhow::bail!("{name} has said nothing") };
    let between = |from: u64, to: u64| to.saturating_sub(from) as f64;
    Ok(Took { start: between(began, first), end: between(last, ended), program: between(first, last) })
}

fn ended(client: &Client, name: &str) -> Result<Value> {
    loop {
        let told = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}))?;
        if told["TrainingJobStatus"] != "InProgress" {
            return Ok(told);
        }
        thread::sleep(POLL);
    }
}

/// Two instances, of which one lives at a time.
fn turns(count: usize) -> Result<Vec<Line>> {
    let support = Support::probe();
    if !matches!(support.isolation, Isolation::Full { .. }) {
        return Ok(Vec::new());
    }
    let dir = temporary_dir(None)?;
    let made = || -> Result<Vec<(Network, Sandbox, PathBuf)>> {
        (0..2).map(|number| busy(dir.path(), number, &support)).collect()
    };
    let instances = made()?;
    instances[1].1.control().freeze()?;
    let (mut switches, mut starts) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (stops, goes) = (&instances[number % 2], &instances[(number + 1) % 2]);
        let began = Instant::now();
        stops.1.control().freeze()?;
        let before = size(&goes.2);
        goes.1.control().thaw()?;
        while size(&goes.2) == before {
            std::hint::spin_loop();
        }
        switches.push(began.elapsed().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(2));
    }
    drop(instances);
    for number in 0..count.min(20) {
        let began = Instant::now();
        let instance = busy(dir.path(), number + 2, &support)?;
        while size(&instance.2) == 0 {
            std::hint::spin_loop();
        }
        starts.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(vec![
        report::line("a switch of turns by freezing", switches, "ms", None),
        report::line(
            "a new network and instance of a shell that says something, as a restart from a checkpoint needs first",
            starts,
            "ms",
            None,
        ),
    ])
}

/// An instance whose program makes a file longer as fast as it can.
fn busy(dir: &Path, number: usize, support: &Support) -> Result<(Network, Sandbox, PathBuf)> {
    let ml = dir.join(number.to_string());
    std::fs::create_dir(&ml)?;
    let id = format!("bench-{}-{number}", std::process::id());
    let network = Network::create(&format!("{id}-net"), 1, support)?;
    let spec = SandboxSpec {
        id: format!("{id}-1"),
        hostname: "algo-1".to_owned(),
        host: 1,
        hosts: vec!["algo-1".to_owned()],
        mounts: vec![Mount::Bind { source: ml.clone(), target: "/opt/ml".into() }],
        command: ["/bin/sh", "-c", "while :; do echo >> /opt/ml/signs; done"].map(str::to_owned).to_vec(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: "/".into(),
        memory_bytes: 256 << 20,
        together: None,
        cpu_weight: 100,
        pids: 16,
        addresses: Vec::new(),
        has_proxy: false,
    };
    let sandbox = Sandbox::start(&spec, &network, support)?;
    Ok((network, sandbox, ml.join("signs")))
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}
