//! In which order steps are judged: ascending, each once, when all workers of the host have saved
//! it or the wait is over. No clock and no I/O.

use std::collections::{BTreeMap, BTreeSet};

/// How long a step waits for workers that have not saved it.
const WAIT_WINDOW_MS: u64 = 2000;

/// Steps that may wait to be judged; with more, every other one is left out.
const MAX_PENDING: usize = 100_000;

/// Judged steps of which the workers are remembered, so that a file that is found twice does not
/// count as late.
const MAX_REMEMBERED: usize = 256;

/// Workers of a host.
const MAX_WORKERS: usize = 4096;

/// Steps that wait.
#[derive(Debug, Default)]
pub(super) struct StepOrder {
    workers: BTreeSet<String>,
    /// The latest step that each worker has saved.
    latest: BTreeMap<String, u64>,
    /// Workers that this host will have.
    expected: usize,
    pending: BTreeMap<u64, Pending>,
    /// The last ones that were judged, with their workers.
    judged: BTreeMap<u64, BTreeSet<String>>,
    /// Files of steps that were judged before.
    pub(super) late: u64,
    /// Steps that were left out.
    pub(super) thinned: u64,
}

#[derive(Debug)]
struct Pending {
    workers: BTreeSet<String>,
    since_ms: u64,
}

impl StepOrder {
    /// A worker saves tensors; `expected` workers of this host will.
    pub(super) fn add_worker(&mut self, worker: &str, expected: usize) {
        if self.workers.len() < MAX_WORKERS {
            self.workers.insert(worker.to_owned());
        }
        self.expected = self.expected.max(expected);
    }

    /// A worker has saved a step.
    pub(super) fn add(&mut self, step: u64, worker: &str, now_ms: u64) {
        if let Some(latest) = self.latest.get_mut(worker) {
            *latest = step.max(*latest);
        } else if self.latest.len() < MAX_WORKERS {
            self.latest.insert(worker.to_owned(), step);
        }
        if let (Some((oldest, _)), Some((latest, _))) = (self.judged.first_key_value(), self.judged.last_key_value())
            && step <= *latest
        {
            let is_known = self.judged.get(&step).is_some_and(|workers| workers.contains(worker));
            self.late += u64::from(!is_known && step >= *oldest);
            return;
        }
        if self.pending.len() >= MAX_PENDING {
            let before = self.pending.len();
            let mut index = 0;
            self.pending.retain(|_, _| {
                index += 1;
                index % 2 == 1
            });
            self.thinned += (before - self.pending.len()) as u64;
        }
        let pending = self.pending.entry(step).or_insert(Pending { workers: BTreeSet::new(), since_ms: now_ms });
        pending.workers.insert(worker.to_owned());
    }

    /// The last step that was judged.
    pub(super) fn last_judged(&self) -> Option<u64> {
        self.judged.last_key_value().map(|(step, _)| *step)
    }

    /// The next step to judge, with the workers that saved it, if it need not wait.
    pub(super) fn next(&mut self, now_ms: u64, has_ended: bool) -> Option<(u64, BTreeSet<String>)> {
        let (step, pending) = self.pending.first_key_value()?;
        let is_due = has_ended || now_ms >= pending.since_ms.saturating_add(WAIT_WINDOW_MS) || self.is_complete(*step);
        if !is_due {
            return None;
        }
        let (step, pending) = self.pending.pop_first()?;
        self.judged.insert(step, pending.workers.clone());
        if self.judged.len() > MAX_REMEMBERED {
            self.judged.pop_first();
        }
        Some((step, pending.workers))
    }

    /// Whether nothing more will come of a step: every worker has saved it, or a later one.
    fn is_complete(&self, step: u64) -> bool {
        let has_saved = |worker: &String| self.latest.get(worker).is_some_and(|latest| *latest >= step);
        !self.workers.is_empty() && self.workers.len() >= self.expected && self.workers.iter().all(has_saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(workers: &[&str]) -> StepOrder {
        let mut order = StepOrder::default();
        for worker in workers {
            order.add_worker(worker, workers.len());
        }
        order
    }

    fn next(order: &mut StepOrder, now_ms: u64) -> Option<(u64, usize)> {
        order.next(now_ms, false).map(|(step, workers)| (step, workers.len()))
    }

    #[test]
    fn a_step_is_judged_when_all_workers_have_it() {
        let mut order = order(&["a", "b"]);
        order.add(0, "a", 0);
        assert_eq!(next(&mut order, 5), None);
        order.add(0, "b", 5);
        assert_eq!(next(&mut order, 5), Some((0, 2)));
        order.add(0, "b", 6);
        assert_eq!((next(&mut order, 6), order.late), (None, 0), "it is found again");
        order.add(0, "c", 6);
        assert_eq!((next(&mut order, 6), order.late), (None, 1));
    }

    #[test]
    fn a_worker_that_is_ahead_or_silent_is_not_waited_for_for_ever() {
        let mut order = order(&["a", "b"]);
        order.add(10, "a", 0);
        order.add(20, "b", 0);
        assert_eq!(next(&mut order, 1), Some((10, 1)), "b has passed step 10");
        assert_eq!(next(&mut order, WAIT_WINDOW_MS - 1), None);
        assert_eq!(next(&mut order, WAIT_WINDOW_MS), Some((20, 1)));
        order.add(30, "a", 0);
        assert_eq!(order.next(0, true).map(|(step, _)| step), Some(30), "no more will come");
    }

    #[test]
    fn workers_that_have_not_begun_are_waited_for() {
        let mut order = StepOrder::default();
        order.add(0, "a", 0);
        assert_eq!(next(&mut order, 1), None, "no worker is known");
        order.add_worker("a", 2);
        assert_eq!(next(&mut order, 1), None);
        order.add_worker("b", 2);
        assert_eq!(next(&mut order, 1), None);
        order.add(0, "b", 1);
        assert_eq!(next(&mut order, 1), Some((0, 2)));
    }

    #[test]
    fn a_backlog_is_thinned_and_counted() {
        let mut order = order(&["a"]);
        for step in 0..300_000 {
            order.add(step, "a", 0);
            assert!(order.pending.len() <= MAX_PENDING);
        }
        let judged = std::iter::from_fn(|| next(&mut order, 0)).count() as u64;
        assert_eq!(judged + order.thinned, 300_000);
    }
}
