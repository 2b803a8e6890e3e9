//! What it takes to add a built-in algorithm: a declaration and a program. This test has one of its
//! own, which the product does not contain, and the whole command line runs it: as a server, as the
//! server's agents, and as the algorithm on an instance.

#![allow(clippy::unwrap_used, reason = "all of this is a test, which the lint cannot see without the usual harness")]

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Output, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use shoal_algos::{
    Algorithm, Algorithms, Channels, HyperparameterError, Hyperparameters, MeasuredOn, Metric, Objective, Repository,
    Resource, Tunable,
};
use shoal_sandbox::{Isolation, Support};
use tempfile::TempDir;

/// Approaches the mean of the numbers in a channel, a part of the way in each pass.
static MEAN: Algorithm = Algorithm {
    name: "mean",
    title: "Mean",
    repositories: &[Repository {
        name: "mean",
        versions: &["1.0-1", "1.1-1"],
        other_tags: &[("latest", "1.1-1"), ("", "1.1-1")],
    }],
    hyperparameters: Hyperparameters {
        names: || vec!["passes", "rate", "_tuning_objective_metric"],
        required: &[("passes", "10")],
        check,
        tunable: &[Tunable::real("rate", 0.1, 0.9)],
        resource: Some(Resource { name: "passes", unit: "passes" }),
    },
    channels: Channels { required: "train", optional: &["test"] },
    metrics: || {
        let metric = |set: &str, measured_on: Option<MeasuredOn>| Metric {
            name: format!("{set}:error"),
            regex: format!(r"{set}-error=(\S+)"),
            objective: Some(Objective { is_maximized: false, measured_on }),
        };
        vec![metric("train", None), metric("test", Some(MeasuredOn { channel: "test", unless: None }))]
    },
    resumes: false,
    libraries: &[],
    prepare: || {
        let _ = NUMBERS.set(numbers());
    },
    run,
};

const ALGORITHMS: &[&Algorithm] = &[&MEAN];

/// The channel's numbers, once they are read.
static NUMBERS: OnceLock<Vec<f64>> = OnceLock::new();

fn check(name: &str, value: &str) -> Result<(), HyperparameterError> {
    match value.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok(()),
        _ => Err(HyperparameterError(format!("{name} must be a positive number, not {value:?}"))),
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn numbers() -> Vec<f64> {
    let files = fs::read_dir(variable("SM_CHANNEL_TRAIN")).unwrap();
    let text: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn run() -> i32 {
    println!("the channel was {}", if NUMBERS.get().is_some() { "prepared" } else { "not prepared" });
    let numbers = NUMBERS.get_or_init(numbers);
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let rate: f64 = std::env::var("SM_HP_RATE").map_or(0.5, |rate| rate.parse().unwrap());
    let mut estimate = 0.0;
    for pass in 1..=variable("SM_HP_PASSES").parse::<u32>().unwrap() {
        estimate += rate * (mean - estimate);
        println!("pass={pass} train-error={}", (mean - estimate).abs());
    }
    fs::write(Path::new(&variable("SM_MODEL_DIR")).join("mean"), estimate.to_string()).unwrap();
    0
}

/// By the name of this executable, since agents and instances start it anew.
fn main() -> ExitCode {
    // The test itself asks what the sandbox can do here.
    shoal_sandbox::reexec_entry();
    let executable = std::env::current_exe().unwrap();
    if executable.file_name().is_some_and(|name| name == "shoal") {
        return shoal_cli::main(Algorithms::new(ALGORITHMS));
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut has_failed = false;
    for (name, test) in TESTS.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let start = Instant::now();
        let ended = catch_unwind(|| test(&House::open(&executable)));
        println!(
            "test {name} ... {} ({} ms)",
            if ended.is_ok() { "ok" } else { "FAILED" },
            start.elapsed().as_millis()
        );
        has_failed |= ended.is_err();
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

type Test = (&'static str, fn(&House));

const TESTS: [Test; 3] = [
    ("second_algorithm::trains", trains),
    ("second_algorithm::is_tuned", is_tuned),
    ("second_algorithm::mistakes_are_refused", mistakes_are_refused),
];

/// A server on a free port in a directory of its own, ended when this goes.
struct House {
    dir: TempDir,
    program: PathBuf,
    server: Child,
}

impl House {
    fn open(executable: &Path) -> Self {
        // Where the executable is, so that it can be linked.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = dir.path().join("shoal");
        fs::hard_link(executable, &program).unwrap();
        fs::write(dir.path().join("numbers.txt"), "1\n2\n3\n6\n").unwrap();
        let server = command(&program, dir.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut house = Self { dir, program, server };
        let deadline = Instant::now() + Duration::from_secs(240);
        while !house.dir.path().join("data/address").exists() {
            assert_eq!(house.server.try_wait().unwrap(), None, "the server ended");
            assert!(Instant::now() < deadline, "the server does not come up");
            thread::sleep(Duration::from_millis(10));
        }
        house
    }

    /// `shoal WORDS`, where `NUMBERS` is the file of numbers.
    fn shoal(&self, words: &str) -> Output {
        let words = words.replace("NUMBERS", &self.dir.path().join("numbers.txt").display().to_string());
        command(&self.program, self.dir.path()).args(words.split(' ')).output().unwrap()
    }

    fn json(&self, words: &str) -> Value {
        let output = self.shoal(words);
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // SIGTERM, so that the server cleans up after itself; the standard library can only kill.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("SHOAL_DATA_DIR", dir.join("data")).env("SHOAL_ENGINE", "none").env_remove("AWS_ENDPOINT_URL");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn trains(house: &House) {
    let description = house.json("train --image mean --name first --channel train=NUMBERS --hp passes=3 --json");
    assert_eq!(description["TrainingJobStatus"], "Completed");
    let metrics = &description["FinalMetricDataList"];
    assert_eq!((&metrics[0]["MetricName"], &metrics[0]["Value"]), (&"train:error".into(), &0.375.into()), "{metrics}");
    assert!(
        description["ModelArtifacts"]["S3ModelArtifacts"].as_str().unwrap().ends_with("/first/output/model.tar.gz")
    );
    let logs = text(&house.shoal("jobs logs first").stdout);
    assert_eq!(
        logs,
        "the channel was not prepared\npass=1 train-error=1.5\npass=2 train-error=0.75\npass=3 train-error=0.375\n"
    );
}

/// ASHA's longest trials follow from the hyperparameter that the algorithm declares, and trials
/// that follow each other find the channel read.
fn is_tuned(house: &House) {
    let common =
        "tune --image mean --channel train=NUMBERS --hp passes=9 --range rate=0.1..0.9 --trials 4 --parallel 1";
    let study = house.json(&format!("{common} --objective train:error --strategy asha --seed 1 --json"));
    assert_eq!(study["HyperParameterTuningJobStatus"], "Completed");
    let levels = &study["Definitions"][0]["Levels"];
    assert_eq!(levels.as_array().unwrap().last(), Some(&9.into()), "{study}");
    let trials: Vec<&str> =
        study["Trials"].as_array().unwrap().iter().map(|it| it["TrainingJobName"].as_str().unwrap()).collect();
    assert_eq!(trials.len(), 4, "{study}");
    let is_isolated = matches!(Support::probe().isolation, Isolation::Full { .. });
    for trial in trials {
        let logs = text(&house.shoal(&format!("jobs logs {trial}")).stdout);
        assert!(
            logs.contains("pass=1 train-error=") && logs.contains("was prepared") == is_isolated,
            "{trial}: {logs}"
        );
    }
}

fn mistakes_are_refused(house: &House) {
    let (train, tune) = ("train --image mean --channel train=NUMBERS", "tune --image mean --channel train=NUMBERS");
    for (words, expected) in [
        (train.to_owned(), "mean needs the hyperparameter passes: give --hp passes=10"),
        (format!("{train} --hp pases=1"), "mean has no such hyperparameter; did you mean passes?"),
        (format!("{train} --hp passes=none"), "passes must be a positive number"),
        (
            "train --image mean:2 --channel train=NUMBERS".to_owned(),
            "SageMaker's Mean; the versions are 1.0-1, 1.1-1, and mean:latest",
        ),
        (
            "train --image men --channel train=NUMBERS".to_owned(),
            "did you mean mean? There are SageMaker's images of built-in algorithms (Mean, mean:1.1-1;",
        ),
        (
            format!("{tune} --hp passes=3 --range rate=0.1..0.9 --objective test:error"),
            "the objective test:error is measured on the channel test, and there is none",
        ),
        (
            format!("{tune} --range passes=1..9 --objective train:error --strategy hyperband"),
            "after how many values of train:error (passes) a trial is whole",
        ),
    ] {
        let output = house.shoal(&words);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{words}: {error}");
    }
}
