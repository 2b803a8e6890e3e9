//! The metrics by name: which way is better, who computes them, and the regular expressions that find them in the log.

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

/// Metrics of the library that are not a sum over rows, so that their values on parts of the data do not give the value on all of it.
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

/// Whether the library's value of `metric` over several hosts must be computed from all rows at once.
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

/// A metric that SageMaker's platform looks for in the log of its XGBoost images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricDefinition {
    /// `validation:auc`
    pub name: String,
    /// What finds it in an escaped log line; its first group is the value.
    pub regex: String,
}

/// The definitions that hold for the built-in images when a request brings none: every metric on both sets. Tabs are `#011` in the log.
pub(crate) fn definitions() -> Vec<MetricDefinition> {
    let of_set = |set: &'static str| {
        names().map(move |metric| MetricDefinition {
            name: format!("{set}:{metric}"),
            regex: format!(r".*\[[0-9]+\].*#011{set}-{metric}:(\S+)"),
        })
    };
    of_set("train").chain(of_set("validation")).collect()
}

/// What a tuning job can optimise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningObjective {
    /// `validation:auc`
    pub name: String,
    /// A greater value is better.
    pub is_maximized: bool,
}

/// What a tuning job can optimise with the built-in images: every metric on the validation set, its way being what the image says of it.
pub(crate) fn objectives() -> Vec<TuningObjective> {
    names().map(|metric| TuningObjective { name: format!("validation:{metric}"), is_maximized: is_maximized(metric) }).collect()
}

/// Whether the library's name of a metric is the one that was asked for: it prints `error@0.70` as `error@0.7`.
pub(super) fn is_same(printed: &str, asked: &str) -> bool {
    let threshold = |metric: &str| metric.split_once('@').and_then(|(_, threshold)| threshold.parse::<f64>().ok());
    printed == asked || (base(printed) == base(asked) && threshold(printed).is_some() && threshold(printed) == threshold(asked))
}
