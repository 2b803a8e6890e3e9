//! Drives the machines of [`shoal_runtime`]: one task owns them and carries values between them;
//! what they request is performed on threads and answered by events.

use std::{collections::VecDeque, sync::Arc};

use shoal_plane::{Action, AttemptId, Command, Effects};
use shoal_runtime::{
    lanes::{self, Lanes},
    steps::Outcome,
    warm_pool::{self, WarmPool},
};
use shoal_store::{Objects, Telemetry};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    channels::Trees,
    clock,
    core::{Core, Refusal},
    effects::Performer,
    machines::{Event, Machines, Message},
    pool_effects::PoolPerformer,
    tuning::Tuner,
};

/// What the machines' requests need.
pub(crate) struct Hands {
    pub(crate) performer: Arc<Performer>,
    pub(crate) pool_performer: Arc<PoolPerformer>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) machines: Machines,
    pub(crate) outcomes: Arc<Outcomes>,
}

/// Where outcomes of actions go.
pub(crate) struct Outcomes {
    pub(crate) core: Core,
    pub(crate) machines: Machines,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) objects: Arc<Objects>,
}

/// Passes requests to the tuner and performs actions until the server stops. `pending`: what a
/// previous server may have left undone. `keys`: the reuse key of each attempt that runs.
pub(crate) async fn run(
    hands: Hands,
    tuner: Tuner,
    mut effects: mpsc::UnboundedReceiver<Effects>,
    mut events: mpsc::UnboundedReceiver<Message>,
    pending: Effects,
    keys: Vec<(AttemptId, String)>,
) {
    let mut driver = Driver { hands, lanes: Lanes::default(), pool: WarmPool::restore(keys) };
    let mut next = Some(pending);
    loop {
        if let Some(Effects { actions, requests }) = next.take() {
            requests.into_iter().for_each(|request| tuner.take(request));
            for action in actions {
                driver.handle(lanes::Event::Requested(action).into());
            }
        }
        let deadline = [driver.lanes.deadline(), driver.pool.deadline()].into_iter().flatten().min();
        tokio::select! {
            requested = effects.recv() => match requested {
                None => return,
                requested => next = requested,
            },
            Some((event, waiting)) = events.recv() => {
                let tasks = driver.handle(event);
                if let Some(waiting) = waiting {
                    tokio::spawn(async move {
                        for task in tasks {
                            // `on_thread` logs panics.
                            let _ = task.await;
                        }
                        let _ = waiting.send(());
                    });
                }
            }
            () = clock::until(deadline) => drop(driver.handle(Event::Timeout)),
        }
    }
}

struct Driver {
    hands: Hands,
    lanes: Lanes,
    pool: WarmPool,
}

impl Driver {
    /// Starts everything that follows from an event.
    fn handle(&mut self, event: Event) -> Vec<JoinHandle<()>> {
        let now = clock::now();
        let mut tasks = Vec::new();
        let mut events = VecDeque::from(match event {
            Event::Timeout => vec![lanes::Event::Timeout.into(), warm_pool::Event::Timeout.into()],
            event => vec![event],
        });
        while let Some(event) = events.pop_front() {
            match event {
                Event::Lane(event) => {
                    for io in self.lanes.handle(event, now) {
                        match io {
                            lanes::Io::Pool(event) => events.push_back(event.into()),
                            io => tasks.extend(self.perform(io)),
                        }
                    }
                }
                Event::Pool(event) => {
                    for io in self.pool.handle(event, now) {
                        match io {
                            warm_pool::Io::Lane(event) => events.push_back(event.into()),
                            io => {
                                let failed = io.failed().map(Event::from);
                                let performer = self.hands.pool_performer.clone();
                                tasks.push(self.on_thread(failed, move || performer.perform(io).map(Event::from)));
                            }
                        }
                    }
                }
                Event::Timeout => {}
            }
        }
        tasks
    }

    /// Works on a thread, and sends the event that this ends with, or the one for a panic.
    fn on_thread(
        &self,
        failed: Option<Event>,
        work: impl FnOnce() -> Option<Event> + Send + 'static,
    ) -> JoinHandle<()> {
        let machines = self.hands.machines.clone();
        tokio::spawn(async move {
            let ended = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
                tracing::error!("a request of a machine panicked: {error}");
                failed
            });
            if let Some(event) = ended {
                machines.send(event);
            }
        })
    }

    fn perform(&self, io: lanes::Io) -> Option<JoinHandle<()>> {
        let performer = self.hands.performer.clone();
        Some(match io {
            lanes::Io::Perform { attempt, steps } => {
                let failed = lanes::Event::Performed { attempt: attempt.clone(), outcome: Outcome::Panicked };
                self.on_thread(Some(failed.into()), move || {
                    let outcome = performer.perform(&attempt, steps);
                    Some(lanes::Event::Performed { attempt, outcome }.into())
                })
            }
            lanes::Io::CheckExit { attempt } => {
                let failed =
                    lanes::Event::ExitChecked { attempt: attempt.clone(), is_running: false, is_mirroring: false };
                self.on_thread(Some(failed.into()), move || {
                    let (is_running, is_mirroring) = performer.exit_of(&attempt);
                    Some(lanes::Event::ExitChecked { attempt, is_running, is_mirroring }.into())
                })
            }
            lanes::Io::Order(action) => self.on_thread(None, move || {
                performer.order(&action);
                None
            }),
            // At once: it must not come after the release.
            lanes::Io::Cancel { attempt } => {
                self.hands.trees.cancel(&attempt);
                return None;
            }
            lanes::Io::LogDelay { action, reason } => {
                log_delay(&action, &reason);
                return None;
            }
            lanes::Io::ReportDelay { attempt, reason } => {
                tokio::spawn(self.hands.outcomes.clone().report_delay(attempt, reason))
            }
            lanes::Io::Commit { attempt, command } => {
                tokio::spawn(self.hands.outcomes.clone().commit(attempt, command))
            }
            // Carried to its machine before.
            lanes::Io::Pool(_) => return None,
        })
    }
}

fn log_delay(action: &Action, reason: &str) {
    match action {
        Action::StoreArtifacts { job, .. } => {
            tracing::error!("training job {job}: its artifacts are not stored yet: {reason}");
        }
        Action::Launch { job, .. } => tracing::error!("training job {job} is not launched yet: {reason}"),
        Action::ClearInstances { attempt, hosts } => {
            let hosts = Vec::from_iter(hosts.iter().map(ToString::to_string)).join(", ");
            tracing::error!("{hosts} of {attempt} cannot be removed yet, and their capacity is not free: {reason}");
        }
        other => tracing::error!("an action of {} waits for the disk: {reason}", other.attempt()),
    }
}

impl Outcomes {
    async fn report_delay(self: Arc<Self>, attempt: AttemptId, reason: String) {
        let delayed = Command::LaunchDelayed { attempt: attempt.clone(), reason };
        if self.core.ask(delayed, None).await.is_ok() {
            self.machines.send(lanes::Event::DelayReported { attempt });
        }
    }

    /// Submits the outcome of an action to the core.
    async fn commit(self: Arc<Self>, attempt: AttemptId, command: Command) {
        // A disk that loses what is written ends the server, not the job: the next start does the
        // same again.
        let is_failure = matches!(command, Command::LaunchFailed { .. } | Command::ArtifactsFailed { .. });
        let is_disk_lost = is_failure && (self.telemetry.failure().is_some() || self.objects.failure().is_some());
        let result = if is_disk_lost { Err(Refusal::Stopping) } else { self.core.ask(command, None).await };
        let event = match result {
            Err(Refusal::Journal(error)) => {
                tracing::error!("the outcome of an action waits for the journal: {error}");
                lanes::Event::CommitFailed { attempt }
            }
            result => {
                if let Err(refusal) = result {
                    // If the server is stopping, the next start requests the same action again.
                    tracing::debug!("the core did not take the outcome of an action: {refusal}");
                }
                lanes::Event::Committed { attempt }
            }
        };
        self.machines.send(event);
    }
}
