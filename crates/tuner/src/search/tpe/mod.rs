//! Tree-structured Parzen estimator: where are good trials dense, against all of them?
//!
//! After J. Bergstra et al. (2011), in the multivariate form (S. Falkner et al., 2018): a density
//! of the good trials, one of the others, each a sum of kernels over all parameters at once; the
//! candidate with the greatest ratio is tried. What is ours: good trials weigh by the logarithm of
//! their rank; a kernel is as wide as the way to its neighbour, in each dimension, down to a
//! hundredth of the range, in both densities alike; where a trial lacks a parameter that others
//! have (conditions), its kernel is uniform there, so that one model serves all branches; few
//! integers are counted as cells with the mass of a normal. Trials under way and failed ones count
//! among the others.

mod all;
mod below;
mod dims;
mod kernels;
mod order;

use self::all::All;
use self::below::Below;
use self::dims::Dim;
use self::order::Order;
use serde::{Deserialize, Serialize};

use super::Points;
use crate::{Config, Proposal, Rng, Searcher, Space, View};

/// How often a batch of candidates is drawn until one of them was not tried before.
const BATCHES: usize = 8;

/// Options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TpeSpec {
    /// Trials of the design at the beginning: Sobol points.
    pub startup: u32,
    /// How many candidates are compared for one trial.
    pub candidates: u32,
}

impl Default for TpeSpec {
    fn default() -> Self {
        Self { startup: 10, candidates: 24 }
    }
}

/// The searcher. What it keeps are caches of the history.
#[derive(Debug)]
pub struct Tpe {
    startup: usize,
    candidates: usize,
    design: Points,
    dims: Vec<Dim>,
    order: Order,
    all: All,
}

impl Tpe {
    /// For a space.
    pub(crate) fn new(space: &Space, spec: &TpeSpec) -> Self {
        Self {
            startup: spec.startup.max(1) as usize,
            candidates: spec.candidates.max(1) as usize,
            design: Points::default(),
            dims: Dim::all(space),
            order: Order::default(),
            all: All::default(),
        }
    }

    /// The best of some draws that was not tried.
    fn candidate(&self, view: &View<'_>, below: &Below, rng: &mut Rng) -> Option<Config> {
        // In a continuum nothing comes twice.
        let is_finite = view.space.combinations().is_some();
        let candidates: Vec<Vec<f64>> = (0..self.candidates).map(|_| below.draw(view.space, &self.dims, rng)).collect();
        let good = below.kernels.densities(&candidates);
        let other = self.all.kernels.densities(&candidates);
        let ratio = |index: usize| good[index] / other[index];
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by(|&one, &other| ratio(other).total_cmp(&ratio(one)).then(one.cmp(&other)));
        let mut configs = order.into_iter().map(|index| below::config(view.space, &self.dims, &candidates[index]));
        configs.find(|config| !is_finite || !view.history.has_tried(config))
    }
}

impl Searcher for Tpe {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        let trials = view.history.trials();
        let good = self.order.good(view, self.startup.div_ceil(2));
        if trials.len() < self.startup || good.trials.is_empty() {
            return self.design.propose(view, rng);
        }
        let best: Vec<_> = good.trials.iter().map(|&id| &trials[id as usize]).collect();
        let below = Below::new(view.space, &self.dims, &best, trials.len(), good.is_ranked);
        self.all.follow(view.space, &self.dims, trials, &good.trials, below::step_width(best.len(), self.dims.len()));
        let found = (0..BATCHES).find_map(|_| self.candidate(view, &below, rng));
        Proposal::plain(found.unwrap_or_else(|| view.space.draw(rng)))
    }
}

#[cfg(test)]
mod tests;
