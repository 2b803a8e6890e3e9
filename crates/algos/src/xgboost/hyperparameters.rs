//! The hyperparameters of SageMaker's XGBoost image: names, ranges and messages as in
//! `aws/sagemaker-xgboost-container` (`algorithm_mode/hyperparameter_validation.py`, version
//! 3.0-5).

use std::collections::BTreeMap;

use super::ranges::{ALIASES, TABLE, check};
use crate::HyperparameterError;

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, HyperparameterError> {
    Err(HyperparameterError(message.into()))
}

/// Checked hyperparameters. What the library itself takes is in `parameters`; the rest steers the
/// training around it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hyperparameters {
    /// Boosting rounds.
    pub(super) num_round: u32,
    /// The second csv column holds weights.
    pub(super) csv_weights: bool,
    /// Rounds without improvement after which training ends.
    pub(super) early_stopping_rounds: Option<u32>,
    /// Save the model after each round, and end well on SIGTERM.
    pub(super) save_model_on_termination: bool,
    /// Number of folds of a cross-validation.
    pub(super) kfold: Option<u32>,
    /// Repetitions of the cross-validation.
    pub(super) num_cv_round: u32,
    /// The metric that a tuning job watches (`auc`), without its set.
    pub(super) tuning_metric: Option<String>,
    /// The metrics that were asked for, in their order.
    pub(super) eval_metric: Vec<String>,
    /// Threads, if given.
    pub(super) nthread: Option<usize>,
    /// Parameters of the library, by their SageMaker names.
    pub(super) parameters: BTreeMap<String, String>,
}

/// Steering parameters, which the library does not get.
const OURS: [&str; 9] = [
    "num_round",
    "csv_weights",
    "early_stopping_rounds",
    "save_model_on_termination",
    "_kfold",
    "_num_cv_round",
    "_tuning_objective_metric",
    "eval_metric",
    "nthread",
];

/// Checks the hyperparameters of a training job (names to texts, as in `hyperparameters.json`)
/// without training.
///
/// # Errors
/// The first mistake, in the words of SageMaker's image.
pub fn validate(given: &BTreeMap<String, String>) -> Result<(), HyperparameterError> {
    Hyperparameters::parse(given).map(|_| ())
}

/// Names of all hyperparameters, other names of them too.
pub(super) fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).chain(ALIASES.iter().map(|(alias, _)| *alias)).collect()
}

/// Checks one hyperparameter without the others.
///
/// # Errors
/// There is none of this name, or it does not take this value.
pub(super) fn validate_one(name: &str, value: &str) -> Result<(), HyperparameterError> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    match TABLE.iter().find(|(known, _)| *known == name) {
        Some((_, kind)) => check(name, value, *kind),
        None => refuse(format!("Extraneous hyperparameter found: {name}")),
    }
}

impl Hyperparameters {
    /// Checks and sorts the hyperparameters of a training job.
    pub(super) fn parse(given: &BTreeMap<String, String>) -> Result<Self, HyperparameterError> {
        let named: BTreeMap<&str, &str> = given
            .iter()
            .map(|(name, value)| {
                let name = ALIASES.iter().find(|(alias, _)| alias == name).map_or(name.as_str(), |(_, name)| name);
                (name, value.as_str())
            })
            .collect();
        if !named.contains_key("num_round") {
            let unknown = named.keys().find(|name| !TABLE.iter().any(|(known, _)| known == *name));
            let unknown = unknown.map_or(String::new(), |name| format!("; extraneous hyperparameter found: {name}"));
            return refuse(format!("Missing required hyperparameter: num_round{unknown}"));
        }
        for (name, value) in &named {
            let Some((_, kind)) = TABLE.iter().find(|(known, _)| known == name) else {
                return refuse(format!("Extraneous hyperparameter found: {name}"));
            };
            check(name, value, *kind)?;
        }
        check_together(&named)?;

        // The library counts in 32 bits with a sign.
        let integer =
            |name: &str| named.get(name).and_then(|value| u32::try_from(value.trim().parse::<i32>().ok()?).ok());
        let mut eval_metric: Vec<String> = Vec::new();
        for metric in named.get("eval_metric").iter().flat_map(|value| value.split(',')).map(str::trim) {
            if !eval_metric.iter().any(|known| known == metric) {
                eval_metric.push(metric.to_owned());
            }
        }
        let parameters = named.iter().filter(|(name, _)| !OURS.contains(name));
        Ok(Self {
            num_round: integer("num_round")
                .ok_or_else(|| HyperparameterError("Hyperparameter num_round: the number is too large".into()))?,
            csv_weights: integer("csv_weights") == Some(1),
            early_stopping_rounds: integer("early_stopping_rounds"),
            save_model_on_termination: named.get("save_model_on_termination") == Some(&"true"),
            kfold: integer("_kfold"),
            num_cv_round: integer("_num_cv_round").unwrap_or(1),
            tuning_metric: named
                .get("_tuning_objective_metric")
                .and_then(|metric| metric.split_once(':'))
                .map(|(_, metric)| metric.to_owned()),
            eval_metric,
            nthread: integer("nthread").map(|threads| threads as usize),
            parameters: parameters.map(|(name, value)| ((*name).to_owned(), value.trim().to_owned())).collect(),
        })
    }

    /// The library's parameter `name`, or the library's own default.
    pub(super) fn parameter<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.parameters.get(name).map_or(default, String::as_str)
    }

    /// The metrics to print, and the one that early stopping watches.
    pub(super) fn metrics(&self) -> (Vec<String>, Option<&str>) {
        let watched = self.tuning_metric.as_deref().or(self.eval_metric.last().map(String::as_str));
        let metrics = match &self.tuning_metric {
            None => self.eval_metric.clone(),
            Some(metric) if self.eval_metric.is_empty() => vec![metric.clone()],
            // The image sorts the union of both.
            Some(metric) => {
                let mut union = self.eval_metric.clone();
                union.push(metric.clone());
                union.sort();
                union.dedup();
                union
            }
        };
        (metrics, watched)
    }
}

/// Rules over several hyperparameters.
fn check_together(named: &BTreeMap<&str, &str>) -> Result<(), HyperparameterError> {
    let value = |name: &str| named.get(name).copied();
    let objective = value("objective").unwrap_or("reg:squarederror");
    if objective.starts_with("multi:") && !named.contains_key("num_class") {
        return refuse("Require input for parameter 'num_class' for multi-classification");
    }
    if !objective.starts_with("multi:") && named.contains_key("num_class") {
        return refuse("Do not need to setup parameter 'num_class' for learning task other than multi-classification.");
    }

    let asked: Vec<&str> = value("eval_metric").unwrap_or_default().split(',').map(str::trim).collect();
    if asked.contains(&"auc") && !objective.starts_with("binary:") && !objective.starts_with("rank:") {
        return refuse("Metric 'auc' can only be applied for classification and ranking problems.");
    }
    if asked.contains(&"aft-nloglik") && objective != "survival:aft" {
        return refuse("Metric 'aft-nloglik' can only be applied for 'survival:aft' objective.");
    }

    // Where the image insists on a tree_method, the library's default does what is asked for.
    let tree_method = value("tree_method").unwrap_or("hist");
    if named.contains_key("monotone_constraints")
        && !matches!(tree_method, "exact" | "hist" | "auto" | "approx" | "gpu_hist")
    {
        return refuse(
            "monotone_constraints can be used only when the tree_method parameter is set to either 'exact' or 'hist'.",
        );
    }

    let Some(updaters) = value("updater") else { return Ok(()) };
    let updaters: Vec<&str> = updaters.split(',').map(str::trim).collect();
    if value("booster") == Some("gblinear") {
        if !matches!(updaters[..], ["shotgun" | "coord_descent"]) {
            return refuse("Linear updater should be one of these options: 'shotgun', 'coord_descent'.");
        }
    } else if value("process_type") == Some("update") {
        if !updaters.iter().all(|updater| matches!(*updater, "refresh" | "prune")) {
            return refuse("process_type 'update' can only be used with updater 'refresh' and 'prune'");
        }
    } else {
        if updaters.iter().any(|updater| matches!(*updater, "shotgun" | "coord_descent")) {
            return refuse(
                "Tree updater should be selected from these options: 'grow_colmaker', 'distcol', 'grow_histmaker', \
                 'grow_skmaker', \
                 'grow_quantile_histmaker', 'sync', 'refresh', 'prune', 'shortgun', 'coord_descent'.",
            );
        }
        let growers = ["grow_colmaker", "distcol", "grow_histmaker", "grow_quantile_histmaker", "grow_skmaker"];
        if updaters.iter().filter(|updater| growers.contains(updater)).count() > 1 {
            return refuse(
                "Only one tree grow plugin can be selected. Choose one from the following: 'grow_colmaker', 'distcol', \
                 'grow_histmaker', \
                 'grow_skmaker'",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn good_hyperparameters_are_sorted_by_who_uses_them() {
        let parsed = Hyperparameters::parse(&given(&[
            ("num_round", "100"),
            ("learning_rate", "0.2"),
            ("objective", "binary:logistic"),
            ("eval_metric", "logloss, error@0.7,accuracy"),
            ("early_stopping_rounds", "5"),
            ("csv_weights", "1"),
            ("nthread", "3"),
            ("monotone_constraints", "(1, 0,-1)"),
            ("interaction_constraints", "[[0,1],[2,3]]"),
        ]))
        .expect("good hyperparameters");
        assert_eq!(parsed.num_round, 100);
        assert_eq!(parsed.early_stopping_rounds, Some(5));
        assert!(parsed.csv_weights && !parsed.save_model_on_termination);
        assert_eq!(parsed.nthread, Some(3));
        assert_eq!(parsed.metrics(), (vec!["logloss".into(), "error@0.7".into(), "accuracy".into()], Some("accuracy")));
        let names: Vec<&str> = parsed.parameters.keys().map(String::as_str).collect();
        assert_eq!(names, ["eta", "interaction_constraints", "monotone_constraints", "objective"]);
    }

    #[test]
    fn a_tuning_job_adds_its_metric() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let cases: [Case<'_>; 4] = [
            (&[("_tuning_objective_metric", "validation:auc")], &["auc"], Some("auc")),
            (
                &[("_tuning_objective_metric", "validation:auc"), ("eval_metric", "logloss,error")],
                &["auc", "error", "logloss"],
                Some("auc"),
            ),
            (&[("_tuning_objective_metric", "validation:auc"), ("eval_metric", "auc")], &["auc"], Some("auc")),
            (&[], &[], None),
        ];
        for (pairs, metrics, watched) in cases {
            let mut all = given(pairs);
            all.extend(given(&[("num_round", "1"), ("objective", "binary:logistic")]));
            let parsed = Hyperparameters::parse(&all).expect("good hyperparameters");
            assert_eq!(parsed.metrics(), (metrics.iter().map(|name| (*name).to_owned()).collect(), watched));
        }
    }

    #[test]
    fn mistakes_are_told_in_the_images_words() {
        let cases: [(&[(&str, &str)], &str); 22] = [
            (&[("num_round", "1"), ("max_dept", "3")], "Extraneous hyperparameter found: max_dept"),
            (&[("eta", "1")], "Missing required hyperparameter: num_round"),
            (
                &[("num_rounds", "1")],
                "Missing required hyperparameter: num_round; extraneous hyperparameter found: num_rounds",
            ),
            (&[("num_round", "0")], "Hyperparameter num_round: 0 is not in [1, +inf)"),
            (&[("num_round", "1.5")], "Hyperparameter num_round: could not parse value \"1.5\""),
            (&[("num_round", "99999999999")], "Hyperparameter num_round: the number is too large"),
            (&[("num_round", "1"), ("eta", "2")], "Hyperparameter eta: 2 is not in [0, 1]"),
            (&[("num_round", "1"), ("learning_rate", "x")], "Hyperparameter eta: could not parse value \"x\""),
            (&[("num_round", "1"), ("gamma", "nan")], "Hyperparameter gamma: nan is not in [0, +inf)"),
            (&[("num_round", "1"), ("subsample", "0")], "Hyperparameter subsample: 0 is not in (0, 1]"),
            (
                &[("num_round", "1"), ("tweedie_variance_power", "2")],
                "Hyperparameter tweedie_variance_power: 2 is not in (1, 2)",
            ),
            (
                &[("num_round", "1"), ("booster", "x")],
                "Hyperparameter booster: x is not in ['gbtree', 'gblinear', 'dart']",
            ),
            (
                &[("num_round", "1"), ("objective", "multi:softmax")],
                "Require input for parameter 'num_class' for multi-classification",
            ),
            (
                &[("num_round", "1"), ("num_class", "3")],
                "Do not need to setup parameter 'num_class' for learning task other than multi-classification.",
            ),
            (
                &[("num_round", "1"), ("eval_metric", "auc")],
                "Metric 'auc' can only be applied for classification and ranking problems.",
            ),
            (
                &[("num_round", "1"), ("eval_metric", "error@x")],
                "Threshold value 't' in 'error@t' expects float input.",
            ),
            (
                &[("num_round", "1"), ("eval_metric", "rmse@1")],
                "Metric 'rmse@1' is not supported. Parameter 'eval_metric' with customized threshold should be one of \
                 these options: 'error', 'ndcg', 'map'.",
            ),
            (
                &[("num_round", "1"), ("monotone_constraints", "1,0")],
                "Hyperparameter monotone_constraints: could not parse value \"1,0\"",
            ),
            (
                &[("num_round", "1"), ("monotone_constraints", "(1,2)")],
                "Hyperparameter monotone_constraints: value (1,2) not in range [-1, 0, 1]",
            ),
            (
                &[("num_round", "1"), ("interaction_constraints", "[1]")],
                "Hyperparameter interaction_constraints: could not parse value \"[1]\"",
            ),
            (
                &[("num_round", "1"), ("booster", "gblinear"), ("updater", "prune")],
                "Linear updater should be one of these options: 'shotgun', 'coord_descent'.",
            ),
            (
                &[("num_round", "1"), ("process_type", "update"), ("updater", "grow_colmaker")],
                "process_type 'update' can only be used with updater 'refresh' and 'prune'",
            ),
        ];
        for (pairs, message) in cases {
            assert_eq!(validate(&given(pairs)).expect_err(message).to_string(), message);
        }
    }
}
