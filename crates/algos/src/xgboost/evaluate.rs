//! The metrics of each round, printed as XGBoost's evaluation monitor prints them. Over several
//! hosts every value is that of one host with all rows: metrics that are sums over rows are summed
//! by the library, the image's own by us, and the rest ([`super::judge`]) are computed from all
//! predictions at once.

use super::auc;
use super::container_metrics::ContainerMetrics;
use super::failure::Failure;
use super::ffi::booster::{Booster, Output};
use super::ffi::matrix::Matrix;
use super::group::Group;
use super::judge::Judge;
use super::metric_plan::MetricPlan;

/// A set of rows that is evaluated.
pub(super) struct Set {
    /// `train` or `validation`
    pub(super) name: &'static str,
    /// This host's rows.
    pub(super) matrix: Matrix,
    /// Their labels.
    pub(super) labels: Vec<f32>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Score {
    /// The set's name.
    pub(super) set: &'static str,
    /// The metric's name.
    pub(super) metric: String,
    /// The value.
    pub(super) value: f64,
}

/// Computes the scores of each round.
pub(super) struct Evaluator {
    /// Whether the booster under training evaluates anything itself.
    by_library: bool,
    by_judge: Option<Judge>,
    by_us: ContainerMetrics,
    /// See [`MetricPlan::apart`].
    apart: Vec<bool>,
}

impl Evaluator {
    /// Computes what `plan` says; its judge is already there.
    pub(super) fn new(plan: &MetricPlan, by_judge: Option<Judge>) -> Self {
        let by_library = !plan.by_library.is_empty() || plan.default_by_library;
        Self { by_library, by_judge, by_us: plan.by_us.clone(), apart: plan.apart.clone() }
    }

    /// Every metric of every set after `round`, set by set. Complete on rank 0 only. A collective
    /// call.
    pub(super) fn evaluate(
        &mut self,
        booster: &mut Booster,
        round: u32,
        sets: &[Set],
        group: &Group,
    ) -> Result<Vec<Score>, Failure> {
        let matrices: Vec<(&str, &Matrix)> = sets.iter().map(|set| (set.name, &set.matrix)).collect();
        let line = if self.by_library { booster.evaluate(round as i32, &matrices)? } else { String::new() };
        let mut scores = Vec::new();
        for (index, set) in sets.iter().enumerate() {
            let mut of_set = parse(&line, set.name);
            if let Some(judge) = &mut self.by_judge {
                let margins = booster.predict(&set.matrix, Output::Margin)?;
                of_set = merge(of_set, judge.evaluate(index, &margins, group)?, &self.apart);
            } else if self.apart.contains(&true) {
                let area = auc::area(&set.labels, &booster.predict(&set.matrix, Output::Transformed)?.values);
                let areas = self.apart.iter().filter(|is_apart| **is_apart).map(|_| (auc::NAME.to_owned(), area));
                of_set = merge(of_set, areas.collect(), &self.apart);
            }
            // Where both know a metric (rmse, mae) the image's definition counts.
            of_set.retain(|(metric, _)| !self.by_us.contains(metric));
            if !self.by_us.is_empty() {
                of_set.extend(self.by_us.evaluate(booster, &set.matrix, &set.labels, group)?);
            }
            scores.extend(of_set.into_iter().map(|(metric, value)| Score { set: set.name, metric, value }));
        }
        Ok(scores)
    }
}

/// Puts the values that the library knows by name in the order that was asked for. `order`: which
/// of them were computed apart.
fn merge(together: Vec<(String, f64)>, apart: Vec<(String, f64)>, order: &[bool]) -> Vec<(String, f64)> {
    let (mut together, mut apart) = (together.into_iter(), apart.into_iter());
    let mut merged: Vec<_> =
        order.iter().filter_map(|is_apart| if *is_apart { apart.next() } else { together.next() }).collect();
    merged.extend(together.chain(apart));
    merged
}

/// The values of one set in a line such as `[0]\ttrain-rmse:1.25\tvalidation-rmse:1.5`.
pub(super) fn parse(line: &str, set: &str) -> Vec<(String, f64)> {
    line.split_ascii_whitespace()
        .filter_map(|item| item.strip_prefix(set)?.strip_prefix('-')?.rsplit_once(':'))
        .map(|(metric, value)| (metric.to_owned(), value.parse().unwrap_or(f64::NAN)))
        .collect()
}

/// The line that metric definitions look for: `[0]\ttrain-rmse:1.25000\tvalidation-rmse:1.50000`.
pub(super) fn line(round: u32, scores: &[Score]) -> String {
    let mut line = format!("[{round}]");
    for Score { set, metric, value } in scores {
        line.push_str(&format!("\t{set}-{metric}:{}", decimal(*value)));
    }
    line
}

/// Five places; what is no number as Python prints it.
fn decimal(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:.5}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_line_becomes_the_images_line() {
        let text = "[3]\ttrain-logloss:0.57050903170831502\ttrain-ndcg@5-:1\tvalidation-logloss:nan\tvalidation-ndcg@5-:0.1234567";
        let scores: Vec<Score> = ["train", "validation"]
            .into_iter()
            .flat_map(|set| parse(text, set).into_iter().map(move |(metric, value)| Score { set, metric, value }))
            .collect();
        assert_eq!(
            line(3, &scores),
            "[3]\ttrain-logloss:0.57051\ttrain-ndcg@5-:1.00000\tvalidation-logloss:nan\tvalidation-ndcg@5-:0.12346"
        );
    }
}
