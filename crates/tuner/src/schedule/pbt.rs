//! Population based training (Jaderberg et al., arXiv 1711.09846): a population of trials trains in
//! steps of `interval` units. At the end of a step the worst part of those that came there is
//! stopped, and each is replaced by a copy of one of the best (exploit: its checkpoint; explore:
//! its configuration, perturbed). Trials of the same age are compared with each other, whoever came
//! there first.
//!
//! Steps need no barrier: where there are fewer workers than members, the member that is furthest
//! behind goes on, and nobody waits for one that runs. A member that failed or was stopped from
//! outside is replaced like a bad one, or by a new one while nobody has a checkpoint. One that
//! ended by itself is not replaced. A replacement is a trial of its own and counts against the
//! study's number of trials; when that is used up nobody is stopped any more.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{key, worst};
use crate::{
    Ask, Config, Domain, History, Next, Origin, Record, Rng, Scaling, Scheduler, Space, SpecError, Stage, Start, Trial,
    TrialId, TrialState, Value, Verdict,
};

/// Options of population based training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PbtOptions {
    /// How many members the population has.
    #[serde(default = "ten")]
    pub population: u32,
    /// Units of resource between two looks.
    #[serde(default = "one")]
    pub interval: u32,
    /// Where a trial is over.
    pub max_resource: u32,
    /// Which part is replaced, and which part is copied.
    #[serde(default = "quarter")]
    pub quantile: f64,
    /// With which probability a parameter is drawn anew instead of perturbed.
    #[serde(default = "quarter")]
    pub resample: f64,
}

fn ten() -> u32 {
    10
}

fn one() -> u32 {
    1
}

fn quarter() -> f64 {
    0.25
}

impl PbtOptions {
    /// The defaults, up to a greatest resource.
    pub fn up_to(max_resource: u32) -> Self {
        Self { population: ten(), interval: one(), max_resource, quantile: quarter(), resample: quarter() }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pbt {
    options: PbtOptions,
    space: Space,
    /// Members that were started as such.
    members: u32,
    /// Members that are to be replaced.
    vacant: u32,
    /// By end of a step: who came there, the best first.
    steps: BTreeMap<u32, BTreeSet<(u64, TrialId)>>,
    /// The last step's end of those who are not over.
    standing: BTreeMap<TrialId, (u32, u64)>,
    /// Paused trials by what they have behind them.
    ready: BTreeSet<(u32, TrialId)>,
}

impl Pbt {
    /// The scheduler.
    ///
    /// # Errors
    /// An option is out of its range.
    pub fn new(options: &PbtOptions, space: &Space) -> Result<Self, SpecError> {
        let wrong = |problem: String| Err(SpecError::Scheduler { scheduler: "pbt", problem });
        let PbtOptions { population, interval, max_resource, quantile, resample } = *options;
        if population < 2 {
            return wrong(format!("population is {population}: it must be at least 2, one trial has nobody to copy"));
        }
        if interval == 0 {
            return wrong("interval is 0: it must be at least 1 unit of resource".to_owned());
        }
        if interval >= max_resource {
            return wrong(format!(
                "interval {interval} is not below max_resource {max_resource}: nobody would ever be compared"
            ));
        }
        if !(quantile > 0.0 && quantile <= 0.5) {
            return wrong(format!(
                "quantile is {quantile}: it must be above 0 and at most 0.5, or a trial would be both good and bad"
            ));
        }
        if !(0.0..=1.0).contains(&resample) {
            return wrong(format!("resample is {resample}: it is a probability, from 0 to 1"));
        }
        let (steps, standing, ready) = Default::default();
        Ok(Self { options: *options, space: space.clone(), members: 0, vacant: 0, steps, standing, ready })
    }

    /// The end of the step after a resource.
    fn following(&self, resource: u32) -> u32 {
        let PbtOptions { interval, max_resource, .. } = self.options;
        (resource / interval).saturating_add(1).saturating_mul(interval).min(max_resource)
    }

    /// The end of a step that a trial came to with its last report.
    fn came_to(&self, trial: &Trial) -> Option<u32> {
        let (last, before) = trial.reports.split_last()?;
        let before =
            before.last().map_or_else(|| trial.origin.map_or(0, |origin| origin.resource), |report| report.resource);
        let end = last.resource / self.options.interval * self.options.interval;
        (end > before).then_some(end)
    }

    /// How many of so many are the worst part, and as many the best; 0 while they are too few to
    /// tell.
    fn part(&self, of: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small and not negative"
        )]
        let part = (of as f64 * self.options.quantile) as usize;
        if part == 0 && of >= self.options.population as usize { 1 } else { part }
    }

    /// Whose checkpoint a replacement begins with.
    fn donor(&self, rng: &mut Rng) -> Option<Origin> {
        let mut members: Vec<(u64, TrialId, u32)> =
            self.standing.iter().map(|(&trial, &(end, place))| (place, trial, end)).collect();
        members.retain(|&(place, _, end)| place < worst() && end < self.options.max_resource);
        members.sort_unstable();
        members.truncate(self.part(members.len()).max(1));
        let (_, trial, resource) = *members.get(rng.index(members.len()))?;
        Some(Origin { trial, resource })
    }

    /// A configuration near another.
    fn explore(&self, config: &Config, rng: &mut Rng) -> Config {
        self.space.build(|index| {
            let old = config.0.get(index).copied().flatten().filter(|_| rng.unit() >= self.options.resample);
            let factor = if rng.below(2) == 0 { 0.8 } else { 1.2 };
            let fresh = self.space.from_unit(index, rng.unit());
            match old {
                Some(old) => perturbed(&self.space.parameters()[index].domain, old, factor),
                None => fresh,
            }
        })
    }

    fn may_add(&self, stage: &Stage<'_>) -> bool {
        stage.may_start && (self.vacant > 0 || self.members < self.options.population)
    }
}

/// A value times a factor, in its range; an integer moves by one at least. Of a parameter whose
/// scale is that of 1 - x, 1 - x is. Choices stay.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "saturating, then clamped to the range"
)]
fn perturbed(domain: &Domain, value: Value, factor: f64) -> Value {
    match (domain, value) {
        (Domain::Continuous { min, max, scaling: Scaling::ReverseLogarithmic }, Value::Float(value)) => {
            Value::Float((1.0 - (1.0 - value) * factor).clamp(*min, *max))
        }
        (Domain::Continuous { min, max, .. }, Value::Float(value)) => Value::Float((value * factor).clamp(*min, *max)),
        (Domain::Integer { min, max, .. }, Value::Int(value)) => {
            let moved = libm::round(value as f64 * factor) as i64;
            let up = (factor > 1.0) == (value >= 0);
            let moved = if moved != value { moved } else { value.saturating_add(if up { 1 } else { -1 }) };
            Value::Int(moved.clamp(*min, *max))
        }
        (_, value) => value,
    }
}

impl Scheduler for Pbt {
    fn next(&self, stage: &Stage<'_>, rng: &mut Rng) -> Next {
        if self.may_add(stage) {
            let donor = if self.vacant > 0 { self.donor(rng) } else { None };
            if let Some((origin, donor)) = donor.and_then(|origin| Some((origin, stage.history.trial(origin.trial)?))) {
                return Next::Copy {
                    config: self.explore(&donor.config, rng),
                    origin,
                    to: Some(self.following(origin.resource)),
                };
            }
            return Next::New { bracket: 0, to: Some(self.following(0)) };
        }
        match self.ready.first() {
            Some(&(resource, trial)) => Next::Resume { trial, to: Some(self.following(resource)) },
            None if stage.history.running() > 0 => Next::Wait,
            None => Next::End,
        }
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        let Some(known) = stage.history.trial(trial) else { return Vec::new() };
        let Some(last) = known.last() else { return Vec::new() };
        if last.resource >= self.options.max_resource {
            return vec![(trial, Verdict::Stop)];
        }
        let mut verdicts = Vec::new();
        let end = self.came_to(known);
        if let Some(end) = end.filter(|_| stage.may_start) {
            let mut here = self.steps.get(&end).cloned().unwrap_or_default();
            here.insert((key(last.value), trial));
            let stands = |it: &TrialId| {
                *it == trial || self.standing.get(it).is_some_and(|&(at, _)| at == end && !self.ran_on(stage, *it))
            };
            let bad = here.iter().rev().take(self.part(here.len())).map(|entry| entry.1).filter(stands);
            verdicts.extend(bad.map(|trial| (trial, Verdict::Stop)));
        }
        let is_stopped = verdicts.iter().any(|(it, _)| *it == trial);
        if !is_stopped && (end.is_some() || known.to.is_some_and(|to| last.resource >= to)) {
            let is_ahead = self.ready.first().is_some_and(|&(least, other)| least < last.resource && other != trial);
            let pauses = is_ahead || !verdicts.is_empty() || self.may_add(stage) || known.state == TrialState::Paused;
            let to = Some(self.following(last.resource));
            verdicts.push((trial, if pauses { Verdict::Pause } else { Verdict::Continue { to } }));
        }
        verdicts
    }

    fn follow(&mut self, history: &History, record: &Record) {
        match record {
            Record::Asked { answer: Ask::Start(Start { .. }), .. } => {
                if self.vacant > 0 {
                    self.vacant -= 1;
                } else {
                    self.members += 1;
                }
            }
            Record::Asked { answer: Ask::Resume { trial, .. }, .. } => self.place(history, *trial),
            Record::Reported { trial, verdicts, .. } => {
                let Some(known) = history.trial(*trial) else { return };
                if let (Some(end), Some(last)) = (self.came_to(known), known.last()) {
                    self.steps.entry(end).or_default().insert((key(last.value), *trial));
                    self.standing.insert(*trial, (end, key(last.value)));
                }
                for &(trial, verdict) in verdicts {
                    let is_bad = history.trial(trial).is_some_and(|trial| trial.resource() < self.options.max_resource);
                    self.vacant += u32::from(verdict == Verdict::Stop && is_bad);
                    self.place(history, trial);
                }
                self.place(history, *trial);
            }
            Record::Ended { trial, .. } => {
                let state = history.trial(*trial).map(|trial| trial.state);
                self.vacant += u32::from(matches!(state, Some(TrialState::Failed | TrialState::Stopped)));
                self.place(history, *trial);
            }
            Record::Asked { .. } | Record::Injected { .. } => {}
        }
    }

    fn max_resource(&self) -> Option<u32> {
        Some(self.options.max_resource)
    }
}

impl Pbt {
    /// Whether a trial has gone on from where it stood: what it does there is no longer to be
    /// judged.
    fn ran_on(&self, stage: &Stage<'_>, trial: TrialId) -> bool {
        stage.history.trial(trial).is_none_or(|trial| trial.state != TrialState::Paused)
    }

    /// Keeps a trial where it is now.
    fn place(&mut self, history: &History, trial: TrialId) {
        let Some(known) = history.trial(trial) else { return };
        let before = known.reports.iter().rev().nth(1).map_or(0, |report| report.resource);
        self.ready.remove(&(before, trial));
        self.ready.remove(&(known.resource(), trial));
        if known.state == TrialState::Paused {
            self.ready.insert((known.resource(), trial));
        }
        if known.state.is_over() {
            self.standing.remove(&trial);
        }
    }
}
