//! Instances of a training job as processes on this machine: this test binary, started again, with
//! a tree of files of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::json;
use shoal_algos::{BUILT_IN, LibraryPath, xgboost};

/// Set in the processes that are instances.
const INSTANCE: &str = "SHOAL_TEST_INSTANCE";

/// Becomes an instance, if this process was started as one; the test of the same name calls it.
pub(crate) fn become_instance() {
    if std::env::var_os(INSTANCE).is_some() {
        std::process::exit(BUILT_IN.run("xgboost"));
    }
}

/// The real library, fetched once; `None` after telling why the test is skipped.
pub(crate) fn library() -> Option<&'static LibraryPath> {
    static LIBRARY: OnceLock<Result<LibraryPath, String>> = OnceLock::new();
    match LIBRARY
        .get_or_init(|| xgboost::LIBRARY.fetch(&mut |line| println!("{line}")).map_err(|error| error.to_string()))
    {
        Ok(path) => Some(path),
        Err(reason) => {
            println!("skipped: needs the XGBoost library: {reason}");
            None
        }
    }
}

/// A file of the shared data sets; `None` after telling that the test is skipped.
pub(crate) fn data_file(name: &str) -> Option<String> {
    let shared = std::env::var_os("SHOAL_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join("data").join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) => {
            println!("skipped: needs ../shared/data (SHOAL_SHARED names another folder): {}: {error}", path.display());
            None
        }
    }
}

/// A channel's name and its files (name and content).
pub(crate) type Channel<'a> = (&'a str, Vec<(&'a str, &'a str)>);

/// A training job to be run.
pub(crate) struct Job<'a> {
    pub(crate) hyperparameters: &'a [(&'a str, &'a str)],
    pub(crate) content_type: Option<&'a str>,
    /// The channels of each host.
    pub(crate) hosts: Vec<Vec<Channel<'a>>>,
}

/// A running job.
pub(crate) struct Cluster {
    pub(crate) instances: Vec<Instance>,
    _root: tempfile::TempDir,
}

/// One of its instances.
pub(crate) struct Instance {
    pub(crate) base: PathBuf,
    child: Child,
}

/// A model file's bytes.
pub(crate) struct Model(pub(crate) Vec<u8>);

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Model {
    /// What it predicts for csv rows without labels.
    pub(crate) fn predict(&self, features: &str) -> Vec<f32> {
        xgboost::predict(&self.0, features).unwrap()
    }
}

/// How an instance ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) failure: Option<String>,
    pub(crate) model: Option<Model>,
}

impl Ended {
    /// The metric lines.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        self.stdout
            .lines()
            .filter(|line| {
                line.starts_with('[') && line[1..].starts_with(|c: char| c.is_ascii_digit()) && line.contains("]\t")
            })
            .collect()
    }
}

/// Starts every host of a job; `environment` comes on top for all of them.
pub(crate) fn start(job: &Job<'_>, environment: &[(&str, &str)]) -> Cluster {
    start_mirrored(job, environment, None)
}

/// The same; every host's checkpoints are in a directory of its name in `checkpoints`.
pub(crate) fn start_mirrored(job: &Job<'_>, environment: &[(&str, &str)], checkpoints: Option<&Path>) -> Cluster {
    start_trial(job, environment, checkpoints, None)
}

/// The same, told how far it may go.
pub(crate) fn start_trial(
    job: &Job<'_>,
    environment: &[(&str, &str)],
    checkpoints: Option<&Path>,
    resource: Option<&str>,
) -> Cluster {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<String> = (1..=job.hosts.len()).map(|number| format!("algo-{number}")).collect();
    let port = free_port();
    let addresses: Vec<String> = names.iter().map(|name| format!("{name}=127.0.0.1")).collect();
    let hyperparameters: BTreeMap<&str, &str> = job.hyperparameters.iter().copied().collect();
    let instances = job.hosts.iter().zip(&names).map(|(channels, name)| {
        let base = root.path().join(name);
        let config = base.join("input/config");
        std::fs::create_dir_all(&config).unwrap();
        let mut inputs = serde_json::Map::new();
        for (channel, files) in channels {
            let directory = base.join("input/data").join(channel);
            std::fs::create_dir_all(&directory).unwrap();
            for (file, content) in files {
                std::fs::write(directory.join(file), content).unwrap();
            }
            let mut input = json!({ "TrainingInputMode": "File", "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "None" });
            if let Some(content_type) = job.content_type {
                input["ContentType"] = json!(content_type);
            }
            inputs.insert((*channel).to_owned(), input);
        }
        let write =
            |file: &str, value: serde_json::Value| std::fs::write(config.join(file), value.to_string()).unwrap();
        write("hyperparameters.json", json!(hyperparameters));
        write("inputdataconfig.json", inputs.into());
        write("resourceconfig.json", json!({ "current_host": name, "hosts": names }));
        if let Some(directory) = checkpoints.map(|checkpoints| checkpoints.join(name)) {
            std::fs::create_dir_all(&directory).unwrap();
            write("checkpointconfig.json", json!({ "S3Uri": "s3://bucket/prefix", "LocalPath": directory }));
        }
        if let Some(resource) = resource {
            std::fs::write(config.join("shoal_resource.json"), resource).unwrap();
        }
        let log = std::fs::File::create(base.join("stdout")).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["instance", "--exact", "--nocapture", "--test-threads=1"])
            .env(INSTANCE, "1")
            .env("SAGEMAKER_BASE_DIR", &base)
            .env("SHOAL_HOST_ADDRESSES", addresses.join(","))
            .env("SHOAL_ALGORITHM_PORT", port.to_string())
            // The jobs of tests that run at once look for their first hosts on the same ports: the
            // name tells them apart.
            .env("TRAINING_JOB_NAME", root.path().file_name().unwrap())
            .env("OMP_WAIT_POLICY", "PASSIVE")
            .env("SM_NUM_CPUS", "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log)
            .spawn()
            .unwrap();
        Instance { base, child }
    });
    Cluster { instances: instances.collect(), _root: root }
}

impl Cluster {
    /// Waits for every instance.
    pub(crate) fn wait(mut self) -> Vec<Ended> {
        self.instances.iter_mut().map(Instance::wait).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for instance in &mut self.instances {
            let _ = instance.child.kill();
            let _ = instance.child.wait();
        }
    }
}

impl Instance {
    /// Sends it a signal (`-KILL`).
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it wrote so far.
    pub(crate) fn stdout(&self) -> String {
        std::fs::read_to_string(self.base.join("stdout")).unwrap_or_default()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Ended {
        let status = self.child.wait().unwrap();
        Ended {
            code: status.code(),
            stdout: self.stdout(),
            failure: std::fs::read_to_string(self.base.join("output/failure")).ok(),
            model: std::fs::read(self.base.join("model/xgboost-model")).ok().map(Model),
        }
    }
}

fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    // Below the range that the system chooses from: else another test's tracker may be given the
    // port before this job listens on it.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as u32 + std::process::id() * 64;
        let port = u16::try_from(10_000 + number % 20_000).unwrap();
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}
