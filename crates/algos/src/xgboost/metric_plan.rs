//! Who computes which of the metrics that were asked for.

use super::auc;
use super::container_metrics::{ContainerMetric, ContainerMetrics};
use super::failure::Failure;
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::metrics;

/// Who computes which metric.
pub(super) struct MetricPlan {
    /// The booster under training.
    pub(super) by_library: Vec<String>,
    /// It also prints the objective's default metric.
    pub(super) default_by_library: bool,
    /// The judge, from all hosts' rows; none for the default.
    pub(super) by_judge: Option<Vec<String>>,
    /// For each metric of the library, in the order asked for: whether it is computed apart, by the
    /// judge or, on one host, by [`auc`].
    pub(super) apart: Vec<bool>,
    pub(super) by_us: ContainerMetrics,
}

impl MetricPlan {
    /// `auc_is_ours`: see [`auc::is_ours`].
    pub(super) fn of(hyperparameters: &Hyperparameters, group: &Group, auc_is_ours: bool) -> Result<Self, Failure> {
        let (asked, _) = hyperparameters.metrics();
        let objective = hyperparameters.parameter("objective", "reg:squarederror");
        let classes = match objective {
            "multi:softmax" | "multi:softprob" => hyperparameters.parameter("num_class", "2").parse().ok(),
            "binary:logistic" | "binary:logitraw" | "binary:hinge" => Some(2),
            _ => None,
        };
        let by_us = ContainerMetrics::of(&asked, classes)?;
        let of_library: Vec<String> =
            asked.into_iter().filter(|metric| ContainerMetric::named(metric).is_none()).collect();
        let default = of_library.is_empty();
        let is_judged = |metric: &str| group.size() > 1 && metrics::needs_all_rows(metric);
        let is_apart = |metric: &str| is_judged(metric) || auc_is_ours && group.size() == 1 && metric == auc::NAME;
        let default_apart = default && is_judged(metrics::default_of(objective));
        let apart: Vec<bool> = of_library.iter().map(|metric| is_apart(metric)).collect();
        let (of_judge, by_library): (Vec<String>, Vec<String>) =
            of_library.into_iter().partition(|metric| is_apart(metric));
        let by_judge = (group.size() > 1 && (default_apart || !of_judge.is_empty())).then_some(of_judge);
        Ok(Self { by_library, default_by_library: default && !default_apart, by_judge, apart, by_us })
    }
}
