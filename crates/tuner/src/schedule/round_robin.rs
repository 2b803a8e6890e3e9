//! Trials take turns: where the cluster holds fewer trials than should be compared, each runs for
//! one unit of resource, pauses, and the one that is furthest behind goes on. So trials stand at
//! the same resource and are judged early, by the rule of another scheduler, with no more machines
//! (round-robin experimentation). A trial goes on without a pause while no other is behind it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{BehindOptions, Form, SchedulerSpec};
use crate::{Ask, History, Next, Record, Rng, Scheduler, Space, SpecError, Stage, TrialId, TrialState, Verdict};

/// Options of taking turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobinOptions {
    /// Between how many trials turns are taken, at least: more than workers, or there is no need
    /// for it.
    #[serde(default = "four")]
    pub width: u32,
    /// Who judges them: a rule that stops trials, not one that pauses them itself. If it is not
    /// said: `behind`.
    #[serde(default = "behind")]
    pub rule: Box<SchedulerSpec>,
}

fn four() -> u32 {
    4
}

fn behind() -> Box<SchedulerSpec> {
    Box::new(SchedulerSpec::Behind(BehindOptions::default()))
}

/// See the module.
#[derive(Debug)]
pub struct RoundRobin {
    width: usize,
    rule: Box<dyn Scheduler>,
    /// Paused trials by what they have behind them.
    ready: BTreeSet<(u32, TrialId)>,
}

impl RoundRobin {
    /// The scheduler.
    ///
    /// # Errors
    /// `width` is below 2, or the rule pauses trials itself, or cannot work with its options.
    pub fn new(options: &RoundRobinOptions, space: &Space) -> Result<Self, SpecError> {
        let wrong = |problem: String| Err(SpecError::Scheduler { scheduler: "round_robin", problem });
        if options.width < 2 {
            return wrong(format!("width is {}: it must be at least 2, one trial takes no turns", options.width));
        }
        let pauses = match &*options.rule {
            SchedulerSpec::None | SchedulerSpec::Median(_) | SchedulerSpec::Behind(_) => None,
            SchedulerSpec::Asha(options) => (options.form == Form::Promotion).then_some("asha in its promotion form"),
            SchedulerSpec::Hyperband(options) => {
                (options.form == Form::Promotion).then_some("hyperband in its promotion form")
            }
            SchedulerSpec::RoundRobin(_) => Some("round_robin"),
            SchedulerSpec::Pbt(_) => Some("pbt"),
        };
        if let Some(name) = pauses {
            return wrong(format!(
                "its rule is {name}, which pauses trials itself: use a rule that stops them (behind, median, or \
                 \"form\":\"stopping\")"
            ));
        }
        Ok(Self { width: options.width as usize, rule: options.rule.build(space)?, ready: BTreeSet::new() })
    }

    /// Whether a further trial is to be compared.
    fn wants_more(&self, stage: &Stage<'_>) -> bool {
        stage.may_start && stage.history.running() + self.ready.len() < self.width
    }
}

impl Scheduler for RoundRobin {
    fn next(&self, stage: &Stage<'_>, rng: &mut Rng) -> Next {
        if self.wants_more(stage) || (self.ready.is_empty() && stage.may_start) {
            return match self.rule.next(stage, rng) {
                Next::New { bracket, .. } => Next::New { bracket, to: Some(1) },
                other => other,
            };
        }
        match self.ready.first() {
            Some(&(resource, trial)) => Next::Resume { trial, to: Some(resource + 1) },
            None if stage.history.running() > 0 => Next::Wait,
            None => Next::End,
        }
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        let mut verdicts = self.rule.judge(stage, trial);
        let Some(known) = stage.history.trial(trial) else { return verdicts };
        let resource = known.resource();
        if verdicts.iter().all(|(it, _)| *it != trial) && known.to.is_some_and(|to| resource >= to) {
            let is_ahead = self.ready.first().is_some_and(|&(least, other)| least < resource && other != trial);
            let turn_is_over = is_ahead || self.wants_more(stage) || known.state == TrialState::Paused;
            verdicts.push((
                trial,
                if turn_is_over { Verdict::Pause } else { Verdict::Continue { to: Some(resource + 1) } },
            ));
        }
        verdicts
    }

    fn ended(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        self.rule.ended(stage, trial)
    }

    fn follow(&mut self, history: &History, record: &Record) {
        self.rule.follow(history, record);
        let (trial, verdicts) = match record {
            Record::Reported { trial, verdicts, .. } | Record::Ended { trial, verdicts, .. } => {
                (*trial, verdicts.as_slice())
            }
            Record::Asked { answer: Ask::Resume { trial, .. }, .. } => (*trial, [].as_slice()),
            Record::Asked { .. } | Record::Injected { .. } => return,
        };
        for trial in verdicts.iter().map(|(trial, _)| *trial).chain([trial]) {
            let Some(known) = history.trial(trial) else { continue };
            // It stood at its last report, or at the one before.
            let before = known.reports.iter().rev().nth(1).map_or(0, |report| report.resource);
            self.ready.remove(&(before, trial));
            self.ready.remove(&(known.resource(), trial));
            if known.state == TrialState::Paused {
                self.ready.insert((known.resource(), trial));
            }
        }
    }

    fn max_resource(&self) -> Option<u32> {
        self.rule.max_resource()
    }
}
