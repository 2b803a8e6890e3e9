//! The one loop that owns the state: commands in, events to the journal, then actions and answers
//! out.
//!
//! Commands that wait are decided together and made durable by one append (group commit without a
//! timer). Nothing leaves the loop before the append that it rests on: no answer, no action, no
//! change seen by readers (they read rows, which the same transaction writes).

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use shoal_plane::{Capacity, Catalog, Command, Effects, Event, Frozen, JobView, Rejection, State, Time, Turn, apply};
use shoal_store::{Batch, Journal, RowChange, Rows, StoreError};
use tokio::sync::{oneshot, watch};

use crate::{ServerError, clock::now_ms};
use created::Created;
pub(crate) use created::{NewChild, Opaque};
use edits::RowEdit;
pub(crate) use rows::secondary_status;
use rows::{change, job_progress, receipt, tuning_progress};

mod created;
mod edits;
mod rows;
mod tunings;

/// Most commands that one append carries.
const BATCH: usize = 512;
/// After a start agents get this long to say what happened meanwhile, before deadlines that passed
/// meanwhile are looked at.
const LISTEN_FIRST: Duration = Duration::from_secs(3);
/// After the journal could not be written.
const PAUSE: Duration = Duration::from_millis(200);
/// Events between two snapshots.
const SNAPSHOT_EVERY: u64 = 10_000;

/// Why a command had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The core says no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The journal could not be written: nothing has happened.
    #[error("the journal could not be written: {0}")]
    Journal(String),
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A row's edit says no.
    #[error(transparent)]
    Edit(#[from] shoal_wire::Error),
}

struct Envelope {
    command: Command,
    opaque: Option<Opaque>,
    /// Of [`Command::Suggested`].
    children: Vec<NewChild>,
    reply: Option<oneshot::Sender<Result<(), Refusal>>>,
}

enum Message {
    /// All of these in one turn: one append refuses none of them or all, so that no later one is
    /// durable without those before it.
    Do(Vec<Envelope>),
    View {
        job: String,
        reply: oneshot::Sender<Option<JobView>>,
    },
    Edit(RowEdit),
    MemoryOrder {
        reply: oneshot::Sender<Vec<String>>,
    },
    /// For measurements.
    Freeze {
        reply: oneshot::Sender<(Frozen, u64)>,
    },
    Stop,
}

/// The way to the loop.
#[derive(Clone)]
pub(crate) struct Core {
    inbox: mpsc::Sender<Message>,
    version: watch::Receiver<u64>,
}

impl Core {
    /// Asks and waits until the answer rests on durable ground.
    pub(crate) async fn ask(&self, command: Command, opaque: Option<Opaque>) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let envelope = Envelope { command, opaque, children: Vec::new(), reply: Some(reply) };
        self.inbox.send(Message::Do(vec![envelope])).map_err(|_| Refusal::Stopping)?;
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// The same for all of these, from a thread that may wait.
    fn tell_all_with(&self, commands: Vec<(Command, Opaque)>) -> Result<(), Refusal> {
        self.do_all(commands.into_iter().map(|(command, opaque)| (command, Some(opaque), Vec::new())))
    }

    /// In one turn of the loop; waits for the last.
    fn do_all(&self, commands: impl Iterator<Item = (Command, Option<Opaque>, Vec<NewChild>)>) -> Result<(), Refusal> {
        let (envelopes, answers): (Vec<_>, Vec<_>) = commands
            .map(|(command, opaque, children)| {
                let (reply, answer) = oneshot::channel();
                (Envelope { command, opaque, children, reply: Some(reply) }, answer)
            })
            .unzip();
        self.inbox.send(Message::Do(envelopes)).map_err(|_| Refusal::Stopping)?;
        answers.into_iter().try_for_each(|answer| answer.blocking_recv().unwrap_or(Err(Refusal::Stopping)))
    }

    /// The state as of now and its version; none if the loop has ended.
    fn freeze(&self) -> Option<(Frozen, u64)> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Message::Freeze { reply }).ok()?;
        answer.blocking_recv().ok()
    }

    /// The attempts that hold memory, those first that are to be ended first; none if the loop has
    /// ended.
    pub(crate) fn memory_order(&self) -> Vec<String> {
        let (reply, answer) = oneshot::channel();
        let asked = self.inbox.send(Message::MemoryOrder { reply });
        asked.ok().and_then(|()| answer.blocking_recv().ok()).unwrap_or_default()
    }

    /// Tells, from a thread that may wait.
    pub(crate) fn tell(&self, command: Command) -> Result<(), Refusal> {
        self.tell_all(vec![command])
    }

    /// Tells all of these, which become durable together or not at all, and waits for the last.
    pub(crate) fn tell_all(&self, commands: Vec<Command>) -> Result<(), Refusal> {
        self.tell_searched(commands.into_iter().map(|command| (command, Vec::new())).collect())
    }

    /// The same, with the training jobs of trials that the commands start.
    pub(crate) fn tell_searched(&self, commands: Vec<(Command, Vec<NewChild>)>) -> Result<(), Refusal> {
        self.do_all(commands.into_iter().map(|(command, children)| (command, None, children)))
    }

    /// A live job as it is now. Rows serve all other reads; only a waiting job's place changes
    /// without an event of its own.
    pub(crate) async fn view(&self, job: &str) -> Option<JobView> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Message::View { job: job.to_owned(), reply }).ok()?;
        answer.await.ok()?
    }

    /// Changes with every append that readers may want to see.
    pub(crate) fn version(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }

    /// Ends the loop after what waits already.
    pub(crate) fn stop(&self) {
        let _ = self.inbox.send(Message::Stop);
    }
}

/// The loop's own things.
struct Loop {
    journal: Box<dyn Journal>,
    rows: Arc<dyn Rows>,
    capacity: Capacity,
    catalog: Catalog,
    state: State,
    version: u64,
    snapshot_at: u64,
    last: Time,
    /// Until when no deadline counts; `None` once that has passed and one tick has taken up what
    /// changed while we were away.
    listening: Option<Instant>,
    snapshotting: Option<thread::JoinHandle<()>>,
    act: Box<dyn Fn(Effects) + Send>,
    changed: watch::Sender<u64>,
}

/// What the journal says at a start.
pub(crate) struct Recovered {
    pub(crate) state: State,
    version: u64,
}

/// Folds the journal.
///
/// # Errors
/// The store fails, holds an event that this version cannot read, or has a gap.
pub(crate) fn recover(journal: &dyn Journal, capacity: &Capacity, catalog: &Catalog) -> Result<Recovered, ServerError> {
    let (mut state, mut version) = match journal.snapshot()? {
        Some((version, bytes)) => {
            let state = State::from_snapshot(&bytes, capacity.clone(), catalog.clone())
                .map_err(|error| unreadable("snapshot", &error))?;
            (state, version)
        }
        None => (State::new(capacity.clone(), catalog.clone()), 0),
    };
    let mut failure = None;
    journal.events_after(version, &mut |at, bytes| {
        match Event::decode(bytes) {
            _ if failure.is_some() => {}
            _ if at != version + 1 => failure = Some(missing(version, at)),
            Ok(event) => {
                apply(&mut state, &event);
            }
            Err(error) => failure = Some(unreadable(&format!("event {at}"), &error)),
        }
        version = at;
        Ok(())
    })?;
    match failure {
        Some(error) => Err(error),
        None => match journal.version()? {
            end if end == version => Ok(Recovered { state, version }),
            end => Err(missing(version, end)),
        },
    }
}

/// A state without what some events did is worse than none.
fn missing(known: u64, next: u64) -> ServerError {
    ServerError::Journal(format!(
        "the journal's snapshot and events end at event {known} and go on at {next}: what lies between is missing; are all files of the data directory of the same age?"
    ))
}

fn unreadable(what: &str, error: &impl ToString) -> ServerError {
    ServerError::Journal(format!(
        "{what} of the journal cannot be read ({}); was it written by a newer shoal?",
        error.to_string()
    ))
}

/// Starts the loop on a thread of its own. `act` must not block.
pub(crate) fn start(
    journal: Box<dyn Journal>,
    rows: Arc<dyn Rows>,
    recovered: Recovered,
    capacity: Capacity,
    catalog: Catalog,
    act: Box<dyn Fn(Effects) + Send>,
) -> Result<(Core, thread::JoinHandle<()>), std::io::Error> {
    let (inbox, messages) = mpsc::channel();
    let (changed, version) = watch::channel(recovered.version);
    let last = recovered.state.clock();
    let mut core = Loop {
        journal,
        rows,
        capacity,
        catalog,
        state: recovered.state,
        version: recovered.version,
        snapshot_at: recovered.version,
        last,
        listening: Some(Instant::now() + LISTEN_FIRST),
        snapshotting: None,
        act,
        changed,
    };
    let thread = thread::Builder::new().name("core".to_owned()).spawn(move || core.run(&messages))?;
    Ok((Core { inbox, version }, thread))
}

impl Loop {
    fn run(&mut self, messages: &mpsc::Receiver<Message>) {
        self.turns(messages);
        // Nothing is written to the data directory once the server has let it go.
        self.await_snapshot();
    }

    fn await_snapshot(&mut self) {
        if let Some(thread) = self.snapshotting.take()
            && thread.join().is_err()
        {
            tracing::error!("the snapshot's thread panicked");
        }
    }

    fn turns(&mut self, messages: &mpsc::Receiver<Message>) {
        let mut stop = false;
        while !stop {
            let mut batch = Vec::new();
            match self.wait(messages) {
                Ok(first) => batch.push(first),
                Err(RecvTimeoutError::Timeout) => {
                    let tick = Envelope { command: Command::Tick, opaque: None, children: Vec::new(), reply: None };
                    batch.push(Message::Do(vec![tick]));
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            batch.extend(messages.try_iter().take(BATCH - 1));
            let mut commands = Vec::with_capacity(batch.len());
            let mut views = Vec::new();
            let mut edits = Vec::new();
            for message in batch {
                match message {
                    Message::Do(envelopes) => commands.extend(envelopes),
                    Message::View { job, reply } => views.push((job, reply)),
                    Message::Edit(edit) => edits.push(edit),
                    Message::MemoryOrder { reply } => {
                        let _ = reply.send(self.state.memory_order());
                    }
                    Message::Freeze { reply } => {
                        let _ = reply.send((self.state.freeze(), self.version));
                    }
                    Message::Stop => stop = true,
                }
            }
            self.step(commands);
            self.edit(edits);
            for (job, reply) in views {
                let _ = reply.send(self.state.view(&job));
            }
        }
    }

    fn wait(&mut self, messages: &mpsc::Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        if let Some(until) = self.listening {
            let message = messages.recv_timeout(until.saturating_duration_since(Instant::now()));
            if matches!(message, Err(RecvTimeoutError::Timeout)) {
                self.listening = None;
            }
            return message;
        }
        match self.state.next_deadline() {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => {
                messages.recv_timeout(Duration::from_millis(deadline.0.saturating_sub(now_ms()).min(60_000)))
            }
        }
    }

    /// Time as the core sees it never goes back.
    fn now(&mut self) -> Time {
        self.last = self.last.max(Time(now_ms()));
        self.last
    }

    fn step(&mut self, commands: Vec<Envelope>) {
        let now = self.now();
        let mut turn = Turn::default();
        let mut created = Created::default();
        let mut replies = Vec::with_capacity(commands.len());
        for Envelope { command, opaque, children, reply } in commands {
            let answer = turn.take(&mut self.state, &command, now).map_err(Refusal::Rejected);
            if answer.is_ok() {
                created.note(command, opaque, children);
            }
            replies.extend(reply.map(|reply| (reply, answer)));
        }
        let durable = if turn.events.is_empty() { Ok(()) } else { self.append(&turn, created) };
        match durable {
            Ok(()) => {
                if !turn.effects.is_empty() {
                    (self.act)(turn.effects);
                }
                for (reply, answer) in replies {
                    let _ = reply.send(answer);
                }
            }
            Err(error) => {
                tracing::error!("journal: {error}");
                // Deadlines that are due would be decided again at once.
                thread::sleep(PAUSE);
                for (reply, _) in replies {
                    let _ = reply.send(Err(Refusal::Journal(error.to_string())));
                }
                self.fold_again();
            }
        }
    }

    /// Makes events durable, and with them what they change in the rows: whole rows of the jobs
    /// that are new, with what the core does not know of them.
    fn append(&mut self, turn: &Turn, mut created: Created) -> Result<(), StoreError> {
        let mut rows: Vec<_> = turn.events.iter().filter_map(receipt).map(RowChange::PutCheckpoint).collect();
        for (name, view) in &turn.views {
            let parent = view.trial.as_ref().map(|trial| trial.tuning.as_str());
            rows.push(change(job_progress(name, view), created.jobs.remove(name), view.created.0, parent));
            rows.extend(tunings::trial_change(name, view, created.tuned.remove(name)));
        }
        for (name, view) in &turn.tunings {
            rows.push(change(tuning_progress(name, view), created.tunings.remove(name), view.created.0, None));
        }
        rows.extend(tunings::records(turn));
        let events = turn.events.iter().map(Event::encode).collect();
        self.version = self.journal.append(&Batch { events, rows })?;
        self.changed.send_replace(self.version);
        if self.version >= self.snapshot_at + SNAPSHOT_EVERY {
            let began = Instant::now();
            self.snapshot();
            stood_still(began);
        }
        Ok(())
    }

    /// The state as it is now is written beside the loop, which goes on.
    fn snapshot(&mut self) {
        self.snapshot_at = self.version;
        if self.snapshotting.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (frozen, version, snapshots) = (self.state.freeze(), self.version, self.journal.snapshots());
        let spawned = thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
            if let Err(error) = snapshots.put(version, &frozen.encode()) {
                tracing::warn!("snapshot not written: {error}");
            }
        });
        self.snapshotting = spawned.inspect_err(|error| tracing::warn!("no thread for a snapshot: {error}")).ok();
    }

    /// The state ran ahead of a journal that refused: go back to what is durable.
    fn fold_again(&mut self) {
        // A snapshot that is written meanwhile takes events away between two looks.
        self.await_snapshot();
        loop {
            match recover(&*self.journal, &self.capacity, &self.catalog) {
                Ok(recovered) => {
                    self.state = recovered.state;
                    self.version = recovered.version;
                    return;
                }
                Err(error) => {
                    tracing::error!("{error}; trying again");
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }
}

/// For those who measure: how long a snapshot kept the loop from its work.
fn stood_still(began: Instant) {
    tracing::info!("a snapshot held the core up for {} us", began.elapsed().as_micros());
}

mod delays;
#[cfg(test)]
mod tests;

pub use delays::{SnapshotDelays, snapshot_delays};
