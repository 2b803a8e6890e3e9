//! The median rule, as AWS documents it for `TrainingJobEarlyStoppingType=Auto`: after each epoch e
//! of a training job take for every other job that came that far the running average of its
//! objective up to e, and the median of these; stop when the job's current value at e is worse.
//! (Golovin et al., "Google Vizier", KDD 2017, section 3.2.2, is where it comes from.) AWS
//! documents no activation; the defaults follow Syne Tune, by the same authors (a grace period and
//! at least five others), and wait for some jobs to complete first.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{key, none::start_or_end};
use crate::{History, Next, Record, Rng, Scheduler, SpecError, Stage, Trial, TrialId, Verdict};

/// Options of the median rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MedianOptions {
    /// No trial is stopped before it has so many units of resource behind it.
    pub min_resource: u32,
    /// No trial is stopped before so many others have come as far as it.
    pub min_trials: u32,
    /// No trial is stopped before so many have completed.
    pub min_completed: u32,
}

impl Default for MedianOptions {
    fn default() -> Self {
        Self { min_resource: 1, min_trials: 5, min_completed: 3 }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Median {
    options: MedianOptions,
    /// By resource: the running averages of those who came that far.
    averages: BTreeMap<u32, Middle>,
    /// By trial: sum and number of its reports.
    sums: BTreeMap<TrialId, (f64, u32)>,
    completed: u32,
}

impl Median {
    /// The rule.
    ///
    /// # Errors
    /// An option is 0 that must not be.
    pub fn new(options: &MedianOptions) -> Result<Self, SpecError> {
        let wrong = |problem: &str| Err(SpecError::Scheduler { scheduler: "median", problem: problem.to_owned() });
        if options.min_resource == 0 {
            return wrong("min_resource is 0: it must be at least 1, trials report first after one unit of resource");
        }
        if options.min_trials == 0 {
            return wrong("min_trials is 0: it must be at least 1, there is no median of nothing");
        }
        Ok(Self { options: *options, averages: BTreeMap::new(), sums: BTreeMap::new(), completed: 0 })
    }
}

impl Scheduler for Median {
    fn next(&self, stage: &Stage<'_>, _rng: &mut Rng) -> Next {
        start_or_end(stage)
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        let Some(last) = stage.history.trial(trial).and_then(Trial::last) else { return Vec::new() };
        let Some(others) = self.averages.get(&last.resource) else { return Vec::new() };
        let is_active = last.resource >= self.options.min_resource
            && others.len() >= self.options.min_trials as usize
            && self.completed >= self.options.min_completed;
        if is_active && others.median().is_some_and(|median| last.value > median) {
            vec![(trial, Verdict::Stop)]
        } else {
            Vec::new()
        }
    }

    fn follow(&mut self, history: &History, record: &Record) {
        match record {
            Record::Reported { trial, .. } => {
                let Some(last) = history.trial(*trial).and_then(Trial::last) else { return };
                let (sum, count) = self.sums.entry(*trial).or_default();
                *sum += last.value;
                *count += 1;
                let average = *sum / f64::from(*count);
                self.averages.entry(last.resource).or_default().insert(average, *trial);
            }
            Record::Ended { trial, .. } => {
                self.completed += u32::from(history.trial(*trial).is_some_and(|trial| trial.value().is_some()));
                self.sums.remove(trial);
            }
            Record::Asked { .. } | Record::Injected { .. } => {}
        }
    }
}

/// Numbers in two halves, the lower one as large as the upper one or larger by one.
#[derive(Debug, Default)]
struct Middle {
    lower: BTreeSet<(u64, TrialId)>,
    upper: BTreeSet<(u64, TrialId)>,
}

impl Middle {
    fn len(&self) -> usize {
        self.lower.len() + self.upper.len()
    }

    fn insert(&mut self, value: f64, trial: TrialId) {
        let entry = (key(value), trial);
        if self.lower.last().is_some_and(|last| entry > *last) {
            self.upper.insert(entry)
        } else {
            self.lower.insert(entry)
        };
        if self.upper.len() > self.lower.len() {
            self.lower.extend(self.upper.pop_first());
        } else if self.lower.len() > self.upper.len() + 1 {
            self.upper.extend(self.lower.pop_last());
        }
    }

    /// The middle one; of an even number the mean of both.
    fn median(&self) -> Option<f64> {
        let low = value(self.lower.last()?.0);
        let is_odd = self.lower.len() > self.upper.len();
        Some(if is_odd { low } else { f64::midpoint(low, value(self.upper.first()?.0)) })
    }
}

/// The inverse of [`key`].
fn value(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        let mut rng = Rng::new(1, 1);
        let mut middle = Middle::default();
        let mut all = Vec::new();
        for trial in 0..200 {
            let value = rng.normal();
            middle.insert(value, trial);
            all.push(value);
            all.sort_by(f64::total_cmp);
            let half = all.len() / 2;
            let expected = if all.len() % 2 == 1 { all[half] } else { f64::midpoint(all[half - 1], all[half]) };
            assert_eq!(middle.median().map(f64::to_bits), Some(expected.to_bits()));
        }
    }
}
