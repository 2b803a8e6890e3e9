//! The real binary as people and scripts use it: output, exit codes, and the way to a finished
//! training job.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A server on a free port in a directory of its own, ended when this goes.
struct House {
    dir: TempDir,
    server: Child,
}

impl House {
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = shoal(dir.path());
        server.args(["serve", "--listen", "127.0.0.1:0", "--grace-s", "1"]).stdout(Stdio::null());
        let mut house = Self { server: server.spawn().unwrap(), dir };
        let patience = Instant::now() + Duration::from_secs(240);
        while !house.dir.path().join("address").exists() {
            assert_eq!(house.server.try_wait().unwrap(), None, "the server ended");
            assert!(Instant::now() < patience, "the server does not come up");
            thread::sleep(Duration::from_millis(10));
        }
        house
    }

    fn run(&self, arguments: &[&str]) -> Output {
        shoal(self.dir.path()).args(arguments).output().unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        // SIGTERM, so that the server cleans up after itself; the standard library can only kill.
        let _ = Command::new("kill").arg(self.server.id().to_string()).status();
        let _ = self.server.wait();
    }
}

/// The binary with this data directory and no trace of another server in its environment.
fn shoal(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env("SHOAL_DATA_DIR", data_dir).env_remove("AWS_ENDPOINT_URL");
    command
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn usage_and_unreachable_have_codes_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| shoal(dir.path()).args(arguments).output().unwrap();
    for (arguments, expected) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["no-such-command"], 2),
        (&["train"], 2),
        (&["train", "--channel", "train", "--", "true"], 2),
        // Nobody ever started a server here.
        (&["jobs", "list"], 3),
        (&["config", "--listen", "nowhere"], 2),
    ] {
        assert_eq!(code(&run(arguments)), Some(expected), "{arguments:?}");
    }
    fs::write(dir.path().join("keys"), "access_key_id=a\nsecret_access_key=b\n").unwrap();
    let output = run(&["jobs", "list", "--listen", "127.0.0.1:1"]);
    assert_eq!(code(&output), Some(3));
    assert!(text(&output.stderr).contains("start one with `shoal serve`"), "{}", text(&output.stderr));
}

#[test]
fn completions_name_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = shoal(dir.path()).args(["completions", shell]).output().unwrap();
        let script = text(&output.stdout);
        assert!(script.contains("doctor") && script.contains("listen"), "{shell}");
    }
}

#[test]
fn config_says_where_values_come_from() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("shoal.toml"), "account = \"999999999999\"\ngrace_s = 7\n").unwrap();
    let output = shoal(dir.path())
        .args(["config", "--json", "--region", "eu-west-1"])
        .env("SHOAL_GRACE_S", "9")
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entry = |name: &str| {
        format!("{} from {}", config[name]["value"].as_str().unwrap(), config[name]["origin"].as_str().unwrap())
    };
    assert_eq!(entry("region"), "eu-west-1 from flag --region");
    assert_eq!(entry("grace_s"), "9 from variable SHOAL_GRACE_S");
    assert_eq!(entry("account"), format!("999999999999 from file {}", dir.path().join("shoal.toml").display()));
    assert_eq!(entry("default_bucket"), "sagemaker-eu-west-1-999999999999 from default");
}

#[test]
fn a_job_from_flags_to_its_logs() {
    let house = House::open();
    let data = house.dir.path().join("numbers.txt");
    fs::write(&data, "1\n2\n").unwrap();
    let channel = format!("numbers={}", data.display());
    let script = "cat /opt/ml/input/data/numbers/numbers.txt; echo loss: 0.5; echo done > /opt/ml/model/m.txt";
    let metric = "loss=loss: (\\S+)";
    let output = house.run(&[
        "train",
        "--name",
        "first",
        "--channel",
        &channel,
        "--metric",
        metric,
        "--json",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let description: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(description["FinalMetricDataList"][0]["Value"], 0.5);
    // Progress goes to standard error, a line for each change, and nothing redraws itself in a
    // pipe.
    let progress = text(&output.stderr);
    assert!(progress.contains("first  Completed") && !progress.contains('\r'), "{progress:?}");

    assert_eq!(text(&house.run(&["jobs", "logs", "first"]).stdout), "1\n2\nloss: 0.5\n");
    let event: Value =
        serde_json::from_str(text(&house.run(&["jobs", "logs", "first", "--json"]).stdout).lines().next().unwrap())
            .unwrap();
    assert_eq!((event["host"].as_str(), event["message"].as_str()), (Some("algo-1"), Some("1")));
    let shown = text(&house.run(&["jobs", "show", "first"]).stdout);
    assert!(shown.contains("metric   loss 0.5") && shown.contains("/first/output/model.tar.gz"), "{shown}");
    let list: Value = serde_json::from_slice(&house.run(&["jobs", "list", "--json"]).stdout).unwrap();
    assert_eq!(list[0]["TrainingJobName"], "first");
}

#[test]
fn ends_of_jobs_are_exit_codes() {
    let house = House::open();
    let failed = house.run(&["train", "--name", "fails", "--", "sh", "-c", "echo oh no >&2; exit 3"]);
    assert_eq!(code(&failed), Some(1));
    assert!(text(&failed.stdout).contains("oh no, exit code: 3"), "{}", text(&failed.stdout));

    let created = house.run(&[
        "train",
        "--name",
        "stops",
        "--detach",
        "--",
        "sh",
        "-c",
        "trap 'exit 0' TERM; while true; do sleep 0.1; done",
    ]);
    assert_eq!((code(&created), text(&created.stdout).as_str()), (Some(0), "stops\n"));
    assert_eq!(code(&house.run(&["jobs", "stop", "stops", "--wait"])), Some(0));
    assert_eq!(code(&house.run(&["jobs", "logs", "stops", "--follow"])), Some(4));

    for arguments in [["jobs", "show", "nobody"], ["jobs", "logs", "nobody"], ["jobs", "stop", "nobody"]] {
        assert_eq!(code(&house.run(&arguments)), Some(5), "{arguments:?}");
    }
    assert_eq!(code(&house.run(&["exec", "--", "sh", "-c", "exit 42"])), Some(42));
}

#[test]
fn requests_come_from_yaml_and_json() {
    let house = House::open();
    let yaml = "AlgorithmSpecification:\n  TrainingImage: shoal/host\n  TrainingInputMode: File\n  ContainerEntrypoint: [cat, /opt/ml/input/config/hyperparameters.json]\n\
                HyperParameters: {eta: 0.5}\n";
    let path = house.dir.path().join("job.yaml");
    fs::write(&path, yaml).unwrap();
    let file = path.to_str().unwrap();
    let request: Value =
        serde_json::from_slice(&house.run(&["train", file, "--name", "from-yaml", "--dry-run"]).stdout).unwrap();
    let json = house.dir.path().join("job.json");
    fs::write(&json, request.to_string()).unwrap();
    for (file, name) in [(file, "from-yaml"), (json.to_str().unwrap(), "from-json")] {
        assert_eq!(code(&house.run(&["train", file, "--name", name])), Some(0));
        assert_eq!(text(&house.run(&["jobs", "logs", name]).stdout).trim(), "{\"eta\":\"0.5\"}");
    }
    fs::write(&path, "a: [1").unwrap();
    let wrong = house.run(&["train", file]);
    assert_eq!(code(&wrong), Some(2));
    assert!(text(&wrong.stderr).contains("job.yaml is not YAML"), "{}", text(&wrong.stderr));
}

#[test]
fn doctor_names_what_is_missing() {
    let house = House::open();
    let report: Value = serde_json::from_slice(&house.run(&["doctor", "--json"]).stdout).unwrap();
    let state = |name: &str| {
        report.as_array().unwrap().iter().find(|check| check["check"] == name).map(|check| check["state"].clone())
    };
    assert_eq!(state("server"), Some("ok".into()));
    assert!(state("isolation").is_some() && state("limits").is_some());
    let without =
        shoal(house.dir.path()).args(["doctor", "--json"]).env("XGB_LIB", "/no/such/library.so").output().unwrap();
    assert_eq!(code(&without), Some(1));
    assert!(text(&without.stdout).contains("/no/such/library.so"));
}
