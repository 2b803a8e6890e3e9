//! A Gaussian process over configurations and resources together, for studies whose scheduler stops
//! or pauses trials: what trials said at low resources says something about high ones, and how much
//! is learnt. Between MOBSTER (Klein et al., arXiv 2003.10865: one joint model, pending trials in
//! it) and Hyper-Tune (Li et al., VLDB 2022: how far low rungs are to be trusted is measured).
//!
//! - Resources stand on an axis of their own, on a logarithmic scale. The less the order of trials
//!   at one rung says about the next, the shorter the model's length scale along it, and the less
//!   low rungs count.
//! - Those who come to a rung were chosen at the one below. So values of a rung are brought to the
//!   scale of the one below by the trials that are in both, not by their own mean, which is that of
//!   good ones.
//! - Running trials are pending where they will be judged next.
//! - The proposal is that of a few random configurations which promises the most at the greatest
//!   resource, not the most promising of all: rungs compare trials with each other, and where all
//!   are what the model likes best, those that are good late and not early never pass the first
//!   one. What is passed over by few is still tried, so promotion cannot be starved, and the model
//!   hears of what it does not like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bayes::{Axis, Cache, Encoding, FitOptions, Gp, finite, tamed};
use crate::{Config, History, Proposal, Rng, Searcher, Sobol, TrialState, View};

/// Options of [`MultiFidelity`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MultiFidelitySpec {
    /// Trials of the initial design (Sobol's points) before the model is asked; none: by the number
    /// of parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<u32>,
    /// Values in the model at most; of more, all of high rungs, and of the lowest the best half and
    /// others evenly over time.
    pub most_points: u32,
    /// Whether numbers' scales are bent by what is learnt.
    pub warp: bool,
    /// Among how many random configurations the one that promises the most is taken. Of many, all
    /// are alike.
    pub candidates: u32,
}

impl Default for MultiFidelitySpec {
    fn default() -> Self {
        Self { initial: None, most_points: 200, warp: false, candidates: 4 }
    }
}

/// See the module.
#[derive(Debug)]
pub struct MultiFidelity {
    spec: MultiFidelitySpec,
    cache: Cache,
}

impl MultiFidelity {
    /// With these options.
    pub fn new(spec: MultiFidelitySpec) -> Self {
        Self { spec, cache: Cache::default() }
    }
}

/// How many levels are looked at.
const LEVELS: usize = 8;

/// Where trials stood when they were judged: the resources where most of them paused or ended,
/// ascending.
fn levels(history: &History) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for trial in
        history.trials().iter().filter(|trial| trial.state != TrialState::Running && trial.state != TrialState::Failed)
    {
        if let Some(last) = trial.last() {
            *counts.entry(last.resource).or_default() += 1;
        }
    }
    let mut by_count: Vec<(usize, u32)> = counts.into_iter().map(|(resource, count)| (count, resource)).collect();
    by_count.sort_by_key(|&(count, resource)| (std::cmp::Reverse(count), resource));
    let mut levels: Vec<u32> = by_count.into_iter().take(LEVELS).map(|(_, resource)| resource).collect();
    levels.sort_unstable();
    levels
}

/// A value of a trial at a level.
#[derive(Debug, Clone, Copy)]
struct Seen {
    trial: usize,
    level: usize,
    value: f64,
}

/// What trials said at the levels, by level.
fn seen(history: &History, levels: &[u32]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (level, &resource) in levels.iter().enumerate() {
        for (trial, known) in history.trials().iter().enumerate() {
            let value = match known.state {
                // It counts as the worst where everybody has been.
                TrialState::Failed => (level == 0).then_some(f64::INFINITY),
                // Known from elsewhere: its value is a final one.
                _ if known.reports.is_empty() && level + 1 == levels.len() => known.value(),
                _ => known.at(resource),
            };
            seen.extend(value.map(|value| Seen { trial, level, value }));
        }
    }
    seen
}

/// So many trials more say that the spreads of two levels are in the ratio of those below.
const PRIOR: f64 = 2.0;

/// Brings the values of each level to the scale of the one below it, by the trials that are in
/// both.
fn levelled(seen: &mut [Seen]) {
    let Some(last) = seen.last().map(|it| it.level) else { return };
    let mut below: BTreeMap<usize, f64> = BTreeMap::new();
    let mut ratio = 1.0;
    for level in 0..=last {
        let places: Vec<usize> = (0..seen.len()).filter(|&index| seen[index].level == level).collect();
        let values = tamed(&finite(&places.iter().map(|&index| seen[index].value).collect::<Vec<_>>()));
        let both: Vec<(f64, f64)> = places
            .iter()
            .zip(&values)
            .filter_map(|(&index, &value)| Some((value, *below.get(&seen[index].trial)?)))
            .collect();
        let (centre, scale, shift) = if both.is_empty() {
            let (mean, deviation) = moments(&values);
            (mean, 1.0 / deviation, 0.0)
        } else {
            let (mean, deviation) = moments(&both.iter().map(|it| it.0).collect::<Vec<_>>());
            let (mean_below, deviation_below) = moments(&both.iter().map(|it| it.1).collect::<Vec<_>>());
            #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
            let count = both.len() as f64;
            let own = libm::log(deviation_below / deviation);
            ratio = libm::exp((count * own + PRIOR * libm::log(ratio)) / (count + PRIOR));
            (mean, ratio, mean_below)
        };
        for (&index, value) in places.iter().zip(values) {
            seen[index].value = (value - centre) * scale + shift;
            below.insert(seen[index].trial, seen[index].value);
        }
    }
}

/// Mean and deviation, which is never 0.
fn moments(values: &[f64]) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, if variance > 1e-20 { variance.sqrt() } else { 1.0 })
}

/// At most so many: of the lowest level the best half of the room, and others evenly; of the others
/// the highest levels.
fn thinned(mut seen: Vec<Seen>, most: usize) -> Vec<Seen> {
    if seen.len() <= most {
        return seen;
    }
    let high = seen.split_off(seen.partition_point(|it| it.level == 0));
    let room = most.saturating_sub(high.len()).max(most / 2).min(seen.len());
    seen.sort_by(|one, other| one.value.total_cmp(&other.value).then(one.trial.cmp(&other.trial)));
    let others = seen.split_off(room / 2);
    let left = room - room / 2;
    seen.extend((0..left).map(|index| others[index * others.len() / left]));
    seen.sort_by_key(|it| it.trial);
    seen.extend_from_slice(&high[high.len().saturating_sub(most - room)..]);
    seen
}

impl Searcher for MultiFidelity {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts in a memo"
    )]
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        let d = view.space.parameters().len();
        let (design, mut fitted, mut theta) = match view.memo.map(Vec::as_slice) {
            Some([design, fitted, theta @ ..]) => (*design as u64, *fitted as usize, theta.to_vec()),
            _ => (rng.bits() >> 32, 0, Vec::new()),
        };
        let trials = view.history.trials();
        let levels = levels(view.history);
        let mut seen = seen(view.history, &levels);
        let initial = self.spec.initial.map_or_else(|| (d + 2).clamp(5, 10), |count| count as usize);
        let at_first = seen.iter().filter(|it| it.level == 0).count();
        if trials.len() < initial || at_first < 2.max(initial / 2) {
            let sobol = Sobol::new(d, design);
            let index = u32::try_from(trials.len()).unwrap_or(u32::MAX);
            let config =
                view.space.build(|parameter| view.space.from_unit(parameter, sobol.coordinate(index, parameter)));
            return Proposal::Try {
                config,
                memo: Some([design as f64, fitted as f64].into_iter().chain(theta).collect()),
            };
        }
        levelled(&mut seen);
        let seen = thinned(seen, self.spec.most_points as usize);

        let encoding = Encoding::new(view.space);
        let greatest = view.max_resource.into_iter().chain(levels.last().copied()).max().unwrap_or(1);
        let place = |resource: u32| {
            if greatest > 1 { libm::log(f64::from(resource)) / libm::log(f64::from(greatest)) } else { 1.0 }
        };
        let point = |trial: usize, resource: u32| {
            let mut point = encoding.point(&trials[trial].config);
            point.push(place(resource).clamp(0.0, 1.0));
            point
        };
        let points: Vec<Vec<f64>> = seen.iter().map(|it| point(it.trial, levels[it.level])).collect();
        let values: Vec<f64> = seen.iter().map(|it| it.value).collect();
        let next = |resource: u32| levels.iter().copied().find(|&level| level > resource).unwrap_or(greatest);
        let running = view.history.live().filter(|(_, trial)| trial.state == TrialState::Running);
        let pending: Vec<Vec<f64>> = running.map(|(id, trial)| point(id as usize, next(trial.resource()))).collect();

        let mut axes = encoding.axes(self.spec.warp);
        axes.push(Axis::Number { warped: false });
        let known = points.len();
        if theta.is_empty() || known >= fitted + 1 + fitted / 12 {
            let options = FitOptions {
                theta: (!theta.is_empty()).then_some(theta.as_slice()),
                evaluations: if known < 60 { 40 } else { 12 },
                afresh: known < 40,
            };
            theta = Gp::search(&axes, &points, &values, options);
            fitted = known;
        }
        let model = Gp::new(&axes, &points, &values, &theta, &pending, Some(rng), &mut self.cache);
        let drawn =
            (0..self.spec.candidates).map(|_| view.space.draw(rng)).filter(|config| !view.history.has_tried(config));
        let drawn: Vec<Config> = drawn.collect();
        let ends: Vec<Vec<f64>> =
            drawn.iter().map(|config| encoding.point(config).into_iter().chain([1.0]).collect()).collect();
        // In a small space all may be tried already.
        let means = if ends.is_empty() { Vec::new() } else { model.predict(&ends).0 };
        let best = (0..drawn.len()).min_by(|&one, &other| means[one].total_cmp(&means[other]));
        let config = best.map(|best| drawn[best].clone());
        let memo = [design as f64, fitted as f64].into_iter().chain(theta).collect();
        Proposal::Try { config: config.unwrap_or_else(|| view.space.draw(rng)), memo: Some(memo) }
    }
}
