//! One rung of successive halving: the values of all trials that came to a resource. Every question
//! and every change is O(log n).

use std::collections::BTreeSet;

use super::{key, worst};
use crate::TrialId;

/// A value's place in the order and whose it is: of equal values the earlier trial's is better.
type Entry = (u64, TrialId);

/// Values of the trials that came to one resource, the best part of them apart.
#[derive(Debug)]
pub(super) struct Rung {
    eta: u32,
    /// The best `len / eta`.
    top: BTreeSet<Entry>,
    rest: BTreeSet<Entry>,
    /// Of both: paused trials that may be promoted.
    waiting: BTreeSet<Entry>,
    /// How many went on from here.
    promoted: usize,
}

impl Rung {
    pub(super) fn new(eta: u32) -> Self {
        Self { eta, top: BTreeSet::new(), rest: BTreeSet::new(), waiting: BTreeSet::new(), promoted: 0 }
    }

    fn quota(&self, entries: usize) -> usize {
        entries / self.eta as usize
    }

    /// How many trials came here.
    pub(super) fn len(&self) -> usize {
        self.top.len() + self.rest.len()
    }

    /// How many went on from here.
    pub(super) fn promoted(&self) -> usize {
        self.promoted
    }

    /// Whether a value that is not in yet would be among the best `1 / eta`, itself counted.
    pub(super) fn would_be_top(&self, value: f64, trial: TrialId) -> bool {
        let entry = (key(value), trial);
        let quota = self.quota(self.len() + 1);
        // With the new one the top takes in at most one more: the first of the rest, or the new
        // one.
        let worst_of_top = if quota > self.top.len() { self.rest.first() } else { self.top.last() };
        value < f64::INFINITY && quota > 0 && worst_of_top.is_none_or(|worst| entry < *worst)
    }

    /// Whether a value that is not in yet would be the best of all.
    pub(super) fn is_best(&self, value: f64, trial: TrialId) -> bool {
        let best = self.top.first().or_else(|| self.rest.first());
        best.is_none_or(|best| (key(value), trial) < *best)
    }

    /// A trial has come here, and waits or does not.
    pub(super) fn insert(&mut self, value: f64, trial: TrialId, waits: bool) {
        let entry = (key(value), trial);
        if self.top.last().is_some_and(|last| entry < *last) {
            self.top.insert(entry)
        } else {
            self.rest.insert(entry)
        };
        if waits {
            self.waiting.insert(entry);
        }
        self.balance();
    }

    fn balance(&mut self) {
        let quota = self.quota(self.len());
        while self.top.len() > quota {
            self.rest.extend(self.top.pop_last());
        }
        while self.top.len() < quota {
            self.top.extend(self.rest.pop_first());
        }
    }

    /// The best of those that wait.
    pub(super) fn best_waiting(&self) -> Option<TrialId> {
        self.waiting.first().filter(|(place, _)| *place < worst()).map(|(_, trial)| *trial)
    }

    /// The best of those that wait, if it is among the best `1 / eta` of all.
    pub(super) fn promotable(&self) -> Option<TrialId> {
        let (best, last) = (self.waiting.first()?, self.top.last()?);
        self.best_waiting().filter(|_| best <= last)
    }

    /// A trial goes on from here.
    pub(super) fn promote(&mut self, value: f64, trial: TrialId) {
        self.waiting.remove(&(key(value), trial));
        self.promoted += 1;
    }

    /// A trial is over: nobody waits for it. A failed one is the worst from now on.
    pub(super) fn leave(&mut self, value: f64, trial: TrialId, failed: bool) {
        let entry = (key(value), trial);
        self.waiting.remove(&entry);
        if failed && (self.top.remove(&entry) || self.rest.remove(&entry)) {
            self.rest.insert((worst(), trial));
            self.balance();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The sets say what sorting all values says.
    #[test]
    fn a_rung_is_its_sorted_values() {
        let mut rng = Rng::new(4, 4);
        for eta in 2..5 {
            let mut rung = Rung::new(eta);
            let mut all: Vec<(f64, TrialId)> = Vec::new();
            for trial in 0..300 {
                // Few different values: ties.
                let value = if rng.below(10) == 0 { f64::INFINITY } else { rng.below(40) as f64 - 20.0 };
                let sorted_with = |all: &[(f64, TrialId)]| {
                    let mut all = all.to_vec();
                    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
                    all
                };
                let mut with = all.clone();
                with.push((value, trial));
                let expected =
                    sorted_with(&with)[..with.len() / eta as usize].contains(&(value, trial)) && value.is_finite();
                assert_eq!(rung.would_be_top(value, trial), expected);
                rung.insert(value, trial, true);
                all = with;
                if rng.below(4) == 0 {
                    let failed = all[rng.index(all.len())];
                    rung.leave(failed.0, failed.1, true);
                    let place = all.iter().position(|it| *it == failed).unwrap();
                    all[place].0 = f64::INFINITY;
                }
                let best = sorted_with(&all)[..all.len() / eta as usize].to_vec();
                let top: Vec<TrialId> = rung.top.iter().map(|entry| entry.1).collect();
                assert_eq!(top, best.iter().map(|it| it.1).collect::<Vec<_>>());
            }
        }
    }
}
