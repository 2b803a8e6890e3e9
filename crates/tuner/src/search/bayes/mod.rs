//! Bayesian optimisation: a Gaussian process over what was tried, and the configuration that promises the greatest improvement.
//!
//! From the bottom up: `lanes` (wide registers), `exp`, `factor` (linear algebra), `kernel`, `warp`, `hyper` and `fit` (most probable hyperparameters),
//! [`Gp`] (the model), `acquire` (log expected improvement), `optimise` (where it is highest), `encode` (configurations as points), `output` (values as the
//! model sees them). Searchers over several fidelities use [`Gp::fit`] and [`Gp::predict`] over [`Axis`] rows, [`Encoding`], and [`highest`] for any
//! [`Surface`], of which [`LogEi`] is one.
//!
//! Bits: plain arithmetic in a fixed order and the `libm` crate; no fused multiply-add; see `lanes`.

mod acquire;
mod encode;
mod exp;
mod factor;
mod fit;
mod gp;
mod hyper;
mod kernel;
mod lanes;
mod lbfgs;
mod optimise;
mod output;
#[cfg(test)]
mod tests;
mod warp;

use serde::{Deserialize, Serialize};

use crate::{Proposal, Rng, Searcher, Sobol, TrialState, View};

#[allow(unused_imports, reason = "for searchers over several fidelities")]
pub(crate) use {
    acquire::{LogEi, Surface},
    encode::Encoding,
    gp::{Cache, FitOptions, Gp},
    kernel::Axis,
    optimise::{Effort, highest},
    output::{finite, tamed},
};

/// Options of [`Bayes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BayesSpec {
    /// Trials of the initial design (Sobol's points) before the model is asked; none: by the number of parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<u32>,
    /// Finished trials in the model at most; of more, the best half and others evenly over time.
    pub most_points: u32,
    /// Whether numbers' scales are bent by what is learnt.
    pub warp: bool,
}

impl Default for BayesSpec {
    fn default() -> Self {
        Self { initial: None, most_points: 1000, warp: true }
    }
}

/// Gaussian process, expected improvement. See the module.
#[derive(Debug)]
pub struct Bayes {
    spec: BayesSpec,
    cache: Cache,
}

impl Bayes {
    /// With these options.
    pub fn new(spec: BayesSpec) -> Self {
        Self { spec, cache: Cache::default() }
    }
}

/// What is carried from proposal to proposal.
#[derive(Debug, Clone, Default)]
struct Carried {
    /// Of the initial design.
    seed: u32,
    /// Finished trials when hyperparameters were found.
    fitted: usize,
    theta: Vec<f64>,
}

impl Carried {
    fn read(memo: &[f64]) -> Option<Self> {
        let [seed, fitted, theta @ ..] = memo else { return None };
        Some(Self { seed: *seed as u32, fitted: *fitted as usize, theta: theta.to_vec() })
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    fn write(self) -> Vec<f64> {
        [f64::from(self.seed), self.fitted as f64].into_iter().chain(self.theta).collect()
    }
}

/// Finished trials until hyperparameters are looked for again.
fn patience(fitted: usize) -> usize {
    1 + fitted / 100
}

impl Searcher for Bayes {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        let encoding = Encoding::new(view.space);
        let mut carried = view
            .memo
            .and_then(|memo| Carried::read(memo))
            .unwrap_or_else(|| Carried { seed: (rng.bits() >> 32) as u32, ..Carried::default() });
        let mut points = Vec::new();
        let mut values = Vec::new();
        let mut pending = Vec::new();
        for trial in view.history.trials() {
            match trial.state {
                TrialState::Running | TrialState::Paused => pending.push(encoding.point(&trial.config)),
                TrialState::Failed => {
                    points.push(encoding.point(&trial.config));
                    values.push(f64::INFINITY);
                }
                TrialState::Completed | TrialState::Stopped => {
                    if let Some(value) = trial.values.first() {
                        points.push(encoding.point(&trial.config));
                        values.push(*value);
                    }
                }
            }
        }
        let d = view.space.parameters().len();
        let initial = self.spec.initial.map_or_else(|| (d + 2).clamp(5, 10), |count| count as usize);
        let known = points.len();
        if known + pending.len() < initial || known < 2.min(initial) {
            let sobol = Sobol::new(d, u64::from(carried.seed));
            let index = u32::try_from(view.history.trials().len()).unwrap_or(u32::MAX);
            let config = view.space.build(|parameter| view.space.from_unit(parameter, sobol.coordinate(index, parameter)));
            return Proposal::Try { config, memo: Some(carried.write()) };
        }
        let values = tamed(&finite(&values));
        let axes = encoding.axes(self.spec.warp);
        if carried.theta.is_empty() || known >= carried.fitted + patience(carried.fitted) {
            let options = FitOptions {
                theta: (!carried.theta.is_empty()).then_some(carried.theta.as_slice()),
                evaluations: if known < 100 { 60 } else { 12 },
                afresh: known < 60,
            };
            carried.theta = Gp::search(&axes, &points, &values, options);
            carried.fitted = known;
        }
        let model = [Gp::new(&axes, &points, &values, &carried.theta, &pending, Some(rng), &mut self.cache)];
        let surface = LogEi::new(&model);
        let mut order: Vec<usize> = (0..known).collect();
        order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
        let anchors: Vec<Vec<f64>> = order.iter().take(3).map(|index| points[*index].clone()).collect();
        let effort = Effort { spread: 512, around: 80, climbers: 8, steps: 50 };
        let is_taken = |config: &crate::Config| view.history.has_tried(config);
        let config = highest(&encoding, &surface, &anchors, effort, rng, is_taken);
        Proposal::Try { config: config.unwrap_or_else(|| view.space.draw(rng)), memo: Some(carried.write()) }
    }
}
