//! What is known: the trials and their reports. Values are kept as they are minimised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Config, Origin, TrialId};

/// What a trial said after a unit of resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Units of resource, from 1.
    pub resource: u32,
    /// First objective, minimised. Infinite for what was not a number.
    #[serde(with = "crate::history::number")]
    pub value: f64,
}

/// Where a trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// A worker has it.
    Running,
    /// No worker has it, and it may go on.
    Paused,
    /// It ended by itself, with a value.
    Completed,
    /// It was stopped.
    Stopped,
    /// Without a result.
    Failed,
}

impl TrialState {
    /// It will not report again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What is tried.
    pub config: Config,
    /// Where it is.
    pub state: TrialState,
    /// It pauses there.
    pub to: Option<u32>,
    /// The scheduler's bracket.
    pub bracket: u32,
    /// Whose checkpoint it began with.
    pub origin: Option<Origin>,
    /// By rising resource, each resource once.
    pub reports: Vec<Report>,
    /// Final values of all objectives, minimised; empty while there are none. Of a stopped trial:
    /// its last report.
    #[serde(with = "crate::history::numbers")]
    pub values: Vec<f64>,
    /// Known from elsewhere.
    pub injected: bool,
}

impl Trial {
    /// The last thing that it said.
    pub fn last(&self) -> Option<Report> {
        self.reports.last().copied()
    }

    /// Units of resource that it has behind it, those of its origin included.
    pub fn resource(&self) -> u32 {
        self.last().map_or_else(|| self.origin.map_or(0, |origin| origin.resource), |report| report.resource)
    }

    /// What it said after so many units.
    pub fn at(&self, resource: u32) -> Option<f64> {
        let place = self.reports.binary_search_by_key(&resource, |report| report.resource).ok()?;
        Some(self.reports[place].value)
    }

    /// Its final value of the first objective, minimised, if it completed.
    pub fn value(&self) -> Option<f64> {
        self.values.first().copied().filter(|_| self.state == TrialState::Completed)
    }
}

/// All trials of a study.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    trials: Vec<Trial>,
    /// Trials that are not over, in order.
    live: BTreeSet<TrialId>,
    /// How many of them a worker has.
    running: usize,
    /// Configurations that were tried: how often.
    tried: BTreeMap<u128, u32>,
}

impl History {
    /// By number.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// One of them.
    pub fn trial(&self, trial: TrialId) -> Option<&Trial> {
        self.trials.get(trial as usize)
    }

    /// Running and paused ones, in order.
    pub fn live(&self) -> impl Iterator<Item = (TrialId, &Trial)> {
        self.live.iter().map(|&trial| (trial, &self.trials[trial as usize]))
    }

    /// How many trials a worker has.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Whether the configuration was proposed or injected before.
    pub fn has_tried(&self, config: &Config) -> bool {
        self.tried.contains_key(&config.key())
    }

    /// How many different configurations were.
    pub fn different(&self) -> usize {
        self.tried.len()
    }

    pub(crate) fn next_id(&self) -> TrialId {
        TrialId::try_from(self.trials.len()).expect("fewer than 2^32 trials")
    }

    pub(crate) fn push(&mut self, trial: Trial) -> TrialId {
        let id = self.next_id();
        *self.tried.entry(trial.config.key()).or_default() += 1;
        if !trial.state.is_over() {
            self.live.insert(id);
        }
        self.running += usize::from(trial.state == TrialState::Running);
        self.trials.push(trial);
        id
    }

    pub(crate) fn trial_mut(&mut self, trial: TrialId) -> Option<&mut Trial> {
        self.trials.get_mut(trial as usize)
    }

    /// A live trial gets a worker, or loses it.
    pub(crate) fn set_running(&mut self, trial: TrialId, running: bool) {
        let Some(known) = self.trials.get_mut(trial as usize).filter(|known| !known.state.is_over()) else { return };
        self.running -= usize::from(known.state == TrialState::Running);
        self.running += usize::from(running);
        known.state = if running { TrialState::Running } else { TrialState::Paused };
    }

    pub(crate) fn close(&mut self, trial: TrialId, state: TrialState) {
        self.live.remove(&trial);
        let known = &mut self.trials[trial as usize];
        self.running -= usize::from(known.state == TrialState::Running);
        known.state = state;
    }
}

/// JSON has no infinities: they travel as null.
pub(crate) mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

/// The same for lists.
pub(crate) mod numbers {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| value.is_finite().then_some(*value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values: Vec<Option<f64>> = Deserialize::deserialize(deserializer)?;
        Ok(values.into_iter().map(|value| value.unwrap_or(f64::INFINITY)).collect())
    }
}
