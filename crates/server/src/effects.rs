//! Doing what the core asks for. Each attempt's actions run one after the other, different attempts' beside each other;
//! every one may be repeated after a crash.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use shoal_launch::{AllocationSpec, AllocationStatus, Launcher};
use shoal_link::{Assignment, Endpoint, Limits, MetricDefinition, Order, OutputCompression, Program};
use shoal_plane::{Action, Command, InstanceReport, Placement};
use shoal_store::{DataDir, LogLines, Objects, Rows, Telemetry};
use shoal_wire::{CreateTrainingJob, S3Uri, arn};
use tokio::sync::mpsc;

use crate::{
    Image, Images, RemoveTree, Sweep, artifacts,
    attempts::{Attempt, Attempts, Plan, run_dir},
    channels::Trees,
    checkpoints,
    core::{Core, Refusal, now_ms},
    exporter::Exporter,
    keys::AccessKeys,
    tuning::Tuner,
};

/// How long agents have to leave by themselves once released.
const LEAVE: Duration = Duration::from_secs(3);
/// Between two tries to tell the core what it has to know.
const INSIST: Duration = Duration::from_secs(1);
/// Between two times that the core hears of a launch that waits for room; much less than it waits for a report.
const DELAY: Duration = Duration::from_secs(60);
/// Between two looks at whether agents live.
const WATCH: Duration = Duration::from_millis(500);

/// Everything that effects touch.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) trees: Trees,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) keys: AccessKeys,
    pub(crate) sweep: Sweep,
    pub(crate) remove_tree: RemoveTree,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) program: PathBuf,
    pub(crate) agent_env: Vec<(String, String)>,
    pub(crate) data_id: String,
    /// Locked for as long as anything may still be done in it.
    pub(crate) data_dir: DataDir,
    pub(crate) runs: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) server_address: String,
    pub(crate) lease_s: Option<u64>,
    pub(crate) grace_s: u32,
    pub(crate) silence: Duration,
}

/// The hyperparameter by which a tuning job tells its trials the objective metric's name.
const TUNING_OBJECTIVE: &str = "_tuning_objective_metric";

type Queues = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Action>>>>;

/// Deals actions out, one queue per attempt; what the tuner is asked and told has its own.
/// `pending` is what a server before this one may have left undone.
pub(crate) async fn run(world: Arc<World>, tuner: Tuner, mut actions: mpsc::UnboundedReceiver<Vec<Action>>, pending: Vec<Action>) {
    let queues: Queues = Arc::default();
    let mut next = Some(pending);
    while let Some(batch) = next {
        for action in batch {
            if matches!(action, Action::Suggest { .. } | Action::Observe { .. }) {
                tuner.take(action);
                continue;
            }
            let attempt = attempt_of(&action).to_owned();
            let mut open = queues.lock().expect("no holder of this lock panics");
            let queue = open.entry(attempt).or_insert_with_key(|attempt| {
                let (queue, waiting) = mpsc::unbounded_channel();
                tokio::spawn(work(world.clone(), waiting, attempt.clone(), queues.clone()));
                queue
            });
            // The worker leaves only after it has taken its queue out of the map.
            let _ = queue.send(action);
        }
        next = actions.recv().await;
    }
}

async fn work(world: Arc<World>, mut waiting: mpsc::UnboundedReceiver<Action>, attempt: String, queues: Queues) {
    while let Some(action) = waiting.recv().await {
        let last = matches!(action, Action::Release { .. });
        let world = world.clone();
        let done = tokio::task::spawn_blocking(move || world.perform(action)).await;
        if let Err(error) = done {
            tracing::error!("an action of {attempt} panicked: {error}");
        }
        if last {
            queues.lock().expect("no holder of this lock panics").remove(&attempt);
            return;
        }
    }
}

fn attempt_of(action: &Action) -> &str {
    match action {
        Action::Launch { attempt, .. }
        | Action::StopInstances { attempt, .. }
        | Action::StoreArtifacts { attempt, .. }
        | Action::Release { attempt, .. }
        | Action::Freeze { attempt }
        | Action::GoOn { attempt, .. } => attempt,
        Action::Suggest { tuning, .. } | Action::Observe { tuning, .. } => tuning,
    }
}

impl World {
    fn perform(&self, action: Action) {
        let told = match action {
            Action::Launch { job, attempt, placement, instances, lease_s, .. } => {
                self.launch(&job, &attempt, &placement, instances, lease_s)
            }
            Action::StopInstances { attempt, hosts, grace_s, reason } => {
                if let Some(running) = self.attempts.get(&attempt) {
                    for host in hosts {
                        running.order(host, Order::Stop { grace_s, reason: reason.clone() });
                    }
                }
                Ok(())
            }
            Action::StoreArtifacts { job, attempt, hosts } => self.store_artifacts(&job, attempt, &hosts),
            Action::Release { attempt, .. } => self.release(attempt),
            Action::Freeze { .. } | Action::GoOn { .. } | Action::Suggest { .. } | Action::Observe { .. } => {
                tracing::error!("this server runs no tuning jobs");
                Ok(())
            }
        };
        if let Err(refusal) = told {
            // The server is stopping: the same action is asked for again at the next start.
            tracing::debug!("the core did not take the outcome of an action: {refusal}");
        }
    }

    /// Tells the core the outcome of an action, again and again while the journal cannot be written: the action would not be asked for
    /// a second time before the next start.
    fn insist(&self, command: &Command) -> Result<(), Refusal> {
        // A disk that loses what is written is the server's end, not the job's: the next start does the same again.
        let is_failure = matches!(command, Command::LaunchFailed { .. } | Command::ArtifactsFailed { .. });
        if is_failure && (self.telemetry.failure().is_some() || self.objects.failure().is_some()) {
            return Err(Refusal::Stopping);
        }
        loop {
            match self.core.tell(command.clone()) {
                Err(Refusal::Journal(error)) => {
                    tracing::error!("the outcome of an action waits for the journal: {error}");
                    thread::sleep(INSIST);
                }
                told => return told,
            }
        }
    }

    fn launch(&self, job: &str, attempt: &str, placement: &Placement, instances: u32, lease_s: u64) -> Result<(), Refusal> {
        if !self.await_room(job, attempt) {
            return Ok(());
        }
        let outcome = self.request(job).and_then(|request| self.start_agents(&request, attempt, placement, instances, lease_s));
        match outcome {
            Ok(()) => Ok(()),
            Err(reason) => self.insist(&Command::LaunchFailed { attempt: attempt.to_owned(), reason }),
        }
    }

    /// A full disk must not fail one job of the queue after the other. Says whether the job is still to be launched.
    fn await_room(&self, job: &str, attempt: &str) -> bool {
        let mut complained = false;
        let mut told: Option<Instant> = None;
        while let Err(error) = self.data_dir.ensure_room() {
            if !std::mem::replace(&mut complained, true) {
                tracing::error!("training job {job} is not launched yet: {error}");
            }
            if told.is_none_or(|at| at.elapsed() >= DELAY) {
                let delayed = Command::LaunchDelayed { attempt: attempt.to_owned(), reason: error.to_string() };
                told = self.core.tell(delayed).is_ok().then(Instant::now);
            }
            thread::sleep(INSIST);
            let is_wanted = self.rows.job(job).is_ok_and(|row| row.is_some_and(|row| !row.ended));
            if !is_wanted || matches!(self.core.tell(Command::Tick), Err(Refusal::Stopping)) {
                return false;
            }
        }
        true
    }

    fn request(&self, job: &str) -> Result<CreateTrainingJob, String> {
        let row = self.rows.job(job).map_err(|error| error.to_string())?.ok_or_else(|| format!("no row of training job {job}"))?;
        shoal_wire::restore(&row.request).map_err(|error| format!("the stored request of {job} cannot be read: {error}"))
    }

    /// Prepares the channels and starts all agents or none. Repeated after a crash it adopts what lives.
    fn start_agents(
        &self,
        request: &CreateTrainingJob,
        attempt: &str,
        placement: &Placement,
        instances: u32,
        lease_s: u64,
    ) -> Result<(), String> {
        let dir = run_dir(&self.runs, attempt);
        let allocation = self.allocation(attempt, instances);
        let known = Plan::read(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut spec = allocation.clone();
        spec.env.push(("SHOAL_AGENT_TOKEN".to_owned(), self.keys.agent_token(attempt)));
        if let Some(plan) = known {
            self.adopt(plan, allocation);
            // Agents that a crash in the middle of the first submission left unstarted start now; none starts twice.
            return self.launcher.submit(&spec).map_err(|error| describe(&error));
        }
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let plan = self.plan(request, attempt, placement, instances, lease_s)?;
        plan.write(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        if let Some(capped) = &placement.capped {
            let lines = vec![(now_ms(), format!("[shoal] {capped}"))];
            let logs = LogLines { stream: plan.streams[0].clone(), lines };
            self.telemetry.append_logs(&[logs]).map_err(|error| error.to_string())?;
        }
        self.attempts.insert(Attempt::new(plan, allocation, &self.keys));
        self.launcher.submit(&spec).map_err(|error| describe(&error))
    }

    /// Takes an attempt that runs already into the tables (after a restart).
    pub(crate) fn adopt(&self, plan: Plan, allocation: AllocationSpec) {
        for assignment in &plan.assignments {
            for channel in &assignment.channels {
                self.trees.claim(channel.tree.as_ref(), &plan.attempt);
            }
            if let Some(tree) = assignment.checkpoint.as_ref().and_then(|checkpoint| checkpoint.tree.as_ref()) {
                self.trees.claim(tree.as_ref(), &plan.attempt);
            }
        }
        self.attempts.insert(Attempt::new(plan, allocation, &self.keys));
    }

    /// The same for the same attempt, whenever it is asked for.
    pub(crate) fn allocation(&self, attempt: &str, instances: u32) -> AllocationSpec {
        let dir = run_dir(&self.runs, attempt);
        let arg = |text: &str| text.to_owned();
        AllocationSpec {
            id: format!("{}-{attempt}", self.data_id),
            instances,
            program: self.program.clone(),
            args: vec![
                arg("agent"),
                arg("--socket"),
                self.socket.display().to_string(),
                arg("--attempt"),
                attempt.to_owned(),
                arg("--run-dir"),
                dir.display().to_string(),
                arg("--data-id"),
                self.data_id.clone(),
            ],
            env: self.agent_env.clone(),
            dir,
        }
    }

    fn plan(
        &self,
        request: &CreateTrainingJob,
        attempt: &str,
        placement: &Placement,
        instances: u32,
        lease_s: u64,
    ) -> Result<Plan, String> {
        let image = self.images.resolve(request.algorithm.training_image.as_deref().unwrap_or_default()).map_err(|error| error.0)?;
        let mut trees = Vec::with_capacity(request.channels.len());
        for channel in &request.channels {
            trees.push(self.trees.prepare(attempt, channel, instances)?);
        }
        let checkpoint = match &request.checkpoint {
            None => None,
            Some(config) => Some(shoal_link::Checkpoint {
                local_path: config.local_path.clone(),
                uri: config.uri.to_string(),
                tree: self.trees.prepare_checkpoints(attempt, &config.uri)?.map(|tree| tree.display().to_string()),
            }),
        };
        let hosts: Vec<String> = (1..=instances).map(|host| format!("algo-{host}")).collect();
        let requested: Vec<_> = request.algorithm.metric_definitions.iter().map(|it| (it.name.clone(), it.regex.clone())).collect();
        let (program, metric_definitions) = match image {
            Image::Builtin { name, metric_definitions, library_dir, variables, .. } => {
                let image = request.algorithm.training_image.clone().unwrap_or_default();
                let definitions = if requested.is_empty() { metric_definitions } else { requested };
                (Program::Builtin { name, image, library_dir, variables }, definitions)
            }
            Image::Host => {
                let entrypoint = request.algorithm.entrypoint.clone();
                (Program::Host { entrypoint, arguments: request.algorithm.arguments.clone() }, requested)
            }
        };
        let metric_definitions: Vec<_> = metric_definitions.into_iter().map(|(name, regex)| MetricDefinition { name, regex }).collect();
        let assignments = (1..=instances)
            .map(|host| Assignment {
                job_name: request.name.clone(),
                job_arn: arn::training_job(&self.region, &self.account, &request.name),
                region: self.region.clone(),
                host,
                hosts: hosts.clone(),
                instance_type: request.resources.instance_type.clone(),
                hyperparameters: request.hyperparameters.clone(),
                environment: request.environment.clone(),
                channels: request
                    .channels
                    .iter()
                    .zip(&trees)
                    .map(|(channel, trees)| shoal_link::Channel {
                        name: channel.name.clone(),
                        tree: trees[host as usize - 1].display().to_string(),
                        content_type: channel.content_type.clone(),
                        distribution: channel.distribution.as_str().to_owned(),
                        record_wrapper: channel.record_wrapper.as_str().to_owned(),
                    })
                    .collect(),
                program: program.clone(),
                metric_definitions: metric_definitions.clone(),
                // A trial's objective is the first host's alone.
                objective: objective(request).filter(|_| host == 1),
                limits: Limits {
                    memory_bytes: placement.memory_bytes,
                    cpus: placement.cpus,
                    cpu_weight: placement.cpu_weight,
                    pids: 4096,
                    gpus: placement.gpus.get(host as usize - 1).cloned().unwrap_or_default(),
                },
                endpoint: None,
                checkpoint: checkpoint.clone(),
                output_compression: match request.output.compression {
                    shoal_wire::OutputCompression::Gzip => OutputCompression::Gzip,
                    shoal_wire::OutputCompression::None => OutputCompression::None,
                },
                lease_s: self.lease_s.unwrap_or(lease_s),
                grace_s: self.grace_s,
            })
            .collect();
        // Each attempt has streams of its own, though a retry may follow within the second: attempts are named `<uid>-<number>`.
        let number: u64 = attempt.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1);
        let epoch = now_ms() / 1000 + number - 1;
        Ok(Plan {
            version: Plan::VERSION,
            job: request.name.clone(),
            attempt: attempt.to_owned(),
            streams: hosts.iter().map(|host| format!("{}/{host}-{epoch}", request.name)).collect(),
            reads: reads(request),
            writes: writes(request),
            isolated: request.enable_network_isolation,
            checkpoints: request.checkpoint.as_ref().map(|config| checkpoints::place(&config.uri)),
            assignments,
        })
    }

    /// The endpoint of an attempt: derived, so that no secret stands in a file.
    pub(crate) fn endpoint(&self, attempt: &Attempt) -> Option<Endpoint> {
        let keys = attempt.keys.clone();
        (!attempt.plan.isolated).then(|| Endpoint {
            server_address: self.server_address.clone(),
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: keys.session_token.unwrap_or_default(),
        })
    }

    fn store_artifacts(&self, job: &str, attempt: String, hosts: &[u32]) -> Result<(), Refusal> {
        let stored = self.request(job).and_then(|request| {
            artifacts::store(&self.objects, &run_dir(&self.runs, &attempt), hosts, &request.output, job).map_err(|error| describe(&error))
        });
        match stored {
            Ok(()) => self.insist(&Command::ArtifactsStored { attempt }),
            Err(reason) => self.insist(&Command::ArtifactsFailed { attempt, reason }),
        }
    }

    /// Lets the agents go, makes sure that they are gone, and removes what they had.
    fn release(&self, attempt: String) -> Result<(), Refusal> {
        if let Some(running) = self.attempts.get(&attempt) {
            for host in 1..=running.allocation.instances {
                running.order(host, Order::Release);
            }
            let until = Instant::now() + LEAVE;
            while (Instant::now() < until || running.is_saving())
                && matches!(self.launcher.status(&running.allocation), Ok(AllocationStatus::Running { .. }))
            {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.clear(&attempt);
        self.insist(&Command::Released { attempt })
    }

    /// Ends and removes what there is of an attempt: processes, leftovers of sandboxes, files, links.
    pub(crate) fn clear(&self, attempt: &str) {
        let dir = run_dir(&self.runs, attempt);
        let instances = match Plan::read(&dir) {
            Ok(Some(plan)) => u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX),
            Ok(None) | Err(_) => 0,
        };
        if let Err(error) = self.launcher.stop(&self.allocation(attempt, instances)) {
            tracing::error!("{}", describe(&error));
        }
        for removed in (self.sweep)(&format!("{}-{attempt}-", self.data_id)) {
            tracing::info!("{removed}");
        }
        self.attempts.remove(attempt);
        self.trees.release(attempt);
        if let Err(error) = (self.remove_tree)(&dir) {
            tracing::error!("{}: {error}", dir.display());
        }
        if let Err(error) = self.telemetry.forget(attempt) {
            tracing::error!("{error}");
        }
    }

    /// Looks whether agents have died without saying so, for as long as the server lives.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut before = Instant::now();
        loop {
            tokio::time::sleep(WATCH).await;
            // A server that was stopped meanwhile has not listened meanwhile.
            let passed = before.elapsed().min(2 * WATCH);
            before = Instant::now();
            let world = self.clone();
            let looked =
                tokio::task::spawn_blocking(move || world.attempts.all().iter().for_each(|attempt| world.look(attempt, passed))).await;
            if let Err(error) = looked {
                tracing::error!("the watch panicked: {error}");
            }
        }
    }

    /// Reports the instances of an attempt whose agent is gone, or has been silent for too long.
    fn look(&self, attempt: &Attempt, passed: Duration) {
        let lost = match self.launcher.status(&attempt.allocation) {
            Ok(AllocationStatus::Running { lost }) => lost,
            Ok(AllocationStatus::Ended) => (1..=attempt.allocation.instances).collect(),
            Ok(AllocationStatus::Unknown | AllocationStatus::Queued { .. }) => return,
            Err(error) => return tracing::warn!("{}", describe(&error)),
        };
        for (host, silent) in attempt.listened(passed) {
            if lost.contains(&host) {
                let log = attempt.run_dir().join(format!("agent-{host}.log"));
                let said = fs::read_to_string(log).unwrap_or_default();
                let last = said.lines().rev().find(|line| !line.trim().is_empty()).map_or_else(String::new, |line| format!(": {line}"));
                self.lose(attempt, host, format!("the agent of algo-{host} ended without a report{last}"));
            } else if silent >= self.silence {
                let seconds = silent.as_secs();
                let what = "it was stopped, or its machine hangs, and what runs there is ended";
                self.lose(attempt, host, format!("the agent of algo-{host} was silent for {seconds} s: {what}"));
            }
        }
    }

    fn lose(&self, attempt: &Attempt, host: u32, reason: String) {
        let report = InstanceReport::Lost { reason };
        let command = Command::InstanceReported { attempt: attempt.plan.attempt.clone(), host, report };
        if let Err(refusal) = self.core.tell(command) {
            tracing::warn!("{refusal}");
        }
    }
}

/// What a job's temporary keys may write: its output and its checkpoints.
fn writes(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let output = place(&arn::output(&request.output.s3_output_path, &request.name, ""));
    [output].into_iter().chain(request.checkpoint.as_ref().map(|config| checkpoints::place(&config.uri))).collect()
}

/// What a job's temporary keys may read: its channels, its checkpoints and its submitted source.
fn reads(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let checkpoints = request.checkpoint.as_ref().map(|config| checkpoints::place(&config.uri));
    let source = request.hyperparameters.get("sagemaker_submit_directory").and_then(|uri| uri.trim_matches('"').parse().ok());
    request.channels.iter().map(|channel| place(&channel.uri)).chain(source.as_ref().map(place)).chain(checkpoints).collect()
}

/// The metric that a tuning job looks at, in the request of its trial.
fn objective(request: &CreateTrainingJob) -> Option<String> {
    request.hyperparameters.get(TUNING_OBJECTIVE).cloned()
}

fn place(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.prefix.clone())
}

/// An error with its sources in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
