//! Submissions of which it is not known whether they became jobs: what was sent and not answered
//! may be queued a moment after a look at the queue that did not find it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long they are remembered.
const KEPT: Duration = Duration::from_secs(3600);

/// By the job's name, when it was submitted last.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Others may have been submitted by a process before this one.
    begun: Instant,
    names: Mutex<HashMap<String, Instant>>,
}

impl Default for Unanswered {
    fn default() -> Self {
        Self { begun: Instant::now(), names: Mutex::default() }
    }
}

impl Unanswered {
    /// A submission was not answered.
    pub(super) fn note(&self, name: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, at| at.elapsed() < KEPT);
        names.insert(name.to_owned(), Instant::now());
    }

    /// Whether a job of this name, which was submitted here or by a process before, may still
    /// appear.
    pub(super) fn may_appear(&self, name: &str, grace: Duration) -> bool {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.entry(name.to_owned()).or_insert(self.begun).elapsed() < grace
    }

    /// Whether there may be several jobs of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }
}
