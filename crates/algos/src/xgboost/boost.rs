//! The rounds of one model: grow, evaluate, print, save, stop early.

use std::path::Path;

use super::early_stopping::EarlyStopping;
use super::evaluate::{self, Evaluator, Score, Set};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::booster::Booster;
use super::ffi::matrix::Matrix;
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::metric_plan::MetricPlan;
use super::{log, metrics, model_file};

/// What all models of a training have in common.
pub(super) struct Boost<'a> {
    pub(super) api: &'static Api,
    pub(super) hyperparameters: &'a Hyperparameters,
    /// The library's parameters, metrics aside.
    pub(super) parameters: &'a [(String, String)],
    pub(super) plan: &'a MetricPlan,
    pub(super) group: &'a Group,
    /// Where models are saved.
    pub(super) directory: &'a Path,
}

/// A model after its last round.
pub(super) struct Boosted {
    /// The model of the best round, or of all rounds; on other ranks than 0 always the latter.
    pub(super) booster: Booster,
    /// The values after the last round; complete on rank 0 only.
    pub(super) scores: Vec<Score>,
}

impl Boost<'_> {
    /// Grows a model on `train` (or on the first of `sets`) and evaluates it on `sets`. `name` is its file's name. A collective call.
    pub(super) fn run(&self, train: Option<&Matrix>, sets: &[Set], evaluator: &mut Evaluator, name: &str) -> Result<Boosted, Failure> {
        let hyperparameters = self.hyperparameters;
        let mut booster = self.booster(train, sets)?;
        let train = train.unwrap_or(&sets[0].matrix);
        let is_first = self.group.rank() == 0;
        let mut stopping = self.stopping(sets);
        let mut scores = Vec::new();
        for round in 0..hyperparameters.num_round {
            booster.update(round as i32, train)?;
            scores = evaluator.evaluate(&mut booster, round, sets, self.group)?;
            if is_first {
                log::print(&evaluate::line(round, &scores));
                if hyperparameters.save_model_on_termination {
                    model_file::save(&booster, self.directory, name)?;
                }
            }
            if let Some((metric, stopping)) = &mut stopping {
                // Rank 0 alone has all scores.
                let mut stop = [0.0];
                if is_first {
                    let score = scores.iter().rev().find(|score| score.set == "validation" && metrics::is_same(&score.metric, metric));
                    let score = score.ok_or_else(|| Failure::User(format!("early stopping cannot watch {metric}: it is not evaluated")))?;
                    stop[0] = f64::from(u8::from(stopping.observe(round, score.value)));
                }
                self.group.broadcast(&mut stop)?;
                if stop[0] > 0.0 {
                    break;
                }
            }
        }
        let best = stopping.and_then(|(_, stopping)| stopping.best());
        let booster = if is_first { self.best_of(booster, best)? } else { booster };
        Ok(Boosted { booster, scores })
    }

    /// A booster without trees that is told everything.
    fn booster(&self, train: Option<&Matrix>, sets: &[Set]) -> Result<Booster, Failure> {
        let matrices: Vec<&Matrix> = train.into_iter().chain(sets.iter().map(|set| &set.matrix)).collect();
        let mut booster = Booster::new(self.api, &matrices)?;
        for (name, value) in self.parameters {
            booster.set(name, value)?;
        }
        for metric in &self.plan.by_library {
            booster.set("eval_metric", metric)?;
        }
        if !self.plan.default_by_library {
            booster.set("disable_default_eval_metric", "1")?;
        }
        Ok(booster)
    }

    /// As in the image: only with a validation channel, and only for a metric that was asked for.
    fn stopping(&self, sets: &[Set]) -> Option<(String, EarlyStopping)> {
        let rounds = self.hyperparameters.early_stopping_rounds?;
        let (_, watched) = self.hyperparameters.metrics();
        match watched {
            Some(metric) if sets.len() > 1 => Some((metric.to_owned(), EarlyStopping::new(rounds, metrics::is_maximized(metric)))),
            _ => {
                log::warning("early_stopping_rounds has no effect without a validation channel and an eval_metric");
                None
            }
        }
    }

    /// The model of the best round, if one was followed.
    fn best_of(&self, mut booster: Booster, best: Option<(u32, f64)>) -> Result<Booster, Failure> {
        let Some((round, score)) = best else { return Ok(booster) };
        if self.hyperparameters.parameter("booster", "gbtree") == "gblinear" {
            log::warning(&format!("the best round was {round}; a linear model keeps no earlier rounds, so the last one is saved"));
        } else {
            booster = booster.first_rounds(round as i32 + 1)?;
            log::info(&format!("the best round was {round}: saving the model of {} rounds", round + 1));
        }
        booster.set_attribute("best_iteration", &round.to_string())?;
        booster.set_attribute("best_score", &score.to_string())?;
        Ok(booster)
    }
}
