//! The rounds of one model: grow, evaluate, print, save, stop early.

use std::path::Path;

use super::checkpoints::{self, Checkpoints, Renewal};
use super::early_stopping::EarlyStopping;
use super::evaluate::{self, Evaluator, Score, Set};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::booster::Booster;
use super::ffi::matrix::Matrix;
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::metric_plan::MetricPlan;
use super::saved_tensors::SavedTensors;
use super::termination::Termination;
use super::turns::Turns;
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
    pub(super) termination: &'a Termination,
}

/// Why no round follows. A bit each, as the hosts tell each other.
const EARLY: u8 = 1;
const REQUESTED: u8 = 2;

/// What a model is for.
pub(super) enum Keep<'a> {
    /// It is the training's: a stop request ends it after a round, and it is saved.
    Model { checkpoints: Option<Checkpoints>, turns: Option<Turns>, tensors: Option<Box<SavedTensors>> },
    /// It is one of a cross-validation, in this file.
    Fold { name: &'a str },
}

/// A model after its last round.
pub(super) struct Boosted {
    /// The model of the best round, or of all rounds; on other ranks than 0 always the latter.
    pub(super) booster: Booster,
    /// The values after the last round; complete on rank 0 only.
    pub(super) scores: Vec<Score>,
}

impl Boost<'_> {
    /// Grows a model on `train` (or on the first of `sets`) and evaluates it on `sets`. A
    /// collective call; the other hosts wait with rank 0 for its turns.
    pub(super) fn run(
        &self,
        train: Option<&Matrix>,
        sets: &[Set],
        evaluator: &mut Evaluator,
        keep: Keep<'_>,
    ) -> Result<Boosted, Failure> {
        let (name, keeps_model, mut checkpoints, mut turns, mut tensors) = match keep {
            Keep::Model { checkpoints, turns, tensors } => (model_file::NAME, true, checkpoints, turns, tensors),
            Keep::Fold { name } => (name, false, None, None, None),
        };
        let hyperparameters = self.hyperparameters;
        let num_round = hyperparameters.num_round;
        let is_first = self.group.rank() == 0;
        let mut stopping = self.stopping(sets);
        let mut scores = Vec::new();
        let resumed = match &checkpoints {
            Some(checkpoints) => checkpoints.newest(self.api, num_round, self.group)?,
            None => None,
        };
        let (mut booster, done) = match resumed {
            None => (self.booster(train, sets)?, 0),
            Some(resumed) => (self.renewed(train, sets, &resumed.model, resumed.rounds)?, resumed.rounds),
        };
        if let Some((_, stopping)) = &mut stopping {
            checkpoints::take_stopping(&mut booster, stopping)?;
        }
        let mut last = num_round;
        if let Some(turns) = &mut turns {
            turns.begins(done);
            last = turns.last(num_round);
        }
        if last < num_round && is_first {
            log::info(&format!("The tuning job's MaxResource ends the training after {last} of {num_round} rounds"));
        }
        if keeps_model {
            let copy = if done > 0 && is_first { Some(booster.to_bytes()?) } else { None };
            self.termination.begins(is_first, self.directory.join(name), copy);
        }
        let is_over = stopping.as_ref().is_some_and(|(_, stopping)| stopping.is_over());
        let whole = train;
        let train = train.unwrap_or(&sets[0].matrix);
        for round in if is_over { last } else { done }..last {
            booster.update(round as i32, train)?;
            scores = evaluator.evaluate(&mut booster, round, sets, self.group)?;
            if tensors.as_mut().is_some_and(|tensors| !tensors.save(&mut booster, round, sets, &scores)) {
                tensors = None;
            }
            let is_told = is_first && turns.as_ref().is_none_or(|turns| !turns.is_known(round + 1));
            let pauses = is_first && turns.as_ref().is_some_and(|turns| turns.is_over(round + 1));
            if is_told && !pauses {
                log::print(&evaluate::line(round, &scores));
            }
            if is_first && hyperparameters.save_model_on_termination {
                self.termination.save(&booster, self.directory, name)?;
            } else {
                self.termination.round_finished(&booster)?;
            }
            let mut end = 0;
            // Rank 0 alone has all scores.
            if let Some((metric, stopping)) = stopping.as_mut().filter(|_| is_first) {
                let score = scores
                    .iter()
                    .rev()
                    .find(|score| score.set == "validation" && metrics::is_same(&score.metric, metric));
                let score = score.ok_or_else(|| {
                    Failure::User(format!("early stopping cannot watch {metric}: it is not evaluated"))
                })?;
                end |= if stopping.observe(round, score.value) { EARLY } else { 0 };
            }
            end |= if keeps_model && self.termination.is_requested() { REQUESTED } else { 0 };
            let end = self.of_first(end)?;
            let is_last = round + 1 == last || end != 0;
            if let Some(checkpoints) = &mut checkpoints {
                let end = turns.as_ref().map_or(last, |turns| turns.end(last));
                if is_first && checkpoints.is_due(round + 1, is_last || pauses, end) {
                    checkpoints.write(&mut booster, round + 1, stopping.as_ref().map(|(_, stopping)| stopping))?;
                }
                match checkpoints.renewal(round + 1).filter(|_| !is_last) {
                    Some(Renewal::Updaters) => {
                        booster.renew_updaters()?;
                        self.reseed(&mut booster, round + 1)?;
                    }
                    Some(Renewal::Booster) => booster = self.renewed(whole, sets, &booster.to_bytes()?, round + 1)?,
                    None => {}
                }
            }
            if is_told && pauses {
                log::print(&evaluate::line(round, &scores));
            }
            if end & REQUESTED != 0 {
                self.termination.ends_after(round + 1);
            }
            if is_last {
                break;
            }
            if let Some(turns) = turns.as_mut().filter(|_| pauses) {
                turns.wait(round + 1, self.termination);
                // Other hosts are in the next round already: they receive the stop after it.
                if self.termination.is_requested() && self.group.size() == 1 {
                    self.termination.ends_after(round + 1);
                    break;
                }
            }
        }
        if let Some(tensors) = &tensors {
            tensors.end();
        }
        let best = stopping.and_then(|(_, stopping)| stopping.best());
        let booster = if is_first { self.best_of(booster, best)? } else { booster };
        Ok(Boosted { booster, scores })
    }

    /// What rank 0 has found, on every host.
    fn of_first(&self, found: u8) -> Result<u8, Failure> {
        let mut word = [f64::from(found)];
        self.group.broadcast(&mut word)?;
        Ok(word[0] as u8)
    }

    /// A booster without trees that is told everything.
    fn booster(&self, train: Option<&Matrix>, sets: &[Set]) -> Result<Booster, Failure> {
        let mut booster = self.empty(train, sets)?;
        self.tell(&mut booster)?;
        Ok(booster)
    }

    /// The booster of a model of so many rounds, as any process would build it.
    fn renewed(&self, train: Option<&Matrix>, sets: &[Set], model: &[u8], rounds: u32) -> Result<Booster, Failure> {
        let mut booster = self.empty(train, sets)?;
        booster.replace_model(model)?;
        self.tell(&mut booster)?;
        self.reseed(&mut booster, rounds)?;
        Ok(booster)
    }

    fn reseed(&self, booster: &mut Booster, rounds: u32) -> Result<(), Failure> {
        Ok(booster.set("seed", &checkpoints::seed(self.hyperparameters, rounds).to_string())?)
    }

    fn empty(&self, train: Option<&Matrix>, sets: &[Set]) -> Result<Booster, Failure> {
        let matrices: Vec<&Matrix> = train.into_iter().chain(sets.iter().map(|set| &set.matrix)).collect();
        Ok(Booster::new(self.api, &matrices)?)
    }

    fn tell(&self, booster: &mut Booster) -> Result<(), Failure> {
        for (name, value) in self.parameters {
            booster.set(name, value)?;
        }
        for metric in &self.plan.by_library {
            booster.set("eval_metric", metric)?;
        }
        if !self.plan.default_by_library {
            booster.set("disable_default_eval_metric", "1")?;
        }
        Ok(())
    }

    /// As in the image: only with a validation channel, and only for a metric that was asked for.
    fn stopping(&self, sets: &[Set]) -> Option<(String, EarlyStopping)> {
        let rounds = self.hyperparameters.early_stopping_rounds?;
        let (_, watched) = self.hyperparameters.metrics();
        match watched {
            Some(metric) if sets.len() > 1 => {
                Some((metric.to_owned(), EarlyStopping::new(rounds, metrics::is_maximized(metric))))
            }
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
            log::warning(&format!(
                "the best round was {round}; a linear model keeps no earlier rounds, so the last one is saved"
            ));
        } else {
            booster = booster.first_rounds(round as i32 + 1)?;
            log::info(&format!("the best round was {round}: saving the model of {} rounds", round + 1));
        }
        booster.set_attribute("best_iteration", &round.to_string())?;
        booster.set_attribute("best_score", &score.to_string())?;
        Ok(booster)
    }
}
