//! A server: a thread for each worker, and the part that they share.

use std::{
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    Push, Spec,
    message::{Ask, Ranks, in_whole, receive, send},
    shard::{Shard, Update},
};
use crate::{At, Error, ProcessGroup, guard::UNLIMITED};

/// A part of the flat space, for the threads that work on it.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    len: usize,
    patience: Duration,
}

#[derive(Debug)]
struct State {
    shard: Shard,
    /// Why workers were lost.
    lost: Vec<(usize, Error)>,
}

impl Shared {
    /// A part of so many zeros.
    ///
    /// # Errors
    /// [`Error::Config`]: there is no room for it.
    pub(super) fn new(len: usize, spec: &Spec) -> Result<Arc<Self>, Error> {
        let mut values = Vec::new();
        values.try_reserve_exact(len).map_err(|error| {
            let bytes = len * size_of::<f32>();
            Error::Config {
                problem: format!(
                    "parameter server: no room for this server's part of {bytes} bytes ({error}); name more servers"
                ),
            }
        })?;
        values.resize(len, 0.0);
        let shard = Shard::new(values, &spec.workers, spec.consistency);
        Ok(Arc::new(Self {
            state: Mutex::new(State { shard, lost: Vec::new() }),
            changed: Condvar::new(),
            len,
            patience: spec.patience,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, worker: usize, at: usize, values: Vec<f32>, how: Push) {
        self.lock().shard.push(worker, Update { at, values, how });
    }

    pub(super) fn pull(&self, at: usize, into: &mut [f32]) {
        into.copy_from_slice(&self.lock().shard.values()[at..at + into.len()]);
    }

    /// Advances a worker's clock.
    pub(super) fn advance(&self, worker: usize) {
        self.lock().shard.advance(worker);
        self.changed.notify_all();
    }

    /// Waits until a worker may go on, or until the patience is over.
    pub(super) fn wait(&self, worker: usize) -> Ranks {
        let end = Instant::now() + self.patience.min(UNLIMITED);
        let mut state = self.lock();
        loop {
            let lost = state.shard.lost().to_vec();
            if state.shard.may_go_on(worker) {
                return Ranks { lost, awaited: Vec::new() };
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ranks { lost, awaited: state.shard.slowest_workers() };
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn end(&self, worker: usize) {
        self.lock().shard.end(worker);
        self.changed.notify_all();
    }

    /// Waits until all workers have ended or were lost, at most for `time`; whether they have.
    fn wait_over(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| !state.shard.is_over());
        waited.unwrap_or_else(PoisonError::into_inner).0.shard.is_over()
    }

    pub(super) fn lose(&self, worker: usize, why: Error) {
        let mut state = self.lock();
        state.shard.lose(worker);
        state.lost.push((worker, why));
        drop(state);
        self.changed.notify_all();
    }
}

/// This rank's part and the threads that serve it.
#[derive(Debug)]
pub struct Server {
    part: Range<usize>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a server has when all workers have ended.
#[derive(Debug)]
pub struct Outcome {
    /// Which elements of the flat space, in the order of the tensors, are its own.
    pub part: Range<usize>,
    /// Their values.
    pub values: Vec<f32>,
    /// Workers that were lost, and why.
    pub lost: Vec<(usize, Error)>,
}

impl Server {
    pub(super) fn start(
        me: usize,
        part: Range<usize>,
        shared: Arc<Shared>,
        pairs: Vec<(usize, Arc<dyn ProcessGroup>)>,
    ) -> Result<Self, Error> {
        let mut threads = Vec::new();
        for (worker, pair) in pairs {
            let of_thread = Arc::clone(&shared);
            let serve = move || {
                if let Err(error) = serve(&*pair, worker, &of_thread) {
                    of_thread.lose(worker, in_whole(error, worker, me));
                }
            };
            let thread = thread::Builder::new().name(format!("shoal-serve-{worker}")).spawn(serve);
            threads.push(
                thread.map_err(|source| {
                    Error::io(format!("cannot start a thread that serves worker {worker}"), source)
                })?,
            );
        }
        Ok(Self { part, shared, threads })
    }

    /// Waits until all workers have ended or were lost, at most for `time`; whether they have.
    pub fn wait_for(&self, time: Duration) -> bool {
        self.shared.wait_over(time)
    }

    /// Waits until all workers have ended or were lost.
    pub fn join(self) -> Outcome {
        for thread in self.threads {
            thread.join().expect("threads that serve do not panic");
        }
        // For a worker of this rank.
        while !self.shared.wait_over(UNLIMITED) {}
        let mut state = self.shared.lock();
        Outcome { part: self.part, values: state.shard.take_values(), lost: state.lost.clone() }
    }
}

/// Does what one worker asks, until it ends.
fn serve(pair: &dyn ProcessGroup, worker: usize, shared: &Shared) -> Result<(), Error> {
    loop {
        match Ask::receive(pair, shared.len)? {
            Ask::Add { at, len } => shared.push(worker, at, elements(pair, len)?, Push::Add),
            Ask::Assign { at, len } => shared.push(worker, at, elements(pair, len)?, Push::Assign),
            Ask::Pull { at, len } => {
                let mut values = vec![0.0; len];
                shared.pull(at, &mut values);
                send(pair, &values)?;
            }
            Ask::Advance => {
                shared.advance(worker);
                shared.wait(worker).send(pair)?;
            }
            Ask::WaitOn => shared.wait(worker).send(pair)?,
            Ask::End => {
                shared.end(worker);
                return Ok(());
            }
            // The worker is rank 0 of the pair.
            Ask::GiveUp => return Err(gave_up(0)),
        }
    }
}

/// What is said of a worker that has given up, or panicked.
pub(super) fn gave_up(rank: usize) -> Error {
    let at = At { operation: "the work of a parameter server's worker".to_owned(), number: 0 };
    Error::PeerGaveUp { rank, why: "its program could not go on".to_owned(), at }
}

fn elements(pair: &dyn ProcessGroup, len: usize) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; len];
    receive(pair, &mut values)?;
    Ok(values)
}
