//! CloudWatch metrics: `PutMetricData`, `GetMetricStatistics`, `GetMetricData` and `ListMetrics`.

mod put;
mod reply;
mod request;

pub(crate) use request::{Dimension, pairs};

pub use put::{MetricDatum, MetricSample, PutMetricData};

/// What a series is known by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Metric {
    /// `/aws/sagemaker/TrainingJobs` and the like.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Pairs of name and value, in the order given.
    pub dimensions: Vec<(String, String)>,
}

/// What is computed of the values of a period.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Statistic {
    /// How many.
    SampleCount,
    /// Their mean.
    Average,
    /// Their sum.
    Sum,
    /// The least.
    Minimum,
    /// The greatest.
    Maximum,
    /// Below which so many percent of them are, 0 to 100.
    Percentile(f64),
}

/// Periods of a span of time. Times are milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Span {
    /// Start of the first period.
    pub start_ms: u64,
    /// Up to, but without, here.
    pub end_ms: u64,
    /// Length of a period in milliseconds.
    pub period_ms: u64,
}

/// A `GetMetricStatistics`.
#[derive(Debug, Clone, PartialEq)]
pub struct GetMetricStatistics {
    /// Of which series.
    pub metric: Metric,
    /// Over which periods.
    pub span: Span,
    /// Each with the name that it was asked by.
    pub statistics: Vec<(String, Statistic)>,
    /// If given, only values of this unit.
    pub unit: Option<String>,
}

/// A `GetMetricData`.
#[derive(Debug, Clone, PartialEq)]
pub struct GetMetricData {
    /// In the order given; those that are to be returned.
    pub queries: Vec<MetricQuery>,
    /// Newest values first.
    pub newest_first: bool,
    /// Values of a page over all queries, at least 1.
    pub max_datapoints: u32,
    /// From the page before.
    pub next_token: Option<String>,
}

/// A query of a `GetMetricData`.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MetricQuery {
    /// Names its results.
    pub id: String,
    /// As asked, or the metric's name.
    pub label: String,
    /// Of which series.
    pub metric: Metric,
    /// Over which periods.
    pub span: Span,
    /// What of each.
    pub statistic: Statistic,
    /// If given, only values of this unit.
    pub unit: Option<String>,
}

/// A `ListMetrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMetrics {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of this name.
    pub name: Option<String>,
    /// Only with these dimensions; a dimension without a value may have any.
    pub dimensions: Vec<(String, Option<String>)>,
    /// Only with values of the last three hours.
    pub recently_active: bool,
    /// From the page before.
    pub next_token: Option<String>,
}

/// The statistics of a period.
#[derive(Debug, Clone, PartialEq)]
pub struct Datapoint {
    /// The period's start in milliseconds since the epoch.
    pub at_ms: u64,
    /// Of its values, as CloudWatch names units.
    pub unit: String,
    /// In the order of [`GetMetricStatistics::statistics`].
    pub values: Vec<f64>,
}

/// What a page has of a query's results.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricResult {
    /// [`MetricQuery::id`].
    pub id: String,
    /// [`MetricQuery::label`].
    pub label: String,
    /// Periods' starts in milliseconds since the epoch, and values.
    pub values: Vec<(u64, f64)>,
    /// Whether no later page has more of them.
    pub complete: bool,
    /// What users should know of them.
    pub message: Option<&'static str>,
}
