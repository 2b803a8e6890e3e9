//! The threads that search. Each tuning job's wishes are answered in their order by one thread at a time; tuning jobs take turns, so that a long
//! suggestion of one holds up no other for longer than that.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use shoal_plane::{Action, Command};

use super::searches::{Searches, Surroundings, Told, Trouble};
use crate::{
    core::Refusal,
    effects::{World, describe},
};

/// Wishes of one tuning job that are answered together: what they come to becomes durable together.
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
    jobs: HashMap<String, Job>,
    /// Tuning jobs with wishes that nobody works at, in the order of their turns.
    ready: VecDeque<String>,
    stopping: bool,
}

#[derive(Default)]
struct Job {
    wishes: VecDeque<Action>,
    searches: Option<Searches>,
    is_taken: bool,
}

impl Tuner {
    /// Takes [`Action::Suggest`] and [`Action::Observe`]; others are not its own.
    pub(crate) fn take(&self, action: Action) {
        let (Action::Suggest { tuning, .. } | Action::Observe { tuning, .. }) = &action else { return };
        let tuning = tuning.clone();
        let mut state = self.lock();
        let job = state.jobs.entry(tuning.clone()).or_default();
        job.wishes.push_back(action);
        if !job.is_taken && job.wishes.len() == 1 {
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

    /// The next tuning job's wishes, and its studies if they are open; none when it is time to end.
    fn next(&self, world: &World) -> Option<(String, Vec<Action>, Option<Searches>)> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(tuning) = state.ready.pop_front() {
                let Some(job) = state.jobs.get_mut(&tuning) else { continue };
                job.is_taken = true;
                let together = job.wishes.len().min(TOGETHER);
                return Some((tuning, job.wishes.drain(..together).collect(), job.searches.take()));
            }
            let open: Vec<String> = state.jobs.iter().filter(|(_, job)| !job.is_taken).map(|(name, _)| name.clone()).collect();
            if open.is_empty() {
                state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (waited, timeout) = self.0.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if timeout.timed_out() {
                drop(state);
                let over: Vec<String> = open.into_iter().filter(|name| is_over(world, name)).collect();
                state = self.lock();
                over.iter().for_each(|name| {
                    if state.jobs.get(name).is_some_and(|job| !job.is_taken && job.wishes.is_empty()) {
                        state.jobs.remove(name);
                    }
                });
            }
        }
    }

    /// What was taken has been done, but for `left`.
    fn give_back(&self, tuning: String, left: Vec<Action>, searches: Option<Searches>) {
        let mut state = self.lock();
        let job = state.jobs.entry(tuning.clone()).or_default();
        job.is_taken = false;
        job.searches = searches;
        left.into_iter().rev().for_each(|action| job.wishes.push_front(action));
        if !job.wishes.is_empty() {
            state.ready.push_back(tuning);
            self.0.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(world: &World, tuning: &str) -> bool {
    world.rows.tuning(tuning).is_ok_and(|row| row.is_none_or(|row| row.ended))
}

/// Starts the threads, which end when [`Tuner::stop`] is said.
///
/// # Errors
/// The system has no threads.
pub(crate) fn start(tuner: &Tuner, world: &Arc<World>) -> std::io::Result<Vec<thread::JoinHandle<()>>> {
    // Two at least: a long suggestion must not hold up other tuning jobs' decisions.
    let threads = thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, MOST_THREADS);
    let one = |number: usize| {
        let (tuner, world) = (tuner.clone(), world.clone());
        thread::Builder::new().name(format!("tuner {number}")).spawn(move || work(&tuner, &world))
    };
    (1..=threads).map(one).collect()
}

fn work(tuner: &Tuner, world: &World) {
    while let Some((tuning, wishes, searches)) = tuner.next(world) {
        let mut turn = Turn { world, tuning: &tuning, searches };
        let mut left = wishes;
        let outcome = turn.answer(&mut left);
        let mut searches = turn.searches;
        if let Err(trouble) = outcome {
            // The studies may be ahead of what is stored: they are opened anew.
            searches = None;
            match give_up(world, &tuning, &left, trouble) {
                Trouble::Stopping | Trouble::Never(_) => left.clear(),
                Trouble::Again(reason) => {
                    tracing::error!("tuning job {tuning}: {reason}; trying again");
                    thread::sleep(PAUSE);
                    if is_over(world, &tuning) {
                        left.clear();
                    }
                }
            }
        }
        tuner.give_back(tuning, left, searches);
    }
}

/// Fails the tuning job whose search can never go on.
fn give_up(world: &World, tuning: &str, left: &[Action], trouble: Trouble) -> Trouble {
    let Trouble::Never(reason) = &trouble else { return trouble };
    tracing::error!("tuning job {tuning} fails: {reason}");
    // Some may not be awaited any more; the first one that is ends it.
    let failed = |action: &Action| match action {
        Action::Suggest { seq, .. } | Action::Observe { seq, .. } => {
            Some(Command::SearchFailed { tuning: tuning.to_owned(), seq: *seq, reason: reason.clone() })
        }
        _ => None,
    };
    match world.core.tell_all(left.iter().filter_map(failed).collect()) {
        Ok(()) => trouble,
        Err(Refusal::Stopping) => Trouble::Stopping,
        Err(refusal) => Trouble::Again(describe(&refusal)),
    }
}

struct Turn<'a> {
    world: &'a World,
    tuning: &'a str,
    searches: Option<Searches>,
}

impl Turn<'_> {
    /// Answers wishes in order; what is left was not answered.
    fn answer(&mut self, left: &mut Vec<Action>) -> Result<(), Trouble> {
        let world = self.world;
        if let Some(searches) = &self.searches {
            // A tuning job may have been deleted, and its name be another one's.
            let row = world.rows.tuning(self.tuning).map_err(|error| Trouble::Again(describe(&error)))?;
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
            // Judgements go together. A suggestion goes alone: its numbers must be durable before anything rests on them.
            let together = left.iter().take_while(|action| matches!(action, Action::Observe { .. })).count().max(1);
            let mut told: Vec<Told> = Vec::with_capacity(together);
            for action in &left[..together] {
                let began = Instant::now();
                let mut kind = "judge";
                match action {
                    Action::Observe { seq, definition, trial, what, .. } => told.push(searches.observe(*seq, *definition, *trial, what)),
                    Action::Suggest { seq, wanted, .. } => {
                        kind = "suggest";
                        told.push(searches.suggest(&*world.rows, *seq, *wanted)?);
                    }
                    _ => {}
                }
                world.exporter.searched(kind, began.elapsed());
            }
            let commands = told.into_iter().map(|told| (told.command, told.children)).collect();
            match world.core.tell_searched(commands) {
                Ok(()) => drop(left.drain(..together)),
                Err(Refusal::Stopping) => return Err(Trouble::Stopping),
                Err(refusal) => return Err(Trouble::Again(describe(&refusal))),
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Option<&mut Searches>, Trouble> {
        if self.searches.is_none() {
            let row = self.world.rows.tuning(self.tuning)?;
            let Some(row) = row.filter(|row| !row.ended) else { return Ok(None) };
            let World { rows, images, region, account, .. } = self.world;
            let around = Surroundings { rows: &**rows, images: &**images, region, account };
            self.searches = Some(Searches::open(&row, &around)?);
        }
        Ok(self.searches.as_mut())
    }
}
