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

use shoal_plane::{
    AttemptId, Capacity, Catalog, Command, Effects, Event, Frozen, JobName, JobView, QuotaUse, Time, Turn,
};
use shoal_runtime::{
    Control,
    control::{Fold, Folded, REFUSED_PAUSE},
};
use shoal_store::{Batch, Journal, RowChange, Rows, StoreError};
use tokio::sync::{oneshot, watch};

use crate::{
    ServerError,
    clock::{self, now_ms},
};
use created::Created;
pub(crate) use created::{NewChild, Opaque};
pub(crate) use edits::Present;
use edits::{Change, Changed, RowEdit};
pub(crate) use refusal::{Refusal, refused};
pub(crate) use rows::secondary_status;
use rows::{change, job_progress, receipt, tuning_progress};

mod created;
mod edits;
mod refusal;
mod rows;
mod tunings;

/// Most commands that one append carries.
const BATCH: usize = 512;
/// Before the journal is read again that could not be.
const RECOVER_PAUSE: Duration = Duration::from_millis(500);

struct Envelope {
    command: Command,
    opaque: Option<Opaque>,
    /// Of [`Command::Suggested`].
    children: Vec<NewChild>,
    /// Rows that become durable with the command's events.
    beside: Beside,
    reply: Option<oneshot::Sender<Result<(), Refusal>>>,
}

/// Rows that a command brings beside its own.
enum Beside {
    Made(Vec<RowChange>),
    /// By what others are when the command is decided.
    By(Change),
}

impl Beside {
    fn nothing() -> Self {
        Self::Made(Vec::new())
    }
}

enum Message {
    /// All of these in one turn: one append refuses none of them or all, so that no later one is
    /// durable without those before it.
    Do(Vec<Envelope>),
    View {
        job: JobName,
        reply: oneshot::Sender<Option<JobView>>,
    },
    Edit(RowEdit),
    QuotaUse {
        reply: oneshot::Sender<Vec<QuotaUse>>,
    },
    MemoryOrder {
        reply: oneshot::Sender<Vec<AttemptId>>,
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
        self.ask_with(command, opaque, Beside::nothing()).await
    }

    /// The same, and changes other rows together with the command's; if that is refused, nothing is
    /// decided.
    pub(crate) async fn ask_beside(
        &self,
        command: Command,
        opaque: Opaque,
        change: impl FnOnce(&Present<'_>) -> Result<Vec<RowChange>, shoal_wire::Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        self.ask_with(command, Some(opaque), Beside::By(Box::new(change))).await
    }

    async fn ask_with(&self, command: Command, opaque: Option<Opaque>, beside: Beside) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let envelope = Envelope { command, opaque, children: Vec::new(), beside, reply: Some(reply) };
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
                let beside = Beside::nothing();
                (Envelope { command, opaque, children, beside, reply: Some(reply) }, answer)
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
    pub(crate) fn memory_order(&self) -> Vec<AttemptId> {
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
        self.inbox.send(Message::View { job: job.to_owned().into(), reply }).ok()?;
        answer.await.ok()?
    }

    /// What users and tags hold and may hold; none if the loop has ended.
    pub(crate) async fn quota_use(&self) -> Option<Vec<QuotaUse>> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Message::QuotaUse { reply }).ok()?;
        answer.await.ok()
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
    control: Control,
    snapshotting: Option<thread::JoinHandle<()>>,
    act: Box<dyn Fn(Effects) + Send>,
    changed: watch::Sender<u64>,
}

/// Folds the journal.
///
/// # Errors
/// The store fails, holds an event that this version cannot read, or has a gap.
pub(crate) fn recover(journal: &dyn Journal, capacity: &Capacity, catalog: &Catalog) -> Result<Folded, ServerError> {
    let snapshot = journal.snapshot()?;
    let snapshot = snapshot.as_ref().map(|(version, bytes)| (*version, &bytes[..]));
    let mut fold = Fold::new(snapshot, capacity.clone(), catalog.clone())?;
    let mut failure = None;
    journal.events_after(fold.version(), &mut |at, bytes| {
        if failure.is_none() {
            failure = fold.event(at, bytes).err();
        }
        Ok(())
    })?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(fold.finish(journal.version()?)?),
    }
}

/// Starts the loop on a thread of its own. `act` must not block.
pub(crate) fn start(
    journal: Box<dyn Journal>,
    rows: Arc<dyn Rows>,
    folded: Folded,
    capacity: Capacity,
    catalog: Catalog,
    act: Box<dyn Fn(Effects) + Send>,
) -> Result<(Core, thread::JoinHandle<()>), std::io::Error> {
    let (inbox, messages) = mpsc::channel();
    let (changed, version) = watch::channel(folded.version);
    let mut core = Loop {
        journal,
        rows,
        capacity,
        catalog,
        control: Control::new(folded, clock::now().mono),
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
                    let command = self.control.timeout();
                    let (opaque, beside) = (None, Beside::nothing());
                    let tick = Envelope { command, opaque, children: Vec::new(), beside, reply: None };
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
                    Message::QuotaUse { reply } => {
                        let _ = reply.send(self.control.state().quota_use(Time(now_ms())));
                    }
                    Message::MemoryOrder { reply } => {
                        let _ = reply.send(self.control.state().memory_order());
                    }
                    Message::Freeze { reply } => {
                        let _ = reply.send((self.control.state().freeze(), self.control.version()));
                    }
                    Message::Stop => stop = true,
                }
            }
            self.step(commands);
            self.edit(edits);
            for (job, reply) in views {
                let _ = reply.send(self.control.state().view(&job));
            }
        }
    }

    fn wait(&mut self, messages: &mpsc::Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        match self.control.sleep(clock::now()) {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(sleep) => messages.recv_timeout(sleep),
        }
    }

    fn step(&mut self, commands: Vec<Envelope>) {
        let mut changed = Changed::default();
        let commands: Vec<_> =
            commands.into_iter().filter_map(|envelope| self.accompany(envelope, &mut changed)).collect();
        let (turn, answers) = self.control.decide(commands.iter().map(|it| &it.command), Time(now_ms()));
        let mut created = Created::default();
        let mut replies = Vec::with_capacity(commands.len());
        for (Envelope { command, opaque, children, beside, reply }, answer) in commands.into_iter().zip(answers) {
            let answer = answer.map_err(Refusal::Rejected);
            if answer.is_ok() {
                created.note(command, opaque, children);
                if let Beside::Made(rows) = beside {
                    created.beside.extend(rows);
                }
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
                thread::sleep(REFUSED_PAUSE);
                for (reply, _) in replies {
                    let _ = reply.send(Err(Refusal::Journal(error.to_string())));
                }
                self.fold_again();
            }
        }
    }

    /// Makes the rows beside the command's own, which later ones of the turn find. A command whose
    /// rows are refused is answered and goes no further.
    fn accompany(&self, envelope: Envelope, changed: &mut Changed) -> Option<Envelope> {
        let Beside::By(change) = envelope.beside else { return Some(envelope) };
        match self.changed("the rows beside a command", change, changed) {
            Ok(rows) => Some(Envelope { beside: Beside::Made(rows), ..envelope }),
            Err(refusal) => {
                if let Some(reply) = envelope.reply {
                    let _ = reply.send(Err(refusal));
                }
                None
            }
        }
    }

    /// Makes events durable, and with them what they change in the rows: whole rows of the jobs
    /// that are new, with what the core does not know of them.
    fn append(&mut self, turn: &Turn, mut created: Created) -> Result<(), StoreError> {
        let mut rows: Vec<_> = turn.events.iter().filter_map(receipt).map(RowChange::PutCheckpoint).collect();
        for (name, view) in &turn.views {
            let parent = view.trial.as_ref().map(|trial| &*trial.tuning);
            rows.push(change(job_progress(name, view), created.jobs.remove(name), view.created.0, parent));
            rows.extend(tunings::trial_change(name, view, created.tuned.remove(name)));
        }
        for (name, view) in &turn.tunings {
            rows.push(change(tuning_progress(name, view), created.tunings.remove(name), view.created.0, None));
        }
        rows.extend(tunings::records(turn));
        rows.append(&mut created.beside);
        let events = turn.events.iter().map(Event::encode).collect();
        let version = self.journal.append(&Batch { events, rows })?;
        self.changed.send_replace(version);
        if self.control.appended(version) {
            let began = Instant::now();
            self.snapshot();
            stood_still(began);
        }
        Ok(())
    }

    /// The state as it is now is written beside the loop, which goes on.
    fn snapshot(&mut self) {
        if self.snapshotting.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (frozen, snapshots) = (self.control.state().freeze(), self.journal.snapshots());
        let version = self.control.version();
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
                Ok(folded) => {
                    self.control.rewind(folded);
                    return;
                }
                Err(error) => {
                    tracing::error!("{error}; trying again");
                    thread::sleep(RECOVER_PAUSE);
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
