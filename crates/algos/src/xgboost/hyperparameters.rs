//! The hyperparameters of SageMaker's XGBoost image: names, ranges and messages as in `aws/sagemaker-xgboost-container`
//! (`algorithm_mode/hyperparameter_validation.py`, version 3.0-5).

use std::collections::BTreeMap;

use thiserror::Error;

use super::metrics;

/// What is wrong with the hyperparameters, in the image's words.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct HyperparameterError(String);

fn refuse<T>(message: impl Into<String>) -> Result<T, HyperparameterError> {
    Err(HyperparameterError(message.into()))
}

/// Checked hyperparameters. What the library itself takes is in `parameters`; the rest steers the training around it.
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

/// One or two sided range; `None` is open to infinity.
#[derive(Debug, Clone, Copy)]
struct Interval {
    min: Bound,
    max: Bound,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    None,
    Open(f64),
    Closed(f64),
}

impl Interval {
    fn contains(&self, value: f64) -> bool {
        let above = match self.min {
            Bound::None => !value.is_nan(),
            Bound::Open(min) => value > min,
            Bound::Closed(min) => value >= min,
        };
        let below = match self.max {
            Bound::None => true,
            Bound::Open(max) => value < max,
            Bound::Closed(max) => value <= max,
        };
        above && below
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.min {
            Bound::None => write!(f, "(-inf, ")?,
            Bound::Open(min) => write!(f, "({min}, ")?,
            Bound::Closed(min) => write!(f, "[{min}, ")?,
        }
        match self.max {
            Bound::None => write!(f, "+inf)"),
            Bound::Open(max) => write!(f, "{max})"),
            Bound::Closed(max) => write!(f, "{max}]"),
        }
    }
}

const fn at_least(min: f64) -> Interval {
    Interval { min: Bound::Closed(min), max: Bound::None }
}

const fn above(min: f64) -> Interval {
    Interval { min: Bound::Open(min), max: Bound::None }
}

const fn between(min: f64, max: f64) -> Interval {
    Interval { min: Bound::Closed(min), max: Bound::Closed(max) }
}

const fn above_to(min: f64, max: f64) -> Interval {
    Interval { min: Bound::Open(min), max: Bound::Closed(max) }
}

const fn inside(min: f64, max: f64) -> Interval {
    Interval { min: Bound::Open(min), max: Bound::Open(max) }
}

/// What values a hyperparameter takes.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Integer(Interval),
    Real(Interval),
    OneOf(&'static [&'static str]),
    /// Comma-separated.
    Some(&'static [&'static str]),
    /// Comma-separated metrics, with thresholds.
    Metrics,
    /// `validation:METRIC`
    TuningMetric,
    /// `(1,0,-1)`
    Signs,
    /// `[[0,1],[2,3]]`
    Groups,
}

use Kind::{Groups, Integer, Metrics, OneOf, Real, Signs, Some as SomeOf, TuningMetric};

const ZERO_ONE: Kind = Integer(between(0.0, 1.0));
const BOOLEAN: Kind = OneOf(&["true", "false"]);

const TABLE: [(&str, Kind); 53] = [
    ("num_round", Integer(at_least(1.0))),
    ("csv_weights", ZERO_ONE),
    ("early_stopping_rounds", Integer(at_least(1.0))),
    ("booster", OneOf(&["gbtree", "gblinear", "dart"])),
    ("verbosity", Integer(between(0.0, 3.0))),
    ("nthread", Integer(at_least(1.0))),
    ("eta", Real(between(0.0, 1.0))),
    ("gamma", Real(at_least(0.0))),
    ("max_depth", Integer(at_least(0.0))),
    ("min_child_weight", Real(at_least(0.0))),
    ("max_delta_step", Real(at_least(0.0))),
    ("subsample", Real(above_to(0.0, 1.0))),
    ("colsample_bytree", Real(above_to(0.0, 1.0))),
    ("colsample_bylevel", Real(above_to(0.0, 1.0))),
    ("colsample_bynode", Real(above_to(0.0, 1.0))),
    ("lambda", Real(at_least(0.0))),
    ("alpha", Real(at_least(0.0))),
    ("tree_method", OneOf(&["auto", "exact", "approx", "hist", "gpu_hist"])),
    ("sketch_eps", Real(inside(0.0, 1.0))),
    ("scale_pos_weight", Real(above(0.0))),
    (
        "updater",
        SomeOf(&[
            "grow_colmaker",
            "distcol",
            "grow_histmaker",
            "grow_skmaker",
            "sync",
            "refresh",
            "prune",
            "shotgun",
            "coord_descent",
            "grow_quantile_histmaker",
        ]),
    ),
    ("dsplit", OneOf(&["row", "col"])),
    ("refresh_leaf", ZERO_ONE),
    ("process_type", OneOf(&["default", "update"])),
    ("grow_policy", OneOf(&["depthwise", "lossguide"])),
    ("max_leaves", Integer(at_least(0.0))),
    ("max_bin", Integer(at_least(0.0))),
    ("predictor", OneOf(&["auto", "cpu_predictor", "gpu_predictor"])),
    ("monotone_constraints", Signs),
    ("interaction_constraints", Groups),
    ("sample_type", OneOf(&["uniform", "weighted"])),
    ("normalize_type", OneOf(&["tree", "forest"])),
    ("rate_drop", Real(between(0.0, 1.0))),
    ("one_drop", ZERO_ONE),
    ("skip_drop", Real(between(0.0, 1.0))),
    ("lambda_bias", Real(between(0.0, 1.0))),
    ("tweedie_variance_power", Real(inside(1.0, 2.0))),
    (
        "objective",
        OneOf(&[
            "aft_loss_distribution",
            "binary:logistic",
            "binary:logitraw",
            "binary:hinge",
            "count:poisson",
            "multi:softmax",
            "multi:softprob",
            "rank:pairwise",
            "rank:ndcg",
            "rank:map",
            "reg:linear",
            "reg:squarederror",
            "reg:logistic",
            "reg:gamma",
            "reg:pseudohubererror",
            "reg:squaredlogerror",
            "reg:absoluteerror",
            "reg:tweedie",
            "survival:aft",
            "survival:cox",
        ]),
    ),
    ("num_class", Integer(at_least(2.0))),
    ("base_score", Real(at_least(0.0))),
    ("_kfold", Integer(at_least(2.0))),
    ("_num_cv_round", Integer(at_least(1.0))),
    ("_tuning_objective_metric", TuningMetric),
    ("eval_metric", Metrics),
    ("seed", Integer(inside(-2_147_483_648.0, 2_147_483_647.0))),
    ("num_parallel_tree", Integer(at_least(1.0))),
    ("save_model_on_termination", BOOLEAN),
    ("aft_loss_distribution", OneOf(&["normal", "logistic", "extreme"])),
    ("aft_loss_distribution_scale", Real(at_least(0.0))),
    ("deterministic_histogram", BOOLEAN),
    ("sampling_method", OneOf(&["uniform", "gradient_based"])),
    ("prob_buffer_row", Integer(above(1.0))),
    ("use_dask_gpu_training", BOOLEAN),
];

const ALIASES: [(&str, &str); 4] =
    [("learning_rate", "eta"), ("min_split_loss", "gamma"), ("reg_lambda", "lambda"), ("reg_alpha", "alpha")];

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

/// Checks the hyperparameters of a training job (names to texts, as in `hyperparameters.json`) without training.
///
/// # Errors
/// The first mistake, in the words of SageMaker's image.
pub fn validate(given: &BTreeMap<String, String>) -> Result<(), HyperparameterError> {
    Hyperparameters::parse(given).map(|_| ())
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
            return refuse("Missing required hyperparameter: num_round");
        }
        for (name, value) in &named {
            let Some((_, kind)) = TABLE.iter().find(|(known, _)| known == name) else {
                return refuse(format!("Extraneous hyperparameter found: {name}"));
            };
            check(name, value, *kind)?;
        }
        check_together(&named)?;

        // The library counts in 32 bits with a sign.
        let integer = |name: &str| named.get(name).and_then(|value| u32::try_from(value.trim().parse::<i32>().ok()?).ok());
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

fn check(name: &str, value: &str, kind: Kind) -> Result<(), HyperparameterError> {
    let unparsed = || HyperparameterError(format!("Hyperparameter {name}: could not parse value {value:?}"));
    let outside = |range: &dyn std::fmt::Display| refuse(format!("Hyperparameter {name}: {value} is not in {range}"));
    match kind {
        Integer(interval) => {
            let number: i64 = value.trim().parse().map_err(|_| unparsed())?;
            if !interval.contains(number as f64) {
                return outside(&interval);
            }
        }
        Real(interval) => {
            let number: f64 = value.trim().parse().map_err(|_| unparsed())?;
            if !interval.contains(number) {
                return outside(&interval);
            }
        }
        OneOf(values) => {
            if !values.contains(&value) {
                return outside(&python_list(values.iter().copied()));
            }
        }
        SomeOf(values) => {
            if let Some(unknown) = value.split(',').find(|item| !values.contains(&item.trim())) {
                let range = python_list(values.iter().copied());
                return refuse(format!("Hyperparameter {name}: value {} not in range {range}", python_list([unknown].into_iter())));
            }
        }
        Metrics => value.split(',').try_for_each(|metric| check_metric(metric.trim()))?,
        TuningMetric => {
            let known =
                value.split_once(':').is_some_and(|(set, metric)| set == "validation" && metrics::names().any(|name| name == metric));
            if !known {
                let names: Vec<String> = metrics::names().map(|metric| format!("validation:{metric}")).collect();
                return outside(&python_list(names.iter().map(String::as_str)));
            }
        }
        Signs => {
            let inner = value.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(unparsed)?;
            let items = inner.split(',').map(str::trim).filter(|item| !item.is_empty());
            if items.clone().any(|item| item.parse::<i64>().is_err()) {
                return Err(unparsed());
            }
            if items.clone().any(|item| !matches!(item, "-1" | "0" | "1" | "+1")) {
                return refuse(format!("Hyperparameter {name}: value {value} not in range [-1, 0, 1]"));
            }
        }
        Groups => {
            let groups: Vec<Vec<i64>> = serde_json::from_str(value).map_err(|_| unparsed())?;
            // The image says [1, +inf), but the library counts features from 0.
            if groups.iter().flatten().any(|feature| *feature < 0) {
                return refuse(format!("Hyperparameter {name}: value {value} not in range [0, +inf)"));
            }
        }
    }
    Ok(())
}

fn check_metric(metric: &str) -> Result<(), HyperparameterError> {
    let Some((name, threshold)) = metric.split_once('@') else {
        if metrics::names().any(|known| known == metric) {
            return Ok(());
        }
        let range = python_list(metrics::names());
        return refuse(format!("Hyperparameter eval_metric: value {} not in range {range}", python_list([metric].into_iter())));
    };
    if !matches!(name, "error" | "ndcg" | "map") {
        return refuse(format!(
            "Metric '{metric}' is not supported. Parameter 'eval_metric' with customized threshold should be one of these options: 'error', \
             'ndcg', 'map'."
        ));
    }
    // `ndcg@3-` counts queries without relevant rows as 0.
    let number = if name == "error" { threshold } else { threshold.strip_suffix('-').unwrap_or(threshold) };
    match number.trim().parse::<f64>() {
        Ok(_) => Ok(()),
        Err(_) => refuse(format!("Threshold value 't' in '{name}@t' expects float input.")),
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
    if named.contains_key("monotone_constraints") && !matches!(tree_method, "exact" | "hist" | "auto" | "approx" | "gpu_hist") {
        return refuse("monotone_constraints can be used only when the tree_method parameter is set to either 'exact' or 'hist'.");
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
                "Tree updater should be selected from these options: 'grow_colmaker', 'distcol', 'grow_histmaker', 'grow_skmaker', \
                 'grow_quantile_histmaker', 'sync', 'refresh', 'prune', 'shortgun', 'coord_descent'.",
            );
        }
        let growers = ["grow_colmaker", "distcol", "grow_histmaker", "grow_quantile_histmaker", "grow_skmaker"];
        if updaters.iter().filter(|updater| growers.contains(updater)).count() > 1 {
            return refuse(
                "Only one tree grow plugin can be selected. Choose one from the following: 'grow_colmaker', 'distcol', 'grow_histmaker', \
                 'grow_skmaker'",
            );
        }
    }
    Ok(())
}

/// A list as Python prints it, since the image's messages hold such lists.
fn python_list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.map(|item| format!("'{item}'")).collect();
    format!("[{}]", items.join(", "))
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
        let cases: [(&[(&str, &str)], &str); 21] = [
            (&[("num_round", "1"), ("max_dept", "3")], "Extraneous hyperparameter found: max_dept"),
            (&[("eta", "1")], "Missing required hyperparameter: num_round"),
            (&[("num_round", "0")], "Hyperparameter num_round: 0 is not in [1, +inf)"),
            (&[("num_round", "1.5")], "Hyperparameter num_round: could not parse value \"1.5\""),
            (&[("num_round", "99999999999")], "Hyperparameter num_round: the number is too large"),
            (&[("num_round", "1"), ("eta", "2")], "Hyperparameter eta: 2 is not in [0, 1]"),
            (&[("num_round", "1"), ("learning_rate", "x")], "Hyperparameter eta: could not parse value \"x\""),
            (&[("num_round", "1"), ("gamma", "nan")], "Hyperparameter gamma: nan is not in [0, +inf)"),
            (&[("num_round", "1"), ("subsample", "0")], "Hyperparameter subsample: 0 is not in (0, 1]"),
            (&[("num_round", "1"), ("tweedie_variance_power", "2")], "Hyperparameter tweedie_variance_power: 2 is not in (1, 2)"),
            (&[("num_round", "1"), ("booster", "x")], "Hyperparameter booster: x is not in ['gbtree', 'gblinear', 'dart']"),
            (&[("num_round", "1"), ("objective", "multi:softmax")], "Require input for parameter 'num_class' for multi-classification"),
            (
                &[("num_round", "1"), ("num_class", "3")],
                "Do not need to setup parameter 'num_class' for learning task other than multi-classification.",
            ),
            (&[("num_round", "1"), ("eval_metric", "auc")], "Metric 'auc' can only be applied for classification and ranking problems."),
            (&[("num_round", "1"), ("eval_metric", "error@x")], "Threshold value 't' in 'error@t' expects float input."),
            (
                &[("num_round", "1"), ("eval_metric", "rmse@1")],
                "Metric 'rmse@1' is not supported. Parameter 'eval_metric' with customized threshold should be one of these options: 'error', 'ndcg', 'map'.",
            ),
            (&[("num_round", "1"), ("monotone_constraints", "1,0")], "Hyperparameter monotone_constraints: could not parse value \"1,0\""),
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
