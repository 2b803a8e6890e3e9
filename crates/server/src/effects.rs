//! Doing what the core asks for, in the order of [`lanes`]; every action may be repeated after a crash.

mod lanes;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use shoal_console::JobChanges;
use shoal_launch::{AllocationSpec, AllocationStatus, Launcher, LauncherExt};
use shoal_link::{Endpoint, Order, Program};
use shoal_plane::{Action, Capacity, Catalog, Command, Effects};
use shoal_store::{DataDir, LogLines, Objects, ResourceKind, Rows, Telemetry};
use shoal_wire::{CreateTrainingJob, Service, no_effect};
use tokio::sync::mpsc;

use crate::{
    Images, NetworkOptions, RemoveTree,
    attempts::{Attempt, Attempts, Plan, run_dir},
    channels::Trees,
    core::{Core, Refusal, now_ms},
    effects::lanes::{Io, Lanes},
    exporter::Exporter,
    keys::AccessKeys,
    memory::Ranked,
    plans::Launch,
    requests,
    sweeps::Sweeps,
    tuning::{Looks, Tuner},
    visits::Visits,
    warm::Pool,
};

/// How long agents have to leave by themselves once released.
const LEAVE: Duration = Duration::from_secs(3);
/// Between two tries to tell the core what it has to know, or to launch where there was no room.
pub(crate) const INSIST: Duration = Duration::from_secs(1);
/// Between two times that the core hears of a launch that waits for room; much less than it waits for a report.
const DELAY: Duration = Duration::from_secs(60);

/// Everything that effects touch.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) trees: Trees,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) visits: Visits,
    pub(crate) pool: Pool,
    pub(crate) looks: Looks,
    pub(crate) job_changes: Arc<JobChanges>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) keys: AccessKeys,
    pub(crate) sweeps: Sweeps,
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
    pub(crate) capacity: Capacity,
    pub(crate) ranked: Mutex<Ranked>,
    pub(crate) catalog: Catalog,
    /// Bytes of log lines, and of metric points, that a training job may store.
    pub(crate) log_quota: u64,
    pub(crate) network: NetworkOptions,
}

impl World {
    /// A text for clients, who need not know where the server keeps its files.
    pub(crate) fn without_paths(&self, text: &str) -> String {
        text.replace(&self.data_dir.root().display().to_string(), "DATA_DIR")
    }
}

/// What was said of a launch that waits for room.
#[derive(Clone, Copy, Default)]
struct Delay {
    is_logged: bool,
    /// When the core was last told.
    told: Option<Instant>,
}

type Event = lanes::Event<Delay>;

/// Has the tuner answer its requests and does the actions, for as long as the server runs. `pending` is what a server before this one may
/// have left undone.
pub(crate) async fn run(world: Arc<World>, tuner: Tuner, mut effects: mpsc::UnboundedReceiver<Effects>, pending: Effects) {
    let (inbox, mut events) = mpsc::unbounded_channel();
    let mut driver = Driver { world, lanes: Lanes::default(), inbox };
    let mut next = Some(pending);
    loop {
        if let Some(Effects { actions, requests }) = next.take() {
            requests.into_iter().for_each(|request| tuner.take(request));
            actions.into_iter().for_each(|action| driver.handle(Event::Asked(action)));
        }
        tokio::select! {
            asked = effects.recv() => match asked {
                None => return,
                asked => next = asked,
            },
            Some(event) = events.recv() => driver.handle(event),
        }
    }
}

/// Performs what the lanes ask for.
struct Driver {
    world: Arc<World>,
    lanes: Lanes<Delay>,
    inbox: mpsc::UnboundedSender<Event>,
}

impl Driver {
    fn handle(&mut self, event: Event) {
        // Before a launch that follows is begun: it may have the instance then.
        if let Event::Asked(Action::Release { attempt, .. }) = &event
            && let Some(running) = self.world.attempts.get(attempt)
        {
            self.world.pool.leaves(&running);
        }
        for io in self.lanes.handle(event) {
            match io {
                Io::Perform(action, delay) => drop(tokio::spawn(perform(self.world.clone(), action, delay, self.inbox.clone()))),
                Io::Order(action) => {
                    let world = self.world.clone();
                    tokio::task::spawn_blocking(move || world.perform(action, Delay::default()));
                }
                Io::Cancel { attempt } => self.world.trees.cancel(&attempt),
                Io::Wait { attempt, wait } => {
                    let inbox = self.inbox.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(INSIST).await;
                        // The server is stopping if nobody hears of it.
                        let _ = inbox.send(Event::Due { attempt, wait });
                    });
                }
            }
        }
    }
}

/// Performs an action on a thread, and reports how it ended.
async fn perform(world: Arc<World>, action: Action, delay: Delay, inbox: mpsc::UnboundedSender<Event>) {
    let attempt = action.attempt().to_owned();
    let event = tokio::task::spawn_blocking(move || world.perform(action, delay)).await.unwrap_or_else(|error| {
        tracing::error!("an action of {attempt} panicked: {error}");
        Event::Done { attempt }
    });
    // The server is stopping if nobody hears of it.
    let _ = inbox.send(event);
}

impl World {
    fn perform(&self, action: Action, delay: Delay) -> Event {
        let attempt = action.attempt().to_owned();
        let told = match action {
            Action::Launch { job, attempt, number, placement, instances, lease_s, trial } => {
                let launch = Launch { job, attempt, number, placement, instances, lease_s, trial };
                if let Some(delay) = self.lacks_room(&launch, delay) {
                    return Event::NoRoom { launch: launch.into(), delay };
                }
                self.launch(&launch)
            }
            Action::StopInstances { attempt, hosts, grace_s, reason } => {
                if let Some(running) = self.attempts.get(&attempt) {
                    for host in hosts {
                        running.order(host, Order::Stop { grace_s, reason: reason.clone() });
                    }
                }
                Ok(())
            }
            Action::StoreArtifacts { job, attempt, number, hosts } => self.store_artifacts(&job, attempt, number, &hosts),
            Action::Release { attempt, .. } => self.release(attempt),
            Action::Freeze { attempt } => {
                self.order_all(&attempt, &Order::Freeze);
                Ok(())
            }
            Action::Resume { attempt, until } => {
                self.order_all(&attempt, &Order::Thaw { until: until.map(u64::from) });
                Ok(())
            }
        };
        if let Err(refusal) = told {
            // The server is stopping: the same action is asked for again at the next start.
            tracing::debug!("the core did not take the outcome of an action: {refusal}");
        }
        Event::Done { attempt }
    }

    fn order_all(&self, attempt: &str, order: &Order) {
        if let Some(running) = self.attempts.get(attempt) {
            (1..=running.allocation.instances).for_each(|host| running.order(host, order.clone()));
        }
    }

    /// Tells the core the outcome of an action, again and again while the journal cannot be written: the action would not be asked for
    /// a second time before the next start.
    pub(crate) fn insist(&self, command: &Command) -> Result<(), Refusal> {
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

    fn launch(&self, launch: &Launch) -> Result<(), Refusal> {
        let outcome = self.request(&launch.job).and_then(|request| self.start_agents(&request, launch));
        match outcome {
            Ok(()) => Ok(()),
            // Its release follows.
            Err(_) if self.trees.is_cancelled(&launch.attempt) => Ok(()),
            Err(reason) => {
                let reason = self.without_paths(&reason);
                self.insist(&Command::LaunchFailed { attempt: launch.attempt.clone(), reason })
            }
        }
    }

    /// A full disk must not fail one job of the queue after the other: a launch waits until there is room. Says what was said of it, unless
    /// there is room.
    fn lacks_room(&self, launch: &Launch, mut delay: Delay) -> Option<Delay> {
        let error = self.data_dir.ensure_room_to_start().err()?;
        if !std::mem::replace(&mut delay.is_logged, true) {
            tracing::error!("training job {} is not launched yet: {error}", launch.job);
        }
        if delay.told.is_none_or(|at| at.elapsed() >= DELAY) {
            let reason = self.without_paths(&error.to_string());
            let delayed = Command::LaunchDelayed { attempt: launch.attempt.clone(), reason };
            delay.told = self.core.tell(delayed).is_ok().then(Instant::now);
        }
        Some(delay)
    }

    pub(crate) fn request(&self, job: &str) -> Result<CreateTrainingJob, String> {
        let row = self
            .rows
            .resource(ResourceKind::TRAINING_JOB, job)
            .map_err(|error| error.to_string())?
            .ok_or_else(|| format!("no row of training job {job}"))?;
        requests::training_job(&row).map_err(|error| format!("training job {job}: {}", error.message))
    }

    /// Prepares the channels and starts all agents or none. Repeated after a crash it adopts what lives.
    fn start_agents(&self, request: &CreateTrainingJob, launch: &Launch) -> Result<(), String> {
        let Launch { attempt, placement, instances, .. } = launch;
        let dir = run_dir(&self.runs, attempt);
        let allocation = self.allocation(attempt, *instances);
        let known = Plan::read(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut spec = allocation.clone();
        spec.env.push(("SHOAL_AGENT_TOKEN".to_owned(), self.keys.agent_token(attempt)));
        if let Some(plan) = known.as_ref().filter(|plan| !self.has_begun(plan)) {
            self.end_allocation(plan.origin(), &self.allocation_of(plan));
            self.attempts.remove(attempt);
        } else if let Some(plan) = known {
            let is_kept = plan.origin.is_some();
            self.adopt(plan);
            if is_kept {
                return Ok(());
            }
            // Agents that a crash in the middle of the first submission left unstarted start now; none starts twice.
            return self.launcher.submit(&spec).map_err(|error| describe(&error));
        }
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let plan = self.plan(request, launch)?;
        if self.trees.is_cancelled(attempt) {
            return Err("cancelled".to_owned());
        }
        if !self.wake(&plan).map_err(|error| format!("{}: {error}", dir.display()))? {
            self.make_room();
            plan.write(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            self.attempts.insert(Attempt::new(plan.clone(), allocation, &self.keys));
            self.pool_is_used(&plan, None);
            self.launcher.submit(&spec).map_err(|error| describe(&error))?;
        }
        let mut notes = Vec::from_iter(placement.capped.clone());
        // Later attempts' streams follow the first one's.
        if launch.number == 1 {
            let fields = no_effect::in_input(Service::SageMaker, "CreateTrainingJob", &Value::Object(request.raw.clone()));
            notes.extend(fields.into_iter().map(|field| format!("{} has no effect: {}", field.path, field.reason)));
        }
        if !notes.is_empty() {
            let lines = notes.into_iter().map(|note| (now_ms(), format!("[shoal] {note}"))).collect();
            let logs = LogLines { stream: plan.streams[0].clone(), lines, ..LogLines::default() };
            // The job is the same without this note.
            match self.telemetry.append_logs(&[logs]) {
                Ok(()) => self.job_changes.grown(&launch.job, 1, 0),
                Err(error) => tracing::warn!("training job {}: its log lacks the note on its size: {error}", launch.job),
            }
        }
        Ok(())
    }

    /// Whether an attempt that has a plan has agents, or had. Those of a kept instance end with the server that was killed before it could give
    /// them the attempt.
    fn has_begun(&self, plan: &Plan) -> bool {
        let mut hosts = (1..).take(plan.assignments.len());
        plan.origin.is_none()
            || matches!(self.launcher.status_of(&self.allocation_of(plan)), Ok(AllocationStatus::Running { lost }) if lost.is_empty())
            || hosts.any(|host| self.telemetry.acked(&plan.attempt, host).map_or(true, |acked| acked > 0))
    }

    /// Takes an attempt that runs already into the tables (after a restart).
    pub(crate) fn adopt(&self, plan: Plan) {
        let allocation = self.allocation_of(&plan);
        for assignment in &plan.assignments {
            for channel in &assignment.channels {
                self.trees.claim(channel.tree.as_ref(), &plan.attempt);
            }
            if let Program::Script { source: Some(tree), .. } = &assignment.program {
                self.trees.claim(tree.as_ref(), &plan.attempt);
            }
            if let Some(tree) = assignment.checkpoint.as_ref().and_then(|checkpoint| checkpoint.tree.as_ref()) {
                self.trees.claim(tree.as_ref(), &plan.attempt);
            }
        }
        self.attempts.insert(Attempt::new(plan, allocation, &self.keys));
    }

    /// The agents that serve an attempt.
    pub(crate) fn allocation_of(&self, plan: &Plan) -> AllocationSpec {
        self.allocation(plan.origin(), u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX))
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

    /// Lets the agents go, makes sure that they are gone, and removes what they had.
    fn release(&self, attempt: String) -> Result<(), Refusal> {
        if let Some(running) = self.attempts.get(&attempt) {
            if self.park(&running) {
                self.forget(&running);
                // Whoever waits for the instance has it before the disk has answered.
                self.keep(running.plan.origin());
                self.pool.has_left(&attempt);
                if let Err(error) = self.telemetry.forget(&attempt) {
                    tracing::error!("{error}");
                }
                return self.insist(&Command::Released { attempt });
            }
            self.pool.has_left(&attempt);
            self.pool_ends(running.plan.keep.as_ref(), &running.plan.job, Duration::ZERO);
            for host in 1..=running.allocation.instances {
                running.order(host, Order::Release);
            }
            let until = Instant::now() + LEAVE;
            while (Instant::now() < until || running.is_saving())
                && matches!(self.launcher.status_of(&running.allocation), Ok(AllocationStatus::Running { .. }))
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
        let plan = Plan::read(&dir).ok().flatten();
        // Without a plan no agent was started here, or it is that of a kept instance.
        let started = || (1..).take_while(|host| dir.join(format!("agent-{host}.log")).exists()).count();
        let without_plan = || self.allocation(attempt, u32::try_from(started()).unwrap_or(u32::MAX));
        let allocation = plan.as_ref().map_or_else(without_plan, |plan| self.allocation_of(plan));
        self.end_allocation(plan.as_ref().map_or(attempt, Plan::origin), &allocation);
        self.attempts.remove(attempt);
        self.trees.release(attempt);
        if let Err(error) = (self.remove_tree)(&dir) {
            tracing::error!("{}: {error}", dir.display());
        }
        if let Err(error) = self.telemetry.forget(attempt) {
            tracing::error!("{error}");
        }
    }
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
