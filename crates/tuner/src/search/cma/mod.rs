//! CMA-ES: a normal distribution over the numeric parameters that moves to where good trials are
//! and takes their shape.
//!
//! Ours beside the textbook: trials may end in any order, and a generation is the next `lambda`
//! that ended; integers keep a least deviation, so that they do not freeze (the margin of R. Hamano
//! et al., "CMA-ES with margin", 2022, as a deviation); names have a chance each, which follows the
//! good trials; a converged strategy starts again elsewhere with twice the generation (IPOP: A.
//! Auger and N. Hansen, 2005). Failed trials rank last.

mod eigen;
mod strategy;

use serde::{Deserialize, Serialize};

use self::strategy::Strategy;
use super::Points;
use crate::{Config, Domain, History, Proposal, Record, Rng, Searcher, Space, TrialId, Value, View};

/// Options.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CmaSpec {
    /// Trials of a generation; none: 4 + 3 ln n, of n numeric parameters.
    pub population: Option<u32>,
    /// Standard deviation at the beginning, as a part of the scaled range.
    pub sigma: f64,
    /// Trials of the design before: Sobol points, the best of which is the first mean.
    pub startup: u32,
}

impl Default for CmaSpec {
    fn default() -> Self {
        Self { population: None, sigma: 0.2, startup: 10 }
    }
}

/// How fast the chances of names follow the good trials.
const NAMES_RATE: f64 = 0.25;
/// A strategy is over when its greatest deviation is below this part of the range,
const LEAST_DEVIATION: f64 = 1e-6;
/// or its axes differ by more than this.
const GREATEST_RATIO: f64 = 1e7;

/// The searcher. Its strategy follows from the records that it was shown, in order: a restored
/// study shows them again.
#[derive(Debug)]
pub struct CmaEs {
    spec: CmaSpec,
    design: Points,
    /// Indices of numeric parameters: the strategy's coordinates.
    numeric: Vec<usize>,
    /// Chances of the names of categorical parameters, by parameter.
    chances: Vec<Vec<f64>>,
    strategy: Option<Strategy>,
    /// Trials whose end was counted.
    counted: Vec<bool>,
    /// Ended since the last generation: value and number.
    ended: Vec<(f64, TrialId)>,
    restarts: u32,
    /// The best value of each of the last generations.
    bests: Vec<f64>,
}

impl CmaEs {
    /// For a space.
    pub(crate) fn new(space: &Space, spec: &CmaSpec) -> Self {
        let names = |domain: &Domain| if let Domain::Categorical { values } = domain { values.len() } else { 0 };
        let counts: Vec<usize> = space.parameters().iter().map(|parameter| names(&parameter.domain)).collect();
        Self {
            spec: *spec,
            design: Points::default(),
            numeric: (0..counts.len()).filter(|&index| counts[index] == 0).collect(),
            chances: counts.into_iter().map(|count| vec![1.0 / count.max(1) as f64; count]).collect(),
            strategy: None,
            counted: Vec::new(),
            ended: Vec::new(),
            restarts: 0,
            bests: Vec::new(),
        }
    }

    fn population(&self) -> usize {
        let usual = 4 + (3.0 * libm::log(self.numeric.len().max(1) as f64)) as usize;
        self.spec.population.map_or(usual, |given| given.max(2) as usize) << self.restarts.min(6)
    }

    /// Coordinates of a configuration; the mean's where a parameter is inactive.
    fn point(&self, space: &Space, config: &Config, mean: Option<&[f64]>) -> Vec<f64> {
        let place = |(at, &parameter): (usize, &usize)| match config.0[parameter] {
            Some(value) => space.unit(parameter, value),
            None => mean.map_or(0.5, |mean| mean[at]),
        };
        self.numeric.iter().enumerate().map(place).collect()
    }

    fn count(&mut self, space: &Space, history: &History, id: TrialId) {
        let Some(trial) = history.trial(id).filter(|trial| trial.state.is_over()) else { return };
        if self.counted.len() <= id as usize {
            self.counted.resize(id as usize + 1, false);
        }
        if std::mem::replace(&mut self.counted[id as usize], true) {
            return;
        }
        self.ended.push((trial.values.first().copied().unwrap_or(f64::INFINITY), id));
        let wanted = if self.strategy.is_some() { self.population() } else { self.spec.startup.max(1) as usize };
        if self.ended.len() < wanted {
            return;
        }
        let mut generation = std::mem::take(&mut self.ended);
        generation.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let configs: Vec<&Config> = generation.iter().map(|(_, id)| &history.trials()[*id as usize].config).collect();
        let lambda = self.population();
        match self.strategy.take() {
            None => {
                self.strategy = Some(Strategy::new(self.point(space, configs[0], None), self.spec.sigma, lambda));
                self.learn_names(&configs[..configs.len().div_ceil(2)], &[]);
            }
            Some(mut strategy) => {
                let points: Vec<Vec<f64>> =
                    configs.iter().map(|config| self.point(space, config, Some(&strategy.mean))).collect();
                if !self.numeric.is_empty() {
                    strategy.update(&points);
                }
                let weights = strategy.weights.clone();
                self.learn_names(&configs[..weights.len()], &weights);
                self.bests.push(generation[0].0);
                self.strategy = Some(strategy);
                self.restart_if_over(configs[0]);
            }
        }
    }

    /// Moves the chances of names towards the good ones, equally where there are no weights.
    fn learn_names(&mut self, good: &[&Config], weights: &[f64]) {
        let least = |count: usize| 1.0 / (count as f64 * self.strategy.as_ref().map_or(10.0, |it| it.lambda as f64));
        let leasts: Vec<f64> = self.chances.iter().map(|chances| least(chances.len().max(1))).collect();
        for (parameter, chances) in self.chances.iter_mut().enumerate() {
            for (rank, config) in good.iter().enumerate() {
                let Some(Value::Choice(choice)) = config.0[parameter] else { continue };
                let weight = weights.get(rank).copied().unwrap_or(1.0 / good.len() as f64);
                let rate = NAMES_RATE * weight;
                for (value, chance) in chances.iter_mut().enumerate() {
                    *chance = (1.0 - rate) * *chance + if value == choice as usize { rate } else { 0.0 };
                }
            }
            chances.iter_mut().for_each(|chance| *chance = chance.max(leasts[parameter]));
            let sum: f64 = chances.iter().sum();
            chances.iter_mut().for_each(|chance| *chance /= sum);
        }
    }

    fn restart_if_over(&mut self, best: &Config) {
        let Some(strategy) = &self.strategy else { return };
        let (greatest, ratio) = strategy.shape();
        let patience = 10 + 30 * self.numeric.len().max(1) / strategy.lambda;
        let recent = &self.bests[self.bests.len().saturating_sub(patience)..];
        let is_flat =
            recent.len() == patience && recent.iter().all(|value| (value - recent[0]).abs() <= 1e-9 * recent[0].abs());
        if greatest >= LEAST_DEVIATION && ratio < GREATEST_RATIO && !is_flat {
            return;
        }
        self.restarts += 1;
        self.bests.clear();
        // Anywhere: by random numbers that follow from what was found.
        let mut rng = Rng::new(best.key() as u64, u64::from(self.restarts));
        let mean = self.numeric.iter().map(|_| rng.unit()).collect();
        self.strategy = Some(Strategy::new(mean, self.spec.sigma, self.population()));
        for chances in &mut self.chances {
            let even = 1.0 / chances.len().max(1) as f64;
            chances.fill(even);
        }
    }

    /// What an integer's value takes of the interval, at a place.
    fn cell(space: &Space, parameter: usize, place: f64) -> f64 {
        match space.from_unit(parameter, place) {
            Value::Int(value) => {
                let unit = |value| space.unit(parameter, Value::Int(value));
                0.5 * (unit(value.saturating_add(1)) - unit(value.saturating_sub(1)))
            }
            _ => 0.0,
        }
    }

    fn draw(&self, strategy: &Strategy, space: &Space, rng: &mut Rng) -> Config {
        let is_inside = |point: &Vec<f64>| point.iter().all(|place| (0.0..=1.0).contains(place));
        let mut point = strategy.draw(rng);
        for _ in 0..20 {
            if is_inside(&point) {
                break;
            }
            point = strategy.draw(rng);
        }
        // An integer leaves its value at least so often: once in a generation and parameter, 1.2 to
        // 1.5 half cells' deviations in usual sizes.
        for (at, &parameter) in self.numeric.iter().enumerate() {
            let least = 0.22 * Self::cell(space, parameter, strategy.mean[at].clamp(0.0, 1.0));
            let deviation = strategy.deviation(at);
            if deviation < least {
                point[at] += libm::sqrt(least * least - deviation * deviation) * rng.normal();
            }
            point[at] = point[at].clamp(0.0, 1.0);
        }
        space.build(|parameter| match self.numeric.binary_search(&parameter) {
            Ok(at) => space.from_unit(parameter, point[at]),
            Err(_) => {
                let (mut place, chances) = (rng.unit(), &self.chances[parameter]);
                let found = chances.iter().position(|chance| {
                    place -= chance;
                    place < 0.0
                });
                Value::Choice(u32::try_from(found.unwrap_or(chances.len() - 1)).unwrap_or(0))
            }
        })
    }
}

impl Searcher for CmaEs {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        match &self.strategy {
            Some(strategy) => Proposal::plain(self.draw(strategy, view.space, rng)),
            None => self.design.propose(view, rng),
        }
    }

    fn follow(&mut self, space: &Space, history: &History, record: &Record) {
        let (first, verdicts) = match record {
            Record::Asked { .. } => return,
            Record::Reported { trial, verdicts, .. } | Record::Ended { trial, verdicts, .. } => {
                (*trial, verdicts.as_slice())
            }
            Record::Injected { .. } => (TrialId::try_from(history.trials().len() - 1).unwrap_or(TrialId::MAX), &[][..]),
        };
        self.count(space, history, first);
        for &(trial, _) in verdicts {
            self.count(space, history, trial);
        }
    }
}

#[cfg(test)]
mod tests;
