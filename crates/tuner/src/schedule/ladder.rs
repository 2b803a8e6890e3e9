//! Rungs over each other: what asynchronous successive halving (Li et al., "A System for Massively
//! Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2) and Hyperband have in common. Rungs
//! lie at `max_resource / eta^k`, from `min_resource` on. All brackets share them: a bracket says
//! only at which rung its trials are judged first.
//!
//! - Stopping form: a trial runs on until a rung finds it outside the best `1 / eta`, and is
//!   stopped there. It needs no checkpoints. As long as fewer than `eta` trials came to a rung,
//!   only the best of them goes on.
//! - Promotion form: a trial pauses at each rung; when a worker is idle, the best paused trial that
//!   is among the best `1 / eta` of its rung goes on to the next one, the highest rung first.
//!   Purer, and needs checkpoints. A trial that would be promoted at once goes on without a pause.
//! - Delayed promotion (Li et al., "Hyper-Tune", VLDB 2022, D-ASHA) also holds the number that went
//!   on from a rung at `1 / eta` of those that came to it. Without it more go on, since who is the
//!   best changes as trials come; where each new trial is better than the last, as with a searcher
//!   that learns, all do.
//! - The end: when no trial may be started, none runs and none is promotable, and no trial has come
//!   to `max_resource` yet, the best of the highest rung goes on.

use serde::{Deserialize, Serialize};

use super::rung::Rung;
use crate::{Ask, History, Next, Record, Report, SpecError, Stage, Start, Trial, TrialId, TrialState, Verdict};

/// What becomes of a trial at a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// It runs on or is stopped.
    Stopping,
    /// It pauses, and may be promoted.
    #[default]
    Promotion,
}

/// The rungs and their rule.
#[derive(Debug)]
pub(super) struct Ladder {
    form: Form,
    eta: u32,
    delayed: bool,
    max: u32,
    levels: Vec<u32>,
    rungs: Vec<Rung>,
    /// Some trial has come to the greatest resource.
    has_whole: bool,
}

/// How a ladder is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) form: Form,
    pub(super) eta: u32,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) delayed: bool,
}

impl Ladder {
    pub(super) fn new(steps: Steps, scheduler: &'static str) -> Result<Self, SpecError> {
        let Steps { form, eta, min, max, delayed } = steps;
        let levels = levels(min, max, eta).map_err(|problem| SpecError::Scheduler { scheduler, problem })?;
        let rungs = levels.iter().map(|_| Rung::new(eta)).collect();
        Ok(Self { form, eta, delayed, max, levels, rungs, has_whole: false })
    }

    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Resources of the rungs, the greatest resource as the last.
    pub(super) fn level(&self, rung: usize) -> u32 {
        self.levels.get(rung).copied().unwrap_or(self.max)
    }

    /// How many rungs there are below the greatest resource.
    pub(super) fn height(&self) -> usize {
        self.levels.len()
    }

    /// A new trial of a bracket.
    pub(super) fn start(&self, bracket: usize) -> Next {
        let to = (self.form == Form::Promotion).then(|| self.level(bracket));
        Next::New { bracket: u32::try_from(bracket).unwrap_or(u32::MAX), to }
    }

    /// A promotion that is due, of the highest rung that has one.
    pub(super) fn promotion(&self) -> Option<Next> {
        (0..self.rungs.len()).rev().find_map(|rung| {
            let trial = self.rungs[rung].promotable()?;
            self.has_room(rung, 0).then(|| Next::Resume { trial, to: Some(self.level(rung + 1)) })
        })
    }

    /// What an idle worker is to do where no promotion is due and no trial may be started.
    pub(super) fn rest(&self, stage: &Stage<'_>) -> Next {
        if stage.history.running() > 0 {
            return Next::Wait;
        }
        let best = (0..self.rungs.len()).rev().find_map(|rung| Some((rung, self.rungs[rung].best_waiting()?)));
        match best {
            Some((rung, trial)) if !self.has_whole => Next::Resume { trial, to: Some(self.level(rung + 1)) },
            _ => Next::End,
        }
    }

    /// Delayed promotion: whether one more may go on from a rung that so many more have come to.
    fn has_room(&self, rung: usize, more: usize) -> bool {
        !self.delayed || (self.rungs[rung].promoted() + 1) * self.eta as usize <= self.rungs[rung].len() + more
    }

    /// The rung that a trial came to with its last report.
    fn reached(&self, trial: &Trial) -> Option<(usize, Report)> {
        let (&last, before) = trial.reports.split_last()?;
        let before =
            before.last().map_or_else(|| trial.origin.map_or(0, |origin| origin.resource), |report| report.resource);
        self.passed(trial.bracket, before, last.resource).map(|rung| (rung, last))
    }

    /// The last rung between two resources, from a bracket's first on.
    fn passed(&self, bracket: u32, before: u32, now: u32) -> Option<usize> {
        let rung = self.levels.partition_point(|&level| level <= now).checked_sub(1)?;
        (rung >= bracket as usize && self.levels[rung] > before).then_some(rung)
    }

    /// What follows from a trial's last report.
    pub(super) fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        let Some(known) = stage.history.trial(trial) else { return Vec::new() };
        if known.resource() >= self.max {
            return vec![(trial, Verdict::Stop)];
        }
        let verdict = match (self.form, self.reached(known)) {
            (Form::Stopping, None) => None,
            (Form::Stopping, Some((rung, report))) => {
                let rung = &self.rungs[rung];
                let is_first = rung.len() + 1 < self.eta as usize
                    && report.value < f64::INFINITY
                    && rung.is_best(report.value, trial);
                (!is_first && !rung.would_be_top(report.value, trial)).then_some(Verdict::Stop)
            }
            (Form::Promotion, Some((rung, report)))
                if self.rungs[rung].would_be_top(report.value, trial) && self.has_room(rung, 1) =>
            {
                Some(Verdict::Continue { to: Some(self.level(rung + 1)) })
            }
            (Form::Promotion, reached) => {
                let is_due = reached.is_some() || known.to.is_some_and(|to| known.resource() >= to);
                is_due.then_some(Verdict::Pause)
            }
        };
        verdict.map(|verdict| (trial, verdict)).into_iter().collect()
    }

    pub(super) fn follow(&mut self, history: &History, record: &Record) {
        match record {
            Record::Reported { trial, .. } => {
                let Some(known) = history.trial(*trial) else { return };
                self.has_whole |= known.resource() >= self.max;
                let Some((rung, report)) = self.reached(known) else { return };
                let waits = self.form == Form::Promotion && known.state == TrialState::Paused;
                // One that ran on while it was to pause waits nowhere else.
                let left = if waits { self.stood(known).filter(|it| it.0 != rung).last() } else { None };
                if let Some((left, value)) = left {
                    self.rungs[left].leave(value, *trial, false);
                }
                self.rungs[rung].insert(report.value, *trial, waits);
                if known.state == TrialState::Running {
                    self.rungs[rung].promote(report.value, *trial);
                }
            }
            Record::Ended { trial, .. } => {
                let Some(known) = history.trial(*trial) else { return };
                let failed = known.state == TrialState::Failed;
                let stood: Vec<_> = self.stood(known).collect();
                for (rung, value) in stood {
                    self.rungs[rung].leave(value, *trial, failed);
                }
            }
            Record::Asked { answer: Ask::Resume { trial, .. }, .. } => {
                let stood = history.trial(*trial).and_then(|known| self.stood(known).last());
                if let Some((rung, value)) = stood {
                    self.rungs[rung].promote(value, *trial);
                }
            }
            Record::Asked { answer: Ask::Start(Start { .. }) | Ask::Wait | Ask::End, .. } | Record::Injected { .. } => {
            }
        }
    }

    /// The rungs that a trial stood in, upwards, and its values there.
    fn stood<'a>(&'a self, trial: &'a Trial) -> impl Iterator<Item = (usize, f64)> + 'a {
        let mut before = trial.origin.map_or(0, |origin| origin.resource);
        trial.reports.iter().filter_map(move |report| {
            let rung = self.passed(trial.bracket, before, report.resource);
            before = report.resource;
            rung.map(|rung| (rung, report.value))
        })
    }
}

/// Where rungs lie: `min * eta^k`, below `max`.
pub(super) fn levels(min: u32, max: u32, eta: u32) -> Result<Vec<u32>, String> {
    if eta < 2 {
        return Err(format!("eta is {eta}: of each rung 1 / eta goes on, so it must be at least 2"));
    }
    if min == 0 {
        return Err(
            "min_resource is 0: it must be at least 1, trials report first after one unit of resource".to_owned()
        );
    }
    if min > max {
        return Err(format!("min_resource {min} is above max_resource {max}"));
    }
    // From the top, so that each step is one of eta: no rung lies just below the greatest resource.
    let below = std::iter::successors(Some(max / eta), |level| Some(level / eta));
    let mut levels: Vec<u32> = below.take_while(|&level| level >= min).collect();
    levels.reverse();
    Ok(levels)
}
