//! Bayesian optimisation: a Gaussian process over what was tried, and the configuration that
//! promises the greatest improvement.
//!
//! From the bottom up: `lanes` (wide registers), `factor` (linear algebra), `kernel`, `warp`,
//! `hyper` and `fit` (most probable hyperparameters), [`Gp`] (the model), `acquire` (log expected
//! improvement), `optimise` (where it is highest), `encode` (configurations as points), `output`
//! (values as the model sees them). The model-based multi-fidelity searcher uses the model,
//! [`Axis`] and [`Encoding`] too.
//!
//! Bits: plain arithmetic in a fixed order and the `libm` crate; no fused multiply-add; see
//! `lanes`.

mod acquire;
mod encode;
mod factor;
mod fit;
mod gp;
mod hyper;
mod kernel;
mod known;
mod lanes;
mod lbfgs;
mod optimise;
mod output;
mod scalar;
mod slice;
#[cfg(test)]
mod tests;
mod warp;

use serde::{Deserialize, Serialize};

use crate::{Config, Proposal, Rng, Searcher, Sobol, View};
use acquire::LogEi;
use known::Known;
use optimise::{Effort, highest};

pub(crate) use {
    encode::Encoding,
    gp::{Cache, FitOptions, Gp},
    kernel::Axis,
    output::{finite, tamed},
};

/// Options of [`Bayes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BayesSpec {
    /// Trials of the initial design (Sobol's points) before the model is asked; none: by the number
    /// of parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<u32>,
    /// Finished trials in the model at most; of more, the better half and others evenly over time.
    pub most_points: u32,
    /// Whether numbers' scales are bent by what is learnt.
    pub warp: bool,
    /// Where hyperparameters come from.
    pub hyperparameters: Hyperparameters,
}

/// Where the model's hyperparameters come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hyperparameters {
    /// The most probable ones.
    #[default]
    Probable,
    /// So many draws from their posterior by slice sampling, over which the acquisition is
    /// averaged: slower by as much and more.
    Sampled(u8),
}

impl Default for BayesSpec {
    fn default() -> Self {
        Self { initial: None, most_points: 1000, warp: true, hyperparameters: Hyperparameters::Probable }
    }
}

/// Gaussian process, expected improvement. See the module.
#[derive(Debug)]
pub struct Bayes {
    spec: BayesSpec,
    /// Of the model as it is and of the more doubtful one, by draw of hyperparameters.
    caches: [Vec<Cache>; 2],
}

/// What is carried from proposal to proposal.
#[derive(Debug, Clone, Default)]
struct Carried {
    /// Of the initial design.
    seed: u32,
    /// Finished trials when hyperparameters were found.
    fitted: usize,
    /// Hyperparameters, one draw after the other.
    thetas: Vec<f64>,
}

impl Carried {
    fn read(memo: &[f64]) -> Option<Self> {
        let [seed, fitted, thetas @ ..] = memo else { return None };
        Some(Self { seed: *seed as u32, fitted: *fitted as usize, thetas: thetas.to_vec() })
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    fn write(self) -> Vec<f64> {
        [f64::from(self.seed), self.fitted as f64].into_iter().chain(self.thetas).collect()
    }
}

/// Where less than this logarithm of an improvement (in deviations of the values) is expected
/// anywhere, the model may be too sure of itself.
const SETTLED: f64 = -7.0;

/// How often it is then doubted.
const DOUBT: f64 = 0.4;

/// Hyperparameters are looked for with at most so many trials; all are in the model.
const MOST_FITTED: usize = 400;

/// Finished trials until hyperparameters are looked for again: one more up to 100, then 3 and more.
fn patience(fitted: usize) -> usize {
    if fitted < 100 { 1 } else { 2 + fitted / 100 }
}

impl Bayes {
    /// With these options.
    pub fn new(spec: BayesSpec) -> Self {
        Self { spec, caches: [Vec::new(), Vec::new()] }
    }

    /// How many trials the initial design has.
    fn initial(&self, parameters: usize) -> usize {
        self.spec.initial.map_or_else(|| (parameters + 2).clamp(5, 10), |count| count as usize)
    }

    /// Hyperparameters for what is known now, one draw after the other.
    fn thetas(&self, axes: &[Axis], known: &Known, before: &[f64], rng: &mut Rng) -> Vec<f64> {
        let last = before.rchunks(hyper::count(axes)).next();
        let evaluations = match known.finished {
            0..100 => 60,
            100..180 => 16,
            _ => 5,
        };
        let (points, values) = known.sample(MOST_FITTED);
        let options = FitOptions { theta: last, evaluations, afresh: known.finished < 60 };
        let probable = Gp::search(axes, &points, &values, options);
        let draws = match self.spec.hyperparameters {
            Hyperparameters::Probable => 0,
            Hyperparameters::Sampled(draws) => draws,
        };
        if draws == 0 {
            return probable;
        }
        let values = gp::standardised(&values);
        slice::draws(&fit::Data { axes, points: &points, values: &values }, &probable, 1, usize::from(draws), rng)
            .concat()
    }
}

impl Searcher for Bayes {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        let encoding = Encoding::new(view.space);
        let mut carried = view
            .memo
            .and_then(|memo| Carried::read(memo))
            .unwrap_or_else(|| Carried { seed: (rng.bits() >> 32) as u32, ..Carried::default() });
        let known = Known::new(view, &encoding, self.spec.most_points as usize, rng);
        let parameters = view.space.parameters().len();
        let initial = self.initial(parameters);
        if known.finished + known.pending.len() < initial || known.finished < 2.min(initial) {
            let sobol = Sobol::new(parameters, u64::from(carried.seed));
            let index = u32::try_from(view.history.trials().len()).unwrap_or(u32::MAX);
            let config =
                view.space.build(|parameter| view.space.from_unit(parameter, sobol.coordinate(index, parameter)));
            return Proposal::Try { config, memo: Some(carried.write()) };
        }
        let axes = encoding.axes(self.spec.warp);
        let is_due = known.finished >= carried.fitted + patience(carried.fitted);
        // Several objectives are weighed anew every time.
        if carried.thetas.is_empty() || is_due || view.objectives.len() > 1 {
            carried.thetas = self.thetas(&axes, &known, &carried.thetas, rng);
            carried.fitted = known.finished;
        }
        let Known { points, values, pending, .. } = &known;
        let anchors: Vec<Vec<f64>> = known.by_value().into_iter().take(3).map(|index| points[index].clone()).collect();
        let effort = Effort { spread: 512, around: 80, climbers: 8, steps: 50 };
        let is_taken = |config: &Config| view.history.has_tried(config);
        let mut best = None;
        // First with the hyperparameters as they are. Where nothing seems left to find, at times
        // with half the length scales and none above the whole range: points that were chosen along
        // a few parameters make the others look smoother than they are.
        let mut thetas = carried.thetas.clone();
        for caches in &mut self.caches {
            let draws = thetas.chunks_exact(hyper::count(&axes));
            caches.resize_with(draws.len(), Cache::default);
            let models: Vec<Gp> = draws
                .zip(caches)
                .map(|(theta, cache)| Gp::new(&axes, points, values, theta, pending, Some(rng), cache))
                .collect();
            best = highest(&encoding, &LogEi::new(&models), &anchors, effort, rng, is_taken).or(best);
            if best.as_ref().is_none_or(|(_, value)| *value > SETTLED) || rng.unit() > DOUBT {
                break;
            }
            for theta in thetas.chunks_exact_mut(hyper::count(&axes)) {
                for weight in &mut theta[..axes.len()] {
                    *weight = (*weight + std::f64::consts::LN_2).max(0.0);
                }
            }
        }
        let config = best.map_or_else(|| view.space.draw(rng), |(config, _)| config);
        Proposal::Try { config, memo: Some(carried.write()) }
    }
}
