//! The threads that search: they perform what [`shoal_runtime::tuner_queue`] requests. A search
//! that panics fails its tuning job, and the thread continues with the others.

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use shoal_plane::{Command, TunerRequest, TuningName};
use shoal_runtime::tuner_queue::{Event, Io, Outcome, TunerQueue};
use shoal_store::{ResourceKind, Rows};

use super::searches::{Searches, Surroundings, Told, Trouble};
use crate::{
    Images, clock,
    core::{Core, Refusal},
    error_chain::describe,
    exporter::Exporter,
};

/// Threads, whatever the machine has: a suggestion is one thread's work.
const MOST_THREADS: usize = 4;

/// The way to the threads.
#[derive(Clone)]
pub(crate) struct Tuner(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    threads: usize,
}

struct State {
    queue: TunerQueue,
    /// What it requests and no thread performs yet.
    requested: VecDeque<Io>,
    /// Studies that are open, but for those that a thread works with.
    open: HashMap<TuningName, Searches>,
    stopping: bool,
}

impl Default for Tuner {
    fn default() -> Self {
        // Two at least: a long suggestion must not hold up other tuning jobs' decisions.
        let threads = thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, MOST_THREADS);
        let state = State {
            queue: TunerQueue::new(threads),
            requested: VecDeque::new(),
            open: HashMap::new(),
            stopping: false,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), threads }))
    }
}

impl State {
    fn handle(&mut self, event: Event) {
        for io in self.queue.handle(event, clock::now()) {
            match io {
                Io::Close { tuning } => drop(self.open.remove(&tuning)),
                io => self.requested.push_back(io),
            }
        }
    }
}

impl Tuner {
    /// Has it answered by one of the threads.
    pub(crate) fn take(&self, request: TunerRequest) {
        self.handle(Event::Requested(request));
    }

    /// Ends the threads after what they are at.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.0.changed.notify_all();
    }

    fn handle(&self, event: Event) {
        let mut state = self.lock();
        state.handle(event);
        let is_requested = !state.requested.is_empty();
        drop(state);
        if is_requested {
            self.0.changed.notify_one();
        }
    }

    /// What is to be performed next; none when it is time to end.
    fn next(&self) -> Option<Io> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(io) = state.requested.pop_front() {
                if !state.requested.is_empty() {
                    self.0.changed.notify_one();
                }
                return Some(io);
            }
            let now = clock::now().mono;
            match state.queue.deadline() {
                None => state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at <= now => state.handle(Event::Timeout),
                Some(at) => {
                    let wait = self.0.changed.wait_timeout(state, at.since(now));
                    state = wait.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the threads work with.
trait Desk {
    /// No client waits for answers to this tuning job's requests any more.
    fn is_over(&self, tuning: &str) -> bool;

    /// Answers these, with studies that are open or become so.
    fn answer(
        &self,
        tuning: &str,
        searches: &mut Option<Searches>,
        requests: &[TunerRequest],
    ) -> Result<Outcome, Trouble>;

    /// Submits these to the core.
    fn tell(&self, commands: Vec<Command>) -> Result<(), Refusal>;
}

/// What the threads of a server work with.
pub(crate) struct ServerDesk {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) region: String,
    pub(crate) account: String,
}

impl Desk for ServerDesk {
    fn is_over(&self, tuning: &str) -> bool {
        self.rows.resource(ResourceKind::TUNING_JOB, tuning).is_ok_and(|row| row.is_none_or(|row| row.ended))
    }

    fn answer(
        &self,
        tuning: &str,
        searches: &mut Option<Searches>,
        requests: &[TunerRequest],
    ) -> Result<Outcome, Trouble> {
        let row = self.rows.resource(ResourceKind::TUNING_JOB, tuning)?;
        let Some(row) = row.filter(|row| !row.ended) else { return Ok(Outcome::Over) };
        // A tuning job may have been deleted, and its name be another one's.
        let open = match searches.take().filter(|searches| searches.are_of(&row)) {
            Some(open) => open,
            None => {
                let ServerDesk { rows, images, region, account, .. } = self;
                Searches::open(&row, &Surroundings { rows: &**rows, images: &**images, region, account })?
            }
        };
        let open = searches.insert(open);
        let mut told: Vec<Told> = Vec::with_capacity(requests.len());
        for request in requests {
            let began = Instant::now();
            let (kind, answer) = match request {
                TunerRequest::Tell { seq, definition, trial, what, .. } => {
                    ("judge", open.observe(*seq, *definition, *trial, what))
                }
                TunerRequest::Ask { seq, wanted, .. } => ("suggest", open.suggest(&*self.rows, *seq, *wanted)?),
            };
            told.push(answer);
            self.exporter.searched(kind, began.elapsed());
        }
        let commands = told.into_iter().map(|told| (told.command, told.children)).collect();
        match self.core.tell_searched(commands) {
            Ok(()) => Ok(Outcome::Done { is_quick: open.is_quick() }),
            Err(Refusal::Stopping) => Err(Trouble::Stopping),
            Err(refusal) => Err(Trouble::Again(describe(&refusal))),
        }
    }

    fn tell(&self, commands: Vec<Command>) -> Result<(), Refusal> {
        self.core.tell_all(commands)
    }
}

/// Starts the threads, which end when [`Tuner::stop`] is said.
///
/// # Errors
/// The system has no threads.
pub(crate) fn start(tuner: &Tuner, desk: ServerDesk) -> std::io::Result<Vec<thread::JoinHandle<()>>> {
    let desk = Arc::new(desk);
    let one = |number: usize| {
        let (tuner, desk) = (tuner.clone(), desk.clone());
        thread::Builder::new().name(format!("tuner {number}")).spawn(move || work(&tuner, &*desk))
    };
    (1..=tuner.0.threads).map(one).collect()
}

fn work(tuner: &Tuner, desk: &impl Desk) {
    while let Some(io) = tuner.next() {
        match io {
            Io::Answer { tuning, requests, reopens } => {
                let mut searches = tuner.lock().open.remove(&tuning).filter(|_| !reopens);
                // Whatever a panic leaves behind is not used: the studies are dropped, and what was
                // submitted to the core was submitted as a whole.
                let answered = catch_unwind(AssertUnwindSafe(|| desk.answer(&tuning, &mut searches, &requests)))
                    .unwrap_or_else(|panic| Err(panicked(&*panic)));
                let outcome = outcome_of(&tuning, answered);
                if let (Outcome::Done { .. }, Some(searches)) = (&outcome, searches) {
                    tuner.lock().open.insert(tuning.clone(), searches);
                }
                tuner.handle(Event::Performed { tuning, outcome });
            }
            Io::Fail { tuning, requests, reason } => {
                tracing::error!("tuning job {tuning} fails: {reason}");
                let failed = |request: &TunerRequest| Command::SearchFailed {
                    tuning: tuning.clone(),
                    seq: request.seq(),
                    reason: reason.clone(),
                };
                let answered = match desk.tell(requests.iter().map(failed).collect()) {
                    Ok(()) => Ok(Outcome::Done { is_quick: false }),
                    Err(Refusal::Stopping) => Err(Trouble::Stopping),
                    Err(refusal) => Err(Trouble::Again(describe(&refusal))),
                };
                let outcome = outcome_of(&tuning, answered);
                tuner.handle(Event::Performed { tuning, outcome });
            }
            Io::CheckEnd { tuning } => {
                if desk.is_over(&tuning) {
                    tuner.handle(Event::Ended { tuning });
                }
            }
            // Performed where it is requested.
            Io::Close { .. } => {}
        }
    }
}

fn outcome_of(tuning: &str, answered: Result<Outcome, Trouble>) -> Outcome {
    match answered {
        Ok(outcome) => outcome,
        Err(Trouble::Stopping) => Outcome::Over,
        Err(Trouble::Never(reason)) => Outcome::Never { reason },
        Err(Trouble::Again(reason)) => {
            tracing::error!("tuning job {tuning}: {reason}; trying again");
            Outcome::Again
        }
    }
}

/// It would happen again.
fn panicked(panic: &(dyn Any + Send)) -> Trouble {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Trouble::Never(format!(
        "the tuner panicked, which is a mistake of Shoal's own ({text}); the server's log says where. What was found \
         is kept: a new tuning job may start \
         from this one (WarmStartConfig), with another strategy or another RandomSeed"
    ))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    /// Panics over one tuning job's requests, and takes all others for answered.
    struct Fake(Mutex<mpsc::Sender<Said>>);

    #[derive(Debug, PartialEq)]
    enum Said {
        Answered(String),
        Told(Vec<Command>),
    }

    impl Desk for Fake {
        fn is_over(&self, _: &str) -> bool {
            false
        }

        fn answer(
            &self,
            tuning: &str,
            _: &mut Option<Searches>,
            requests: &[TunerRequest],
        ) -> Result<Outcome, Trouble> {
            assert!(tuning != "bad", "{} requests too many", requests.len());
            self.0.lock().unwrap().send(Said::Answered(tuning.to_owned())).unwrap();
            Ok(Outcome::Done { is_quick: false })
        }

        fn tell(&self, commands: Vec<Command>) -> Result<(), Refusal> {
            self.0.lock().unwrap().send(Said::Told(commands)).unwrap();
            Ok(())
        }
    }

    #[test]
    fn a_panic_fails_its_tuning_job_and_no_other() {
        let (say, said) = mpsc::channel();
        let tuner = Tuner::default();
        let thread = thread::spawn({
            let (tuner, fake) = (tuner.clone(), Fake(Mutex::new(say)));
            move || work(&tuner, &fake)
        });
        let suggest = |tuning: &str, seq| TunerRequest::Ask { tuning: tuning.into(), seq, wanted: 1, starts: 1 };
        for (round, tuning) in ["good", "bad", "good", "bad"].into_iter().enumerate() {
            tuner.take(suggest(tuning, round as u64));
            match said.recv_timeout(Duration::from_secs(60)).unwrap() {
                Said::Answered(answered) => assert_eq!((answered.as_str(), tuning), ("good", "good")),
                Said::Told(commands) => {
                    let [Command::SearchFailed { tuning: failed, seq, reason }] = &commands[..] else {
                        panic!("{commands:?}")
                    };
                    assert_eq!((&**failed, tuning, *seq), ("bad", "bad", round as u64));
                    assert!(reason.contains("(1 requests too many)") && reason.contains("WarmStartConfig"), "{reason}");
                }
            }
        }
        tuner.stop();
        thread.join().expect("the thread outlives the panics");
    }
}
