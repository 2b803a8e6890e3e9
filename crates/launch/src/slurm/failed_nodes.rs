//! Which nodes of a job are down: asked once for all of its hosts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is believed, and that there is none.
const FRESH: Duration = Duration::from_secs(10);

/// Answers of the last seconds, by job.
#[derive(Debug, Default)]
pub(super) struct FailedNodes(Mutex<HashMap<u64, (Instant, Vec<String>)>>);

impl FailedNodes {
    /// Those of a job; asks when nothing is known. No answer: none is known to be down.
    pub(super) fn of<E>(&self, job: u64, ask: impl FnOnce() -> Result<Vec<String>, E>) -> Vec<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        if let Some((_, down)) = known.get(&job) {
            return down.clone();
        }
        let down = ask().unwrap_or_default();
        known.insert(job, (Instant::now(), down.clone()));
        down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_asked_about_once_even_if_there_is_no_answer() {
        let failed = FailedNodes::default();
        let answer = || Ok::<_, ()>(vec!["n2".to_owned()]);
        assert_eq!(failed.of(7, answer), ["n2"]);
        assert_eq!(failed.of(8, || Err(())), [""; 0]);
        for (job, down) in [(7, vec!["n2"]), (8, vec![])] {
            assert_eq!(failed.of(job, || -> Result<_, ()> { panic!("it is known") }), down);
        }
    }
}
