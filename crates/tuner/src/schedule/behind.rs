//! "X per cent behind the best at the same epoch": after its epoch e a trial is stopped if it is
//! further than that behind the best that any trial had after e. Where an objective is maximised,
//! that is below (1 - x) of the best; where it is minimised, above (1 + x) of it. A trial that
//! stands at e when another raises the best there is stopped, too.
//!
//! The last one standing: when no trial may be started any more and all others are over, and those
//! that ran on to an end of their own are behind this one at its epoch in the same way, the winner
//! is known, and it is stopped, too. (Switched off by `last_one_stops`, for those who want its
//! model whole.)

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::none::start_or_end;
use crate::{History, Next, Record, Rng, Scheduler, SpecError, Stage, Trial, TrialId, TrialState, Verdict};

/// Options of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BehindOptions {
    /// How far behind the best a trial may be, in per cent of the best.
    pub percent: f64,
    /// No trial is stopped before it has so many units of resource behind it.
    pub min_resource: u32,
    /// Whether the last one standing is stopped when it is known to win.
    pub last_one_stops: bool,
}

impl Default for BehindOptions {
    fn default() -> Self {
        Self { percent: 10.0, min_resource: 1, last_one_stops: true }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Behind {
    options: BehindOptions,
    /// By resource: the best value there.
    best: BTreeMap<u32, f64>,
    /// By resource: the live trials whose last report it is.
    standing: BTreeMap<u32, BTreeSet<TrialId>>,
    /// Trials that came to an end of their own: what the last one standing is compared with.
    whole: Vec<TrialId>,
}

impl Behind {
    /// The rule.
    ///
    /// # Errors
    /// The per cent are no number above 0, or `min_resource` is 0.
    pub fn new(options: &BehindOptions) -> Result<Self, SpecError> {
        let wrong = |problem: String| Err(SpecError::Scheduler { scheduler: "behind", problem });
        if !(options.percent.is_finite() && options.percent > 0.0) {
            return wrong(format!("percent is {}: it must be a number above 0", options.percent));
        }
        if options.min_resource == 0 {
            return wrong(
                "min_resource is 0: it must be at least 1, trials report first after one unit of resource".to_owned(),
            );
        }
        Ok(Self { options: *options, best: BTreeMap::new(), standing: BTreeMap::new(), whole: Vec::new() })
    }

    fn is_behind(&self, value: f64, best: f64) -> bool {
        value > best + self.options.percent / 100.0 * best.abs()
    }

    /// The live trial that has won, if there is one.
    fn last_one(&self, stage: &Stage<'_>, stopped: &[(TrialId, Verdict)]) -> Option<TrialId> {
        let history = stage.history;
        // Never many: trials that are stopped leave.
        let mut standing =
            history.live().map(|(trial, _)| trial).filter(|it| stopped.iter().all(|(trial, _)| trial != it));
        let (last, None) = (standing.next()?, standing.next()) else { return None };
        let at = history.trial(last).and_then(Trial::last)?;
        let is_alone = !stage.may_start && history.trials().len() > 1 && at.resource >= self.options.min_resource;
        let beats = |other: &TrialId| {
            history
                .trial(*other)
                .and_then(|trial| trial.at(at.resource))
                .is_none_or(|value| self.is_behind(value, at.value))
        };
        (self.options.last_one_stops && is_alone && at.value.is_finite() && self.whole.iter().all(beats))
            .then_some(last)
    }
}

impl Scheduler for Behind {
    fn next(&self, stage: &Stage<'_>, _rng: &mut Rng) -> Next {
        start_or_end(stage)
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        let Some(last) = stage.history.trial(trial).and_then(Trial::last) else { return Vec::new() };
        let mut verdicts = Vec::new();
        if last.resource >= self.options.min_resource {
            let best = self.best.get(&last.resource).map_or(last.value, |best| best.min(last.value));
            let others = self.standing.get(&last.resource).into_iter().flatten().copied().filter(|&it| it != trial);
            let value = |trial: &TrialId| {
                stage.history.trial(*trial).and_then(Trial::last).map_or(f64::INFINITY, |report| report.value)
            };
            let stopped = others.chain([trial]).filter(|it| self.is_behind(value(it), best));
            verdicts.extend(stopped.map(|trial| (trial, Verdict::Stop)));
        }
        let winner = self.last_one(stage, &verdicts);
        verdicts.extend(winner.map(|trial| (trial, Verdict::Stop)));
        verdicts
    }

    fn ended(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        // What has just ended by itself is not among the whole ones yet.
        let is_whole = stage.history.trial(trial).is_some_and(|trial| trial.state == TrialState::Completed);
        if is_whole {
            Vec::new()
        } else {
            self.last_one(stage, &[]).map(|trial| (trial, Verdict::Stop)).into_iter().collect()
        }
    }

    fn follow(&mut self, history: &History, record: &Record) {
        match record {
            Record::Reported { trial, verdicts, .. } => {
                let Some(known) = history.trial(*trial) else { return };
                let Some(last) = known.last() else { return };
                let best = self.best.entry(last.resource).or_insert(f64::INFINITY);
                *best = best.min(last.value);
                if let [.., before, _] = known.reports[..] {
                    self.leave(before.resource, *trial);
                }
                if !known.state.is_over() {
                    self.standing.entry(last.resource).or_default().insert(*trial);
                }
                for &(trial, _) in verdicts {
                    if let Some(over) = history.trial(trial).filter(|trial| trial.state.is_over()) {
                        self.leave(over.resource(), trial);
                    }
                }
            }
            Record::Ended { trial, verdicts, .. } => {
                for &trial in [trial].into_iter().chain(verdicts.iter().map(|(trial, _)| trial)) {
                    let Some(over) = history.trial(trial) else { continue };
                    self.leave(over.resource(), trial);
                    if over.state == TrialState::Completed {
                        self.whole.push(trial);
                    }
                }
            }
            Record::Asked { .. } | Record::Injected { .. } => {}
        }
    }
}

impl Behind {
    fn leave(&mut self, resource: u32, trial: TrialId) {
        if let Some(standing) = self.standing.get_mut(&resource) {
            standing.remove(&trial);
            if standing.is_empty() {
                self.standing.remove(&resource);
            }
        }
    }
}
