//! A training job without a server's core: agents as real processes, one small server, the files of
//! one attempt.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use shoal_agent::{Libraries, LibraryFinder, ObjectCache, Options};
use shoal_environments::{Cache, Images, Source};
use shoal_link::{
    Assignment, Channel, Delivery, Endpoint, Input, Limits, MetricDefinition, Order, OutputCompression, Program,
};

use crate::server::{LIMIT, Server};

/// What the server tells its agents of the machine, if it does.
pub(crate) static SUPPORT: OnceLock<(String, String)> = OnceLock::new();

pub(crate) const TOKEN: &str = "00112233";

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) attempt: String,
    agents: BTreeMap<u32, Child>,
}

/// The agent's side of [`Stage::start_agent`].
pub(crate) fn play_agent(arguments: &[String]) -> i32 {
    let [socket, attempt, host, token, run_dir] = arguments else { panic!("{arguments:?}") };
    shoal_agent::main(Options {
        server: shoal_agent::Server::Socket(socket.into()),
        objects: ObjectCache::new(Path::new(run_dir).join("objects"), 1 << 30),
        shared: None,
        libraries: LibraryFinder(Arc::new(|_| Ok(Libraries::default()))),
        attempt: attempt.clone(),
        host: host.parse().unwrap(),
        token: token.clone(),
        run_dir: run_dir.into(),
        data_id: "test".into(),
        program: std::env::current_exe().unwrap(),
        environments: Cache::new(Path::new(run_dir).join("environments"), Source::of_this_process(None)),
        python_package: None,
        images: Images::new(Path::new(run_dir).join("images")),
    })
}

impl Stage {
    pub(crate) fn new(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("shoal-agent-").tempdir().unwrap();
        let attempt = format!("{name}-{}", std::process::id());
        fs::create_dir(dir.path().join("run")).unwrap();
        for (name, content) in [("a.csv", "1,2\n"), ("sub/b.csv", "3,4\n")] {
            let path = dir.path().join("tree").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Self { server: Server::start(dir.path(), TOKEN), dir, attempt, agents: BTreeMap::new() }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// What instance `host` of `hosts` runs: a shell script.
    pub(crate) fn assignment(&self, host: u32, hosts: u32, script: &str) -> Assignment {
        Assignment {
            job_name: "job".into(),
            job_arn: "arn:aws:sagemaker:us-east-1:000000000000:training-job/job".into(),
            region: "us-east-1".into(),
            host,
            hosts: (1..=hosts).map(|host| format!("algo-{host}")).collect(),
            instance_type: "ml.m5.large".into(),
            groups: Vec::new(),
            hyperparameters: [("epochs".to_owned(), "3".to_owned())].into(),
            environment: [("GREETING".to_owned(), "hello".to_owned())].into(),
            channels: vec![Channel {
                name: "train".into(),
                tree: Input::Local(self.dir.path().join("tree").display().to_string()),
                content_type: Some("text/csv".into()),
                distribution: "FullyReplicated".into(),
                record_wrapper: "None".into(),
                delivery: Delivery::Files,
            }],
            program: Program::Host { entrypoint: vec!["/bin/sh".into(), "-c".into()], arguments: vec![script.into()] },
            python: None,
            root: None,
            metric_definitions: [("auc", r"auc:(\S+)"), ("loss", r"#011loss:(\S+)")]
                .map(|(name, regex)| MetricDefinition { name: name.into(), regex: regex.into() })
                .into(),
            objective: None,
            limits: Limits {
                memory_bytes: 256 << 20,
                together_bytes: None,
                cpus: 2,
                cpu_weight: 100,
                pids: 256,
                disk_bytes: None,
                gpus: vec![],
            },
            endpoint: Some(Endpoint {
                server_address: Some("127.0.0.1:1".into()),
                access_key_id: "AK".into(),
                secret_access_key: "SK".into(),
                session_token: "ST".into(),
            }),
            egress: None,
            checkpoint: None,
            debug_hook: None,
            rules: Vec::new(),
            profiler_rules: Vec::new(),
            tensor_board: None,
            intermediate: None,
            output_compression: OutputCompression::Gzip,
            lease_s: 60,
            grace_s: 1,
            resource: None,
            elastic: None,
            warm: false,
            machine_network: None,
            sampling: None,
            profiler: None,
        }
    }

    /// One instance that runs a script.
    pub(crate) fn run(&mut self, script: &str) {
        self.start(self.assignment(1, 1, script));
    }

    pub(crate) fn start(&mut self, assignment: Assignment) {
        let host = assignment.host;
        self.server.assign(assignment);
        self.start_agent(host, TOKEN);
    }

    pub(crate) fn start_agent(&mut self, host: u32, token: &str) {
        let agent = Command::new("/proc/self/exe")
            .args(["agent".as_ref(), self.server.socket().as_os_str(), self.attempt.as_ref()])
            .args([host.to_string().as_ref(), token.as_ref(), self.run_dir().as_os_str()])
            .envs(SUPPORT.get().cloned())
            .current_dir("/")
            .stdin(Stdio::null())
            .spawn();
        self.agents.insert(host, agent.unwrap());
    }

    pub(crate) fn agent(&self, host: u32) -> u32 {
        self.agents[&host].id()
    }

    pub(crate) fn kill_agent(&mut self, host: u32) {
        self.agents.get_mut(&host).unwrap().kill().unwrap();
    }

    /// The agent's exit, which must come by itself.
    pub(crate) fn exit(&mut self, host: u32) -> ExitStatus {
        let agent = self.agents.get_mut(&host).unwrap();
        let mut status = None;
        eventually("the agent's end", || {
            status = agent.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Lets all agents go, and looks that they leave nothing.
    pub(crate) fn release(mut self) {
        let hosts: Vec<u32> = self.agents.keys().copied().collect();
        hosts.iter().for_each(|host| self.server.order(*host, Order::Release));
        for host in hosts {
            assert_eq!(self.exit(host).code(), Some(0), "of the agent of algo-{host}");
        }
        self.nothing_is_left();
    }

    pub(crate) fn nothing_is_left(&self) {
        let entries = fs::read_dir(self.run_dir()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = entries.filter(|name| name.to_string_lossy().starts_with("algo-")).collect();
        assert!(left.is_empty(), "{left:?}");
        eventually("the end of all processes", || processes_with(&self.attempt).is_empty());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for agent in self.agents.values_mut() {
            // Done already, unless the test failed.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

/// Command lines of the processes that have `text` in theirs.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let lines =
        pids.filter(|pid| *pid != std::process::id()).filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(text)).collect()
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Unpacks a `.tar.gz` with the real tar.
pub(crate) fn unpack(archive: &[u8], dir: &Path) -> PathBuf {
    let (file, out) = (dir.join("archive.tar.gz"), dir.join("unpacked"));
    fs::write(&file, archive).unwrap();
    let _ = fs::remove_dir_all(&out);
    fs::create_dir(&out).unwrap();
    let status = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&out).status().unwrap();
    assert!(status.success());
    out
}
