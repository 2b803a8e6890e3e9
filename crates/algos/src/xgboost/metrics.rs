//! The metrics by name: which way is better, who computes them, and the regular expressions that
//! find them in the log.

use crate::{MeasuredOn, Metric, Objective};

/// Greater is better.
const MAXIMIZE: [&str; 16] = [
    "accuracy",
    "auc",
    "aucpr",
    "balanced_accuracy",
    "f1",
    "f1_binary",
    "f1_macro",
    "map",
    "ndcg",
    "precision",
    "r2",
    "recall",
    "precision_macro",
    "precision_micro",
    "recall_macro",
    "recall_micro",
];

/// Smaller is better.
const MINIMIZE: [&str; 17] = [
    "aft-nloglik",
    "cox-nloglik",
    "error",
    "gamma-deviance",
    "gamma-nloglik",
    "interval-regression-accuracy",
    "logloss",
    "mae",
    "mape",
    "merror",
    "mlogloss",
    "mphe",
    "mse",
    "poisson-nloglik",
    "rmse",
    "rmsle",
    "tweedie-nloglik",
];

/// Metrics of the library that are not a sum over rows, so that their values on parts of the data
/// do not give the value on all of it.
const OF_ALL_ROWS: [&str; 5] = ["auc", "aucpr", "cox-nloglik", "map", "ndcg"];

/// Every metric name that `eval_metric` takes without a threshold.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    MAXIMIZE.into_iter().chain(MINIMIZE)
}

/// `error@0.7` -> `error`
fn base(metric: &str) -> &str {
    metric.split('@').next().unwrap_or(metric)
}

/// Whether a greater value of `metric` is better.
pub(super) fn is_maximized(metric: &str) -> bool {
    MAXIMIZE.contains(&base(metric))
}

/// Whether the library's value of `metric` over several hosts must be computed from all rows at
/// once.
pub(super) fn needs_all_rows(metric: &str) -> bool {
    OF_ALL_ROWS.contains(&base(metric))
}

/// The metric that the library prints for an objective when none is asked for.
pub(super) fn default_of(objective: &str) -> &'static str {
    match objective {
        "binary:logistic" | "binary:logitraw" => "logloss",
        "binary:hinge" => "error",
        "multi:softmax" | "multi:softprob" => "mlogloss",
        "count:poisson" => "poisson-nloglik",
        "rank:pairwise" | "rank:ndcg" => "ndcg",
        "rank:map" => "map",
        "reg:gamma" => "gamma-nloglik",
        "reg:pseudohubererror" => "mphe",
        "reg:squaredlogerror" => "rmsle",
        "reg:absoluteerror" => "mae",
        "survival:aft" => "aft-nloglik",
        "survival:cox" => "cox-nloglik",
        _ => "rmse",
    }
}

/// The metrics that SageMaker's platform looks for in the log of its XGBoost images: each on both
/// sets, of which tuning jobs can optimise those on the validation set. Tabs are `#011` in the log.
pub(super) fn all() -> Vec<Metric> {
    // Cross-validation has metrics of the same names without the channel.
    let measured_on = MeasuredOn { channel: "validation", unless: Some("_kfold") };
    let of_set = |set: &'static str, measured_on: Option<MeasuredOn>| {
        names().map(move |metric| Metric {
            name: format!("{set}:{metric}"),
            regex: format!(r".*\[[0-9]+\].*#011{set}-{metric}:(\S+)"),
            objective: measured_on.map(|it| Objective { is_maximized: is_maximized(metric), measured_on: Some(it) }),
        })
    };
    of_set("train", None).chain(of_set("validation", Some(measured_on))).collect()
}

/// Whether the library's name of a metric is the one that was asked for: it prints `error@0.70` as
/// `error@0.7`.
pub(super) fn is_same(printed: &str, asked: &str) -> bool {
    let threshold = |metric: &str| metric.split_once('@').and_then(|(_, threshold)| threshold.parse::<f64>().ok());
    printed == asked
        || (base(printed) == base(asked) && threshold(printed).is_some() && threshold(printed) == threshold(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_find_every_metric_of_a_line() {
        let metrics = all();
        assert_eq!(metrics.len(), 2 * 33);
        let auc = metrics.iter().find(|metric| metric.name == "validation:auc").expect("validation:auc");
        assert_eq!(auc.regex, r".*\[[0-9]+\].*#011validation-auc:(\S+)");
    }

    #[test]
    fn every_metric_of_the_validation_set_can_be_an_objective() {
        let metrics = all();
        assert_eq!(metrics.iter().filter(|metric| metric.objective.is_some()).count(), 33);
        let objective = |name: &str| metrics.iter().find(|metric| metric.name == name).expect(name).objective;
        let is_maximized = |name: &str| objective(name).map(|objective| objective.is_maximized);
        assert_eq!(is_maximized("validation:auc"), Some(true));
        assert_eq!(is_maximized("validation:rmse"), Some(false));
        assert_eq!(is_maximized("train:auc"), None);
    }
}
