//! The threads that search. Each tuning job's requests are answered in their order by one thread at
//! a time; tuning jobs take turns, so that a long suggestion of one holds up no other for longer
//! than that. A search that panics fails its tuning job, and the thread goes on with the others.

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use shoal_plane::{Command, TunerRequest, TuningName};
use shoal_store::{ResourceKind, Rows};

use super::searches::{Searches, Surroundings, Told, Trouble};
use crate::{
    Images,
    core::{Core, Refusal},
    error_chain::describe,
    exporter::Exporter,
};

/// Requests of one tuning job that are answered together: what they come to becomes durable
/// together.
const TOGETHER: usize = 64;
/// After the journal, or a row, could not be used.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks for studies whose tuning job is over.
const LOOK: Duration = Duration::from_secs(2);
/// Threads, whatever the machine has: a suggestion is one thread's work.
const MOST_THREADS: usize = 4;

/// The way to the threads.
#[derive(Clone, Default)]
pub(crate) struct Tuner(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: HashMap<TuningName, Job>,
    /// Tuning jobs with requests that nobody works at, in the order of their turns.
    ready: VecDeque<TuningName>,
    stopping: bool,
}

#[derive(Default)]
struct Job {
    requests: VecDeque<TunerRequest>,
    searches: Option<Searches>,
    is_taken: bool,
}

impl Tuner {
    /// Has it answered by one of the threads.
    pub(crate) fn take(&self, request: TunerRequest) {
        let tuning = request.tuning().to_owned();
        let mut state = self.lock();
        let job = state.jobs.entry(tuning.clone()).or_default();
        job.requests.push_back(request);
        if !job.is_taken && job.requests.len() == 1 {
            state.ready.push_back(tuning);
            drop(state);
            self.0.changed.notify_one();
        }
    }

    /// Ends the threads after what they are at.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.0.changed.notify_all();
    }

    /// The next tuning job's requests, and its studies if they are open; none when it is time to
    /// end.
    fn next(&self, desk: &impl Desk) -> Option<(TuningName, Vec<TunerRequest>, Option<Searches>)> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(tuning) = state.ready.pop_front() {
                let Some(job) = state.jobs.get_mut(&tuning) else { continue };
                job.is_taken = true;
                let together = job.requests.len().min(TOGETHER);
                return Some((tuning, job.requests.drain(..together).collect(), job.searches.take()));
            }
            let open: Vec<TuningName> =
                state.jobs.iter().filter(|(_, job)| !job.is_taken).map(|(name, _)| name.clone()).collect();
            if open.is_empty() {
                state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (waited, timeout) = self.0.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if timeout.timed_out() {
                drop(state);
                let over: Vec<TuningName> = open.into_iter().filter(|name| desk.is_over(name)).collect();
                state = self.lock();
                over.iter().for_each(|name| {
                    if state.jobs.get(name).is_some_and(|job| !job.is_taken && job.requests.is_empty()) {
                        state.jobs.remove(name);
                    }
                });
            }
        }
    }

    /// What was taken has been done, but for `left`.
    fn give_back(&self, tuning: TuningName, left: Vec<TunerRequest>, searches: Option<Searches>) {
        let mut state = self.lock();
        let job = state.jobs.entry(tuning.clone()).or_default();
        job.is_taken = false;
        job.searches = searches;
        left.into_iter().rev().for_each(|request| job.requests.push_front(request));
        if !job.requests.is_empty() {
            state.ready.push_back(tuning);
            self.0.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the threads work with.
trait Desk {
    /// Nobody waits for answers to this tuning job's requests any more.
    fn is_over(&self, tuning: &str) -> bool;

    /// Answers requests in order, with studies that are open or become so; what is left was not
    /// answered.
    fn answer(
        &self,
        tuning: &str,
        searches: &mut Option<Searches>,
        left: &mut Vec<TunerRequest>,
    ) -> Result<(), Trouble>;

    /// Tells the core.
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
        left: &mut Vec<TunerRequest>,
    ) -> Result<(), Trouble> {
        let mut turn = Turn { desk: self, tuning, searches: searches.take() };
        let outcome = turn.answer(left);
        *searches = turn.searches;
        outcome
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
    // Two at least: a long suggestion must not hold up other tuning jobs' decisions.
    let threads = thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, MOST_THREADS);
    let desk = Arc::new(desk);
    let one = |number: usize| {
        let (tuner, desk) = (tuner.clone(), desk.clone());
        thread::Builder::new().name(format!("tuner {number}")).spawn(move || work(&tuner, &*desk))
    };
    (1..=threads).map(one).collect()
}

fn work(tuner: &Tuner, desk: &impl Desk) {
    while let Some((tuning, mut left, mut searches)) = tuner.next(desk) {
        // Whatever a panic leaves behind is not used: the studies are dropped, and what was told to
        // the core was told as a whole.
        let outcome = catch_unwind(AssertUnwindSafe(|| desk.answer(&tuning, &mut searches, &mut left)))
            .unwrap_or_else(|panic| Err(panicked(&*panic)));
        if let Err(trouble) = outcome {
            // The studies may be ahead of what is stored: they are opened anew.
            searches = None;
            match give_up(desk, &tuning, &left, trouble) {
                Trouble::Stopping | Trouble::Never(_) => left.clear(),
                Trouble::Again(reason) => {
                    tracing::error!("tuning job {tuning}: {reason}; trying again");
                    thread::sleep(PAUSE);
                    if desk.is_over(&tuning) {
                        left.clear();
                    }
                }
            }
        }
        tuner.give_back(tuning, left, searches);
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

/// Fails the tuning job whose search can never go on.
fn give_up(desk: &impl Desk, tuning: &TuningName, left: &[TunerRequest], trouble: Trouble) -> Trouble {
    let Trouble::Never(reason) = &trouble else { return trouble };
    tracing::error!("tuning job {tuning} fails: {reason}");
    // Some may not be awaited any more; the first one that is ends it.
    let failed = |request: &TunerRequest| Command::SearchFailed {
        tuning: tuning.to_owned(),
        seq: request.seq(),
        reason: reason.clone(),
    };
    match desk.tell(left.iter().map(failed).collect()) {
        Ok(()) => trouble,
        Err(Refusal::Stopping) => Trouble::Stopping,
        Err(refusal) => Trouble::Again(describe(&refusal)),
    }
}

struct Turn<'a> {
    desk: &'a ServerDesk,
    tuning: &'a str,
    searches: Option<Searches>,
}

impl Turn<'_> {
    fn answer(&mut self, left: &mut Vec<TunerRequest>) -> Result<(), Trouble> {
        let desk = self.desk;
        if let Some(searches) = &self.searches {
            // A tuning job may have been deleted, and its name be another one's.
            let row = desk
                .rows
                .resource(ResourceKind::TUNING_JOB, self.tuning)
                .map_err(|error| Trouble::Again(describe(&error)))?;
            if row.is_none_or(|row| row.ended || !searches.are_of(&row)) {
                self.searches = None;
            }
        }
        while !left.is_empty() {
            let Some(searches) = self.open()? else {
                // The tuning job is over: nobody waits for an answer.
                left.clear();
                return Ok(());
            };
            // Judgements go together. A suggestion goes with them only where it takes no time, as
            // they are waited for, and nothing goes with it that comes after: its numbers must be
            // durable before anything rests on them.
            let judgements = left.iter().take_while(|request| matches!(request, TunerRequest::Tell { .. })).count();
            let together = if searches.is_quick() { judgements + 1 } else { judgements.max(1) }.min(left.len());
            let mut told: Vec<Told> = Vec::with_capacity(together);
            for request in &left[..together] {
                let began = Instant::now();
                let (kind, answer) = match request {
                    TunerRequest::Tell { seq, definition, trial, what, .. } => {
                        ("judge", searches.observe(*seq, *definition, *trial, what))
                    }
                    TunerRequest::Ask { seq, wanted, .. } => ("suggest", searches.suggest(&*desk.rows, *seq, *wanted)?),
                };
                told.push(answer);
                desk.exporter.searched(kind, began.elapsed());
            }
            let commands = told.into_iter().map(|told| (told.command, told.children)).collect();
            match desk.core.tell_searched(commands) {
                Ok(()) => drop(left.drain(..together)),
                Err(Refusal::Stopping) => return Err(Trouble::Stopping),
                Err(refusal) => return Err(Trouble::Again(describe(&refusal))),
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Option<&mut Searches>, Trouble> {
        if self.searches.is_none() {
            let row = self.desk.rows.resource(ResourceKind::TUNING_JOB, self.tuning)?;
            let Some(row) = row.filter(|row| !row.ended) else { return Ok(None) };
            let ServerDesk { rows, images, region, account, .. } = self.desk;
            let around = Surroundings { rows: &**rows, images: &**images, region, account };
            self.searches = Some(Searches::open(&row, &around)?);
        }
        Ok(self.searches.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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

        fn answer(&self, tuning: &str, _: &mut Option<Searches>, left: &mut Vec<TunerRequest>) -> Result<(), Trouble> {
            assert!(tuning != "bad", "{} requests too many", left.len());
            left.clear();
            self.0.lock().unwrap().send(Said::Answered(tuning.to_owned())).unwrap();
            Ok(())
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
        let suggest =
            |tuning: &str, seq| TunerRequest::Ask { tuning: tuning.to_owned().into(), seq, wanted: 1, starts: 1 };
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
