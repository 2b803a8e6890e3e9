//! Drives the machines of [`shoal_runtime`]: one task owns them and carries values between them;
//! what they request is performed on threads and answered by events.

use std::{collections::VecDeque, sync::Arc};

use shoal_plane::{Action, AttemptId, Command, Effects};
use shoal_runtime::{
    lanes::{self, Lanes},
    steps::Outcome,
    warm_pool::{self, WarmPool},
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    clock,
    core::Refusal,
    machines::{Event, Message},
    tuning::Tuner,
    world::World,
};

/// Passes requests to the tuner and performs actions until the server stops. `pending`: what a
/// previous server may have left undone. `keys`: the reuse key of each attempt that runs.
pub(crate) async fn run(
    world: Arc<World>,
    tuner: Tuner,
    mut effects: mpsc::UnboundedReceiver<Effects>,
    mut events: mpsc::UnboundedReceiver<Message>,
    pending: Effects,
    keys: Vec<(AttemptId, String)>,
) {
    let mut driver = Driver { world, lanes: Lanes::default(), pool: WarmPool::restore(keys) };
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
    world: Arc<World>,
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
                                tasks.push(self.on_thread(failed, move |world| {
                                    if let Some(event) = world.perform_for_pool(io) {
                                        world.machines.send(event);
                                    }
                                }));
                            }
                        }
                    }
                }
                Event::Timeout => {}
            }
        }
        tasks
    }

    /// Works on a thread; if that panics, sends the event for it.
    fn on_thread(&self, failed: Option<Event>, work: impl FnOnce(&World) + Send + 'static) -> JoinHandle<()> {
        let world = self.world.clone();
        tokio::spawn(async move {
            let performing = world.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || work(&performing)).await {
                tracing::error!("a request of a machine panicked: {error}");
                if let Some(event) = failed {
                    world.machines.send(event);
                }
            }
        })
    }

    fn perform(&self, io: lanes::Io) -> Option<JoinHandle<()>> {
        let world = self.world.clone();
        Some(match io {
            lanes::Io::Perform { attempt, steps } => {
                let failed = lanes::Event::Performed { attempt: attempt.clone(), outcome: Outcome::Panicked };
                self.on_thread(Some(failed.into()), move |world| {
                    let outcome = world.perform(&attempt, steps);
                    world.machines.send(lanes::Event::Performed { attempt, outcome });
                })
            }
            lanes::Io::CheckExit { attempt } => {
                let failed =
                    lanes::Event::ExitChecked { attempt: attempt.clone(), is_running: false, is_mirroring: false };
                self.on_thread(Some(failed.into()), move |world| {
                    let (is_running, is_mirroring) = world.exit_of(&attempt);
                    world.machines.send(lanes::Event::ExitChecked { attempt, is_running, is_mirroring });
                })
            }
            lanes::Io::Order(action) => self.on_thread(None, move |world| world.order(&action)),
            // At once: it must not come after the release.
            lanes::Io::Cancel { attempt } => {
                world.trees.cancel(&attempt);
                return None;
            }
            lanes::Io::LogDelay { action, reason } => {
                log_delay(&action, &reason);
                return None;
            }
            lanes::Io::ReportDelay { attempt, reason } => tokio::spawn(report_delay(world, attempt, reason)),
            lanes::Io::Commit { attempt, command } => tokio::spawn(commit(world, attempt, command)),
            // Carried to its machine before.
            lanes::Io::Pool(_) => return None,
        })
    }
}

fn log_delay(action: &Action, reason: &str) {
    match action {
        Action::StoreArtifacts { job, .. } => {
            tracing::error!("training job {job}: its artifacts wait for the disk: no space left: {reason}");
        }
        Action::Launch { job, .. } => tracing::error!("training job {job} is not launched yet: {reason}"),
        Action::ClearInstances { attempt, hosts } => {
            tracing::error!(
                "instances {hosts:?} of {attempt} cannot be removed yet, and their capacity is not free: {reason}"
            );
        }
        other => tracing::error!("an action of {} waits for the disk: {reason}", other.attempt()),
    }
}

async fn report_delay(world: Arc<World>, attempt: AttemptId, reason: String) {
    let delayed = Command::LaunchDelayed { attempt: attempt.clone(), reason };
    if world.core.ask(delayed, None).await.is_ok() {
        world.machines.send(lanes::Event::DelayReported { attempt });
    }
}

/// Submits the outcome of an action to the core.
async fn commit(world: Arc<World>, attempt: AttemptId, command: Command) {
    // A disk that loses what is written ends the server, not the job: the next start does the same
    // again.
    let is_failure = matches!(command, Command::LaunchFailed { .. } | Command::ArtifactsFailed { .. });
    let is_disk_lost = is_failure && (world.telemetry.failure().is_some() || world.objects.failure().is_some());
    let result = if is_disk_lost { Err(Refusal::Stopping) } else { world.core.ask(command, None).await };
    let event = match result {
        Err(Refusal::Journal(error)) => {
            tracing::error!("the outcome of an action waits for the journal: {error}");
            lanes::Event::CommitFailed { attempt }
        }
        result => {
            if let Err(refusal) = result {
                // If the server is stopping, the same action is requested again at the next start.
                tracing::debug!("the core did not take the outcome of an action: {refusal}");
            }
            lanes::Event::Committed { attempt }
        }
    };
    world.machines.send(event);
}
