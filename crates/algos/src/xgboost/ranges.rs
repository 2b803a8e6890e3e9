//! The table of hyperparameters: names, aliases, and what values each takes.

use super::hyperparameters::refuse;
use super::metrics;
use crate::HyperparameterError;

/// One or two sided range; `None` is open to infinity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
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
pub(super) enum Kind {
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

/// Every hyperparameter.
pub(super) const TABLE: [(&str, Kind); 53] = [
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

/// Other names of some of them.
pub(super) const ALIASES: [(&str, &str); 4] =
    [("learning_rate", "eta"), ("min_split_loss", "gamma"), ("reg_lambda", "lambda"), ("reg_alpha", "alpha")];

/// Checks one value.
pub(super) fn check(name: &str, value: &str, kind: Kind) -> Result<(), HyperparameterError> {
    let unparsed = || HyperparameterError(format!("Hyperparameter {name}: could not parse value \"{value}\""));
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
                return refuse(format!(
                    "Hyperparameter {name}: value {} not in range {range}",
                    python_list([unknown].into_iter())
                ));
            }
        }
        Metrics => value.split(',').try_for_each(|metric| check_metric(metric.trim()))?,
        TuningMetric => {
            let known = value
                .split_once(':')
                .is_some_and(|(set, metric)| set == "validation" && metrics::names().any(|name| name == metric));
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
        return refuse(format!(
            "Hyperparameter eval_metric: value {} not in range {range}",
            python_list([metric].into_iter())
        ));
    };
    if !matches!(name, "error" | "ndcg" | "map") {
        return refuse(format!(
            "Metric '{metric}' is not supported. Parameter 'eval_metric' with customized threshold should be one of \
             these options: 'error', \
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

/// A list as Python prints it, since the image's messages hold such lists.
fn python_list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<String> = items.map(|item| format!("'{item}'")).collect();
    format!("[{}]", items.join(", "))
}
