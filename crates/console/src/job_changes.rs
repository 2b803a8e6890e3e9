//! Tells open pages that a training job has new log lines or metric points.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How often a job's telemetry has grown since its first watcher came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Growth {
    /// Log lines.
    pub lines: u64,
    /// Metric points.
    pub points: u64,
}

/// A channel for each job that a page shows; other jobs cost a look-up.
#[derive(Debug, Default)]
pub struct JobChanges {
    watched: Mutex<HashMap<String, watch::Sender<Growth>>>,
}

impl JobChanges {
    /// The growth of a job from now on.
    pub fn watch(&self, job: &str) -> watch::Receiver<Growth> {
        let mut watched = self.locked();
        watched.retain(|_, sender| sender.receiver_count() > 0);
        watched.entry(job.to_owned()).or_default().subscribe()
    }

    /// Reports lines and points of a job that are stored.
    pub fn grown(&self, job: &str, lines: usize, points: usize) {
        let watched = self.locked();
        let Some(sender) = watched.get(job) else { return };
        sender.send_modify(|growth| {
            growth.lines += lines as u64;
            growth.points += points as u64;
        });
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Growth>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_hear_of_their_job_alone_and_leave_nothing() {
        let changes = JobChanges::default();
        let (mut one, other) = (changes.watch("a"), changes.watch("b"));
        changes.grown("a", 2, 0);
        changes.grown("a", 1, 5);
        changes.grown("c", 1, 1);
        assert!(one.has_changed().unwrap() && !other.has_changed().unwrap());
        assert_eq!(*one.borrow_and_update(), Growth { lines: 3, points: 5 });
        drop(one);
        assert_eq!(*changes.watch("a").borrow(), Growth::default(), "a later watcher begins anew");
        assert_eq!(changes.locked().len(), 2);
        drop(other);
        changes.watch("a");
        assert_eq!(changes.locked().len(), 1);
    }
}
