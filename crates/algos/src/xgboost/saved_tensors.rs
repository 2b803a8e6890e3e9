//! What the Debugger's hook saves of a training, as SageMaker's image does: metrics and losses of a
//! round, hyperparameters, predictions and labels of the validation channel, feature importance,
//! SHAP values of the training channel, and the trees of the round. A round is a step.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use shoal_contract::tensors::{ElementType, Tensor};

use super::dumped_trees::{Column, columns};
use super::evaluate::{Score, Set};
use super::ffi::booster::{Booster, Contributions, Importance, Output};
use super::group::Group;
use super::instance::Instance;
use super::log;
use crate::hook::{Defaults, Hook, Step};

/// As in SageMaker's image, with the expressions of its library.
static DEFAULTS: Defaults = Defaults {
    collections: &[
        ("hyperparameters", &["^hyperparameters/.*$"]),
        ("metrics", &[r"^[\w.]+-[\w.@-]+$"]),
        ("losses", &[r"^[\w.]+-.+(?<!(auc|map))$"]),
        ("predictions", &["^predictions$"]),
        ("labels", &["^labels$"]),
        ("feature_importance", &["^feature_importance/.*"]),
        ("average_shap", &["^average_shap/.*[^/bias]$"]),
        ("full_shap", &["^full_shap/.*[^/bias]$"]),
        ("trees", &["^trees/.*"]),
    ],
    saved: &["metrics"],
    interval: 10,
};

/// Variables of SageMaker's library: `0` or `false` for no hook; the place of its configuration.
const SWITCH: &str = "USE_SMDEBUG";
const CONFIG_FILE: &str = "SMDEBUG_CONFIG_FILE_PATH";
/// Metrics that grow as a model gets better: they are no losses.
const NO_LOSSES: [&str; 2] = ["auc", "map"];

/// The hook of a training.
pub(super) struct SavedTensors {
    hook: Hook,
    hyperparameters: BTreeMap<String, String>,
    warned: BTreeSet<&'static str>,
}

impl SavedTensors {
    /// Of a training job with `DebugHookConfig`, on a host that saves tensors.
    pub(super) fn of(instance: &Instance, group: &Group) -> Option<Self> {
        if std::env::var(SWITCH).is_ok_and(|value| matches!(value.to_lowercase().as_str(), "0" | "false")) {
            return None;
        }
        let of_job = || instance.paths.config().join("debughookconfig.json");
        let file = std::env::var_os(CONFIG_FILE).map_or_else(of_job, Into::into);
        let (hook, lines) = Hook::start(&file, &DEFAULTS, group.rank(), group.size());
        lines.iter().for_each(|line| log::warning(line));
        let hyperparameters = instance.job.hyperparameters.clone();
        Some(Self { hook: hook?, hyperparameters, warned: BTreeSet::new() })
    }

    /// The training is over.
    pub(super) fn end(&self) {
        self.hook.end().iter().for_each(|line| log::warning(line));
    }

    /// Saves what of a round is due. After an error nothing is saved any more: `false`.
    pub(super) fn save(&mut self, booster: &mut Booster, round: u32, sets: &[Set], scores: &[Score]) -> bool {
        let Self { hook, hyperparameters, warned } = self;
        let Some(step) = hook.step(u64::from(round)) else { return true };
        let mut saver = Saver { step, warned };
        saver.metrics(scores);
        saver.hyperparameters(hyperparameters);
        saver.of_validation(booster, sets);
        saver.importance(booster);
        saver.trees(booster, round);
        saver.contributions(booster, sets);
        match saver.step.finish() {
            Ok(lines) => {
                lines.iter().for_each(|line| log::warning(line));
                true
            }
            Err(problem) => {
                log::warning(&problem);
                false
            }
        }
    }
}

/// One round.
struct Saver<'a> {
    step: Step<'a>,
    warned: &'a mut BTreeSet<&'static str>,
}

impl Saver<'_> {
    fn metrics(&mut self, scores: &[Score]) {
        for Score { set, metric, value } in scores {
            let is_loss = !NO_LOSSES.iter().any(|name| metric.ends_with(name));
            let collections = if is_loss { &["metrics", "losses"][..] } else { &["metrics"] };
            self.step.save(&number(&format!("{set}-{metric}"), *value), collections);
        }
    }

    fn hyperparameters(&mut self, hyperparameters: &BTreeMap<String, String>) {
        if !self.step.wants("hyperparameters") {
            return;
        }
        for (name, value) in hyperparameters {
            let name = format!("hyperparameters/{name}");
            let tensor = match (value.parse::<i64>(), value.parse::<f64>()) {
                (Ok(value), _) => tensor(&name, ElementType::Int64, Vec::new(), value.to_le_bytes().to_vec()),
                (_, Ok(value)) => number(&name, value),
                _ => texts(&name, Vec::new(), vec![value]),
            };
            self.step.save(&tensor, &["hyperparameters"]);
        }
    }

    fn of_validation(&mut self, booster: &mut Booster, sets: &[Set]) {
        let wanted = ["predictions", "labels"].map(|collection| self.step.wants(collection));
        let Some(set) = sets.iter().find(|set| set.name == "validation") else {
            if wanted.contains(&true) {
                self.warn("predictions and labels", "they are those of the channel validation, which is missing");
            }
            return;
        };
        if wanted[0] {
            match booster.predict(&set.matrix, Output::Transformed) {
                Err(error) => self.warn("predictions", &error.0),
                Ok(predictions) => {
                    let (rows, columns) = (set.labels.len() as u64, predictions.columns as u64);
                    let shape = if columns == 1 { vec![rows] } else { vec![rows, columns] };
                    self.step.save(&Tensor::of_f32("predictions", &shape, &predictions.values), &["predictions"]);
                }
            }
        }
        if wanted[1] {
            let shape = [set.labels.len() as u64];
            self.step.save(&Tensor::of_f32("labels", &shape, &set.labels), &["labels"]);
        }
    }

    fn importance(&mut self, booster: &mut Booster) {
        if !self.step.wants("feature_importance") {
            return;
        }
        for kind in Importance::ALL {
            let scores = match booster.importance(kind) {
                Ok(scores) => scores,
                // Linear models have weights alone.
                Err(error) => {
                    self.warn("feature importance in full", &error.0);
                    continue;
                }
            };
            let total: f64 = scores.iter().map(|(_, score)| score).sum();
            for (feature, score) in scores {
                let share = if total == 0.0 { 0.0 } else { score / total };
                let name = format!("feature_importance/{}/{feature}", kind.name());
                self.step.save(&number(&name, share), &["feature_importance"]);
            }
        }
    }

    fn trees(&mut self, booster: &mut Booster, round: u32) {
        if !self.step.wants("trees") {
            return;
        }
        let dumped = booster.dump_round(round as i32);
        let (texts_of_trees, first) = match dumped {
            // A round has a tree for each class.
            Ok(trees) => (Vec::from_iter(trees), round as usize),
            Err(error) => return self.warn("trees", &error.0),
        };
        let first = first * texts_of_trees.len();
        for (name, column) in columns(&texts_of_trees, first) {
            let name = format!("trees/{name}");
            let tensor = match &column {
                Column::Integers(values) => of_list(&name, ElementType::Int64, values, |it| it.to_le_bytes()),
                Column::Numbers(values) => of_list(&name, ElementType::Float64, values, |it| it.to_le_bytes()),
                Column::Texts(values) => {
                    texts(&name, vec![values.len() as u64], values.iter().map(String::as_str).collect())
                }
            };
            self.step.save(&tensor, &["trees"]);
        }
    }

    fn contributions(&mut self, booster: &mut Booster, sets: &[Set]) {
        let [full, average] = ["full_shap", "average_shap"].map(|collection| self.step.wants(collection));
        let Some(set) = sets.iter().find(|set| set.name == "train").filter(|_| full || average) else { return };
        let contributions = match booster.contributions(&set.matrix) {
            Ok(contributions) => contributions,
            Err(error) => return self.warn("SHAP values", &error.0),
        };
        let Contributions { rows, groups, features, .. } = contributions;
        for feature in 0..=features {
            let label = if feature == features { "bias".to_owned() } else { format!("f{feature}") };
            let values = contributions.of(feature);
            if full {
                let shape = if groups == 1 { vec![rows as u64] } else { vec![rows as u64, groups as u64] };
                self.step.save(&Tensor::of_f32(&format!("full_shap/{label}"), &shape, &values), &["full_shap"]);
            }
            if average {
                let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
                let mean = sum / values.len().max(1) as f64;
                self.step.save(&number(&format!("average_shap/{label}"), mean), &["average_shap"]);
            }
        }
    }

    /// Once for each.
    fn warn(&mut self, what: &'static str, why: &str) {
        if self.warned.insert(what) {
            log::warning(&format!("Debugger does not save {what}: {why}"));
        }
    }
}

fn tensor(name: &str, element: ElementType, shape: Vec<u64>, bytes: Vec<u8>) -> Tensor<'_> {
    Tensor { name: Cow::Borrowed(name), element, shape, bytes: Cow::Owned(bytes), texts: Vec::new() }
}

fn number(name: &str, value: f64) -> Tensor<'_> {
    tensor(name, ElementType::Float64, Vec::new(), value.to_le_bytes().to_vec())
}

fn of_list<'a, T: Copy>(name: &'a str, element: ElementType, values: &[T], bytes: fn(T) -> [u8; 8]) -> Tensor<'a> {
    tensor(name, element, vec![values.len() as u64], values.iter().flat_map(|value| bytes(*value)).collect())
}

fn texts<'a>(name: &'a str, shape: Vec<u64>, values: Vec<&'a str>) -> Tensor<'a> {
    let texts = values.into_iter().map(Cow::Borrowed).collect();
    Tensor { texts, ..tensor(name, ElementType::Text, shape, Vec::new()) }
}

impl Importance {
    const ALL: [Self; 5] = [Self::Weight, Self::Gain, Self::Cover, Self::TotalGain, Self::TotalCover];
}
