//! An operation that progresses by itself.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, guard::UNLIMITED};

/// An operation that progresses by itself. Dropping it does not stop it.
#[derive(Debug, Clone)]
pub struct Work {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

struct State {
    result: Option<Result<(), Error>>,
    /// Of a message that was received: who sent it.
    source: Option<usize>,
    /// What must live as long as the operation.
    keeps: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lock().result)
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State { result: None, source: None, keeps: None }),
                done: Condvar::new(),
            }),
        }
    }

    /// Hands over what must live until the operation is done; it is dropped with the last of the
    /// work's clones, of which the operation itself holds one.
    pub fn keep(&self, what: Box<dyn Any + Send>) {
        self.shared.lock().keeps = Some(what);
    }

    /// Takes back what was handed over; only after it is done.
    pub(crate) fn take_kept(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.shared.lock();
        if state.result.is_some() { state.keeps.take() } else { None }
    }

    /// It is over; the first word counts.
    pub(crate) fn finish(&self, result: Result<(), Error>) {
        self.shared.lock().result.get_or_insert(result);
        self.shared.done.notify_all();
    }

    /// It has received a message of that rank.
    pub(crate) fn received(&self, from: usize) {
        let mut state = self.shared.lock();
        state.source = Some(from);
        state.result.get_or_insert(Ok(()));
        drop(state);
        self.shared.done.notify_all();
    }

    /// From which rank the message came, if it is one that was received.
    pub fn source(&self) -> Option<usize> {
        self.shared.lock().source
    }

    /// Whether it is done, well or not.
    pub fn is_done(&self) -> bool {
        self.shared.lock().result.is_some()
    }

    /// Waits until it is done. The operation's own deadline bounds this.
    ///
    /// # Errors
    /// As for [`crate::ProcessGroup::run`].
    pub fn wait(&self) -> Result<(), Error> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits at most this long; none if it is not done by then, and goes on.
    ///
    /// # Errors
    /// As for [`crate::ProcessGroup::run`].
    pub fn wait_for(&self, time: Duration) -> Option<Result<(), Error>> {
        let end = Instant::now() + time.min(UNLIMITED);
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = &state.result {
                return Some(result.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.shared.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
