//! Searchers: what to try next. One file each.

pub(crate) mod bayes;
mod cma;
mod grid;
mod multi_fidelity;
mod random;
mod sobol;
mod tpe;

use serde::{Deserialize, Serialize};

use crate::{Config, Direction, History, Memo, Record, Rng, Space, SpecError};

pub use bayes::{Bayes, BayesSpec, Hyperparameters};
pub use cma::{CmaEs, CmaSpec};
pub use grid::{Grid, GridSpec};
pub use multi_fidelity::{MultiFidelity, MultiFidelitySpec};
pub use random::Random;
pub use sobol::Points;
pub use tpe::{Tpe, TpeSpec};

/// What a searcher may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// What may be tried.
    pub space: &'a Space,
    /// Which way each objective is better; values in the history are minimised already.
    pub objectives: &'a [Direction],
    /// What is known. Running and paused trials are pending: they are there without final values.
    pub history: &'a History,
    /// What the searcher remembered at its last proposal.
    pub memo: Option<&'a Memo>,
    /// How far the trial that is asked for is to run at first, where the scheduler has said it: the
    /// fidelity that matters now.
    pub to: Option<u32>,
    /// Where trials are over, where the scheduler knows it.
    pub max_resource: Option<u32>,
}

/// What a searcher answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Proposal {
    /// Try this.
    Try {
        /// A configuration of the space.
        config: Config,
        /// For the next proposal.
        memo: Option<Memo>,
    },
    /// There is nothing left to try.
    Exhausted,
}

impl Proposal {
    /// Without a memo.
    pub fn plain(config: Config) -> Self {
        Self::Try { config, memo: None }
    }
}

/// Proposes configurations. What it answers is a function of the view and the random numbers alone:
/// what it keeps in itself are caches, which may make it faster and never different.
pub trait Searcher: std::fmt::Debug + Send {
    /// What to try next. It may repeat what was tried: the study asks again, with fresh random
    /// numbers, where the space has something else.
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal;

    /// Something has happened, and is in the history already. For caches.
    fn follow(&mut self, _space: &Space, _history: &History, _record: &Record) {}
}

/// Which searcher, and how it is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SearcherSpec {
    /// Independent draws, uniform in the scaled space.
    Random,
    /// The points of a scrambled Sobol sequence: fills the space more evenly.
    Sobol,
    /// Gaussian process, expected improvement.
    Bayesian(BayesSpec),
    /// Tree-structured Parzen estimator: cheap, and at home in conditional and categorical spaces.
    /// For several objectives, too.
    Tpe(TpeSpec),
    /// CMA-ES: numeric parameters, hundreds of trials, one objective.
    CmaEs(CmaSpec),
    /// Every combination once; numeric parameters in so many steps.
    Grid(GridSpec),
    /// A Gaussian process over configurations and resources, for schedulers that stop or pause
    /// trials.
    MultiFidelity(MultiFidelitySpec),
}

impl SearcherSpec {
    /// The searcher of a study.
    ///
    /// # Errors
    /// It cannot work on this space, with these objectives or options.
    pub fn build(&self, space: &Space, objectives: &[Direction]) -> Result<Box<dyn Searcher>, SpecError> {
        match self {
            Self::Random => Ok(Box::new(Random)),
            Self::CmaEs(_) if objectives.len() > 1 => {
                let problem = "it works on one objective: take tpe, bayesian or random for several".to_owned();
                Err(SpecError::Searcher { searcher: "cma_es", problem })
            }
            Self::CmaEs(spec) => Ok(Box::new(CmaEs::new(space, spec))),
            Self::Grid(spec) => Ok(Box::new(Grid::new(space, spec)?)),
            Self::Tpe(spec) => Ok(Box::new(Tpe::new(space, spec))),
            Self::Sobol => Ok(Box::new(Points::default())),
            Self::Bayesian(spec) => Ok(Box::new(Bayes::new(spec.clone()))),
            Self::MultiFidelity(spec) => Ok(Box::new(MultiFidelity::new(spec.clone()))),
        }
    }
}
