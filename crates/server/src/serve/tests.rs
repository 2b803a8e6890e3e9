//! What ends a server besides its owner.

use std::path::Path;

use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, MemoryUse};
use shoal_plane::{Capacity, Catalog, Command, Form, GangSpec, JobView, Node, Packing, SecondaryStatus};
use shoal_store::Rows;
use shoal_wire::{CreateTrainingJob, Stored};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::{limits::MAX_CONNECTIONS, running::LOOK, *};
use crate::{Image, ImageError, Images, TelemetryLimits, core::Opaque};

/// Programs on the machine's own `/usr`, and no image.
struct HostAlone;

impl Images for HostAlone {
    fn known(&self, image: &str) -> Result<Option<Image>, ImageError> {
        Ok((image == "shoal/host").then_some(Image::Host))
    }

    fn resolve(&self, image: &str) -> Result<Image, ImageError> {
        self.known(image)?.ok_or_else(|| ImageError(image.to_owned()))
    }

    fn framework(&self, _: &str) -> Result<Option<shoal_link::PythonEnvironment>, ImageError> {
        Ok(None)
    }

    fn metric_definitions(&self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn resources(&self) -> Vec<String> {
        Vec::new()
    }
}

fn options(data_dir: &Path) -> Options {
    Options {
        objects: None,
        passthrough: crate::PassthroughOptions::default(),
        jobs_days: None,
        experiments_days: None,
        audit_days: None,
        quotas: crate::QuotaOptions::default(),
        roles: crate::Roles::default(),
        kms: Default::default(),
        data_dir: data_dir.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        agents: None,
        tls: None,
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        default_bucket: "sagemaker-us-east-1-000000000000".to_owned(),
        max_skew_s: 900,
        strict: false,
        audit_reads: false,
        capacity: Capacity::of(
            Node { cpus: 1, memory_bytes: 1 << 30, gpus: 0, instances: 1, ..Node::local() },
            Packing::Promise,
        ),
        catalog: Catalog::default(),
        launcher: Arc::new(shoal_launch::Local::default()),
        program: PathBuf::from("/bin/false"),
        agent_env: Vec::new(),
        remote_agent_env: Vec::new(),
        grace_s: 1,
        silence_s: 60,
        target_silence_s: 300,
        metrics_interval_ms: Some(1000),
        telemetry: TelemetryLimits { job_bytes: 1 << 20, total_bytes: 1 << 20, days: None },
        lease_s: None,
        network: crate::NetworkOptions::default(),
        targets: crate::ComputeTargets::default(),
        file_systems: crate::FileSystems::default(),
        notifications: crate::NotificationOptions::default(),
        sso: None,
        images: Arc::new(HostAlone),
        sweep: Arc::new(|_| Vec::new()),
        remove_tree: |path| std::fs::remove_dir_all(path),
    }
}

/// A server that no client connects to, for tests of what its parts do together.
pub(crate) struct Unconnected {
    pub(crate) api: Arc<Api>,
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) pools: WarmPools,
    pub(crate) front: Arc<Front>,
    server: Server,
    _dir: tempfile::TempDir,
}

impl Unconnected {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::parse("ml.m5.large 1 1 0 - 0.1").unwrap();
        let server = Server::start(Options { catalog, ..options(dir.path()) }).await.unwrap();
        let front = server.front.clone();
        Self {
            api: front.api.clone(),
            core: server.core.clone(),
            rows: front.api.rows.clone(),
            objects: server.objects.clone(),
            telemetry: server.telemetry.clone(),
            pools: WarmPools { telemetry: server.telemetry.clone() },
            front,
            server,
            _dir: dir,
        }
    }

    pub(crate) async fn stop(self) {
        self.server.run(std::future::ready(())).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_lost_a_thread_ends_with_an_error() {
    for (lost, is_core) in [("core", true), ("agents", false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::start(options(dir.path())).await.unwrap();
        let thread = if is_core { &mut server.core_thread } else { &mut server.agents_thread };
        let real = std::mem::replace(thread, thread::spawn(|| panic!("a defect")));
        let ended = server.run(std::future::pending()).await;
        assert!(matches!(&ended, Err(ServerError::Thread(name)) if *name == lost), "{ended:?}");
        real.join().unwrap();
    }
}

#[tokio::test]
async fn a_panic_while_the_server_stops_is_an_error_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(options(dir.path())).await.unwrap();
    let (stopping, stopped) = std::sync::mpsc::channel::<()>();
    let late = thread::spawn(move || {
        let _ = stopped.recv();
        panic!("a defect")
    });
    let real = std::mem::replace(&mut server.core_thread, late);
    let ended = server.run(async move { drop(stopping) }).await;
    assert!(matches!(&ended, Err(ServerError::Thread("core"))), "{ended:?}");
    real.join().unwrap();
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_stops() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).await.unwrap();
    server.run(std::future::ready(())).await.unwrap();
}

#[tokio::test]
async fn a_server_whose_places_are_all_taken_hears_that_it_is_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(options(dir.path())).await.unwrap();
    server.open = Connections::new(1);
    let answering = server.open.admit().await;
    answering.signed(crate::connections::Signer::Owner);
    let address = server.address();
    let stop = async move {
        let waits = tokio::net::TcpStream::connect(address).await.unwrap();
        // The server accepts it, and has no place for it.
        tokio::time::sleep(2 * LOOK).await;
        drop(waits);
    };
    server.run(stop).await.unwrap();
    drop(answering);
}

#[tokio::test]
async fn nothing_after_a_refused_head_is_taken_for_its_body() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).await.unwrap();
    let address = server.address();
    let scope =
        |service| format!("Credential=AKIA/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0");
    let ask = async move {
        for (line, service) in [("PUT /b/k", "s3"), ("POST /", "sagemaker"), ("POST /console/nothing", "")] {
            let authorization = if service.is_empty() {
                String::new()
            } else {
                format!("Authorization: AWS4-HMAC-SHA256 {}\r\n", scope(service))
            };
            let waits = format!(
                "{line} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n{authorization}\r\n"
            );
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            // One byte of the next request would be the body, and the rest a request with the
            // method ET.
            client.write_all(format!("{waits}GET / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
            let mut answers = Vec::new();
            // What was not read may reset the connection; the answer is there before.
            let ended = tokio::time::timeout(Duration::from_secs(10), client.read_to_end(&mut answers)).await;
            let answers = String::from_utf8(answers).unwrap();
            assert!(ended.is_ok(), "the connection is still open after: {answers}");
            assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
            assert!(answers.starts_with("HTTP/1.1 4") && answers.contains("connection: close\r\n"), "{answers}");
        }
    };
    server.run(ask).await.unwrap();
}

#[tokio::test]
async fn a_connection_whose_request_was_refused_before_its_body_came_answers_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).await.unwrap();
    let address = server.address();
    let ask = async move {
        let mut client = BufReader::new(tokio::net::TcpStream::connect(address).await.unwrap());
        for line in ["PUT /b?versioning", "GET /b?versions"] {
            let head = format!(
                "{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nAuthorization: AWS4-HMAC-SHA256 \
                 Credential=AKIA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            // Longer than the server needs for an answer.
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.write_all(b"text").await.unwrap();
            let (mut answer, mut length) = (String::new(), 0);
            while !answer.ends_with("\r\n\r\n") {
                let at = answer.len();
                assert!(client.read_line(&mut answer).await.unwrap() > 0, "{line}: the connection is closed: {answer}");
                if let Some(value) = answer[at..].strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains("connection: close"), "{answer}");
            client.read_exact(&mut vec![0; length]).await.unwrap();
        }
    };
    server.run(ask).await.unwrap();
}

#[test]
fn connections_leave_files_for_what_they_ask_for() {
    for (files, expected) in [(0, 8), (200, 36), (1024, 448), (1 << 20, MAX_CONNECTIONS)] {
        assert_eq!(places(files), expected, "{files}");
    }
}

/// A compute target with a queue of its own.
struct Elsewhere(Mutex<AllocationStatus>);

impl Launcher for Elsewhere {
    fn submit(&self, _: &AllocationSpec) -> Result<(), LaunchError> {
        Ok(())
    }

    fn add(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn remove(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        specs.iter().map(|_| Ok(self.0.lock().unwrap().clone())).collect()
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        MemoryUse::new()
    }

    fn stop(&self, _: &AllocationSpec) -> Result<(), LaunchError> {
        Ok(())
    }
}

async fn until(core: &Core, is_so: impl Fn(&JobView) -> bool) -> JobView {
    loop {
        match core.view("a").await {
            Some(view) if is_so(&view) => return view,
            view => assert!(view.is_none_or(|view| view.failure_reason.is_none()), "the launch fails"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_launch_that_is_queued_elsewhere_is_pending_with_the_targets_reason() {
    let dir = tempfile::tempdir().unwrap();
    let queued = |reason: &str| AllocationStatus::Queued { reason: reason.to_owned() };
    let target = Arc::new(Elsewhere(Mutex::new(queued("Resources"))));
    let options = Options {
        launcher: target.clone(),
        catalog: Catalog::parse("ml.m5.large 1 1 0 - 0.1").unwrap(),
        ..options(dir.path())
    };
    let server = Server::start(options.clone()).await.unwrap();
    let spec = GangSpec::new("ml.m5.large", 1, Form::Ends { max_runtime_s: 3600 }, 1);
    let request = serde_json::json!({
        "TrainingJobName": "a",
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        "OutputDataConfig": {"S3OutputPath": "s3://sagemaker-us-east-1-000000000000/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    });
    let command =
        Command::CreateTrainingJob { name: "a".to_owned().into(), uid: "u".to_owned(), spec, name_taken: false };
    let opaque = Opaque {
        creator: None,
        uid: "u".to_owned(),
        arn: "arn".to_owned(),
        request: request.to_string().into_bytes(),
        spec: CreateTrainingJob::from_raw(request).unwrap().to_stored(),
        tags: b"[]".to_vec(),
    };
    server.core.ask(command, Some(opaque)).await.unwrap();
    for reason in ["Resources", "Priority"] {
        *target.0.lock().unwrap() = queued(reason);
        let message = format!("The launch is queued: {reason}");
        let view =
            until(&server.core, |view| view.transitions.last().is_some_and(|last| last.message == message)).await;
        assert_eq!(view.secondary, SecondaryStatus::Pending);
        assert_eq!(view.pending.unwrap().to_string(), message);
    }
    // Its end falls between two servers.
    server.run(std::future::ready(())).await.unwrap();
    *target.0.lock().unwrap() = AllocationStatus::Running { lost: Vec::new() };
    let server = loop {
        // What was aborted on another thread may have the data directory for a moment.
        match Server::start(options.clone()).await {
            Err(ServerError::Store(shoal_store::StoreError::Locked { .. })) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            started => break started.unwrap(),
        }
    };
    let view = until(&server.core, |view| view.secondary == SecondaryStatus::Starting).await;
    assert_eq!((view.pending, view.transitions.last().unwrap().message.as_str()), (None, "Starting the instances"));
    server.run(std::future::ready(())).await.unwrap();
}
