//! SageMaker's own metrics: `BatchPutMetrics` and `BatchGetMetrics`, in rest-json.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Call, Error, Input, Reply, Statistic, call::read, timestamp};

/// A `BatchPutMetrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPutMetrics {
    /// Trial component that the values belong to: `<training job>-aws-training-job`, in lower case.
    pub component: String,
    /// 1 to 10.
    pub metrics: Vec<RawMetric>,
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct RawMetric {
    /// The metric's name.
    pub name: String,
    /// Milliseconds since the epoch; `None` for what is no time that can be.
    pub at_ms: Option<u64>,
    /// The iteration.
    pub step: Option<u32>,
    /// The value.
    pub value: f64,
}

/// A query of a `BatchGetMetrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesQuery {
    /// The metric's name.
    pub name: String,
    /// Training job's ARN.
    pub resource_arn: String,
    /// What of each period.
    pub statistic: SeriesStatistic,
    /// What the values go by.
    pub axis: SeriesAxis,
    /// From here: an iteration, or seconds since the epoch, as the values that are told.
    pub start: Option<u64>,
    /// Up to here, with it.
    pub end: Option<u64>,
}

/// What the values of a series go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesAxis {
    /// By iterations.
    Step,
    /// By time, in periods of so many milliseconds.
    Time(u64),
}

/// What is computed of a period's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SeriesStatistic {
    /// One that CloudWatch has too.
    Of(Statistic),
    /// Their standard deviation.
    StdDev,
    /// The one that came last.
    Last,
}

/// What a query of a `BatchGetMetrics` found.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesResult {
    /// Iterations or whole seconds since the epoch, and values.
    Complete(Vec<(u64, f64)>),
    /// There is nothing of that name; the message says what is missing.
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchPutMetricsRequest {
    trial_component_name: String,
    metric_data: Vec<RawMetricRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawMetricRequest {
    metric_name: String,
    timestamp: f64,
    step: Option<u32>,
    value: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchGetMetricsRequest {
    metric_queries: Vec<QueryRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QueryRequest {
    metric_name: String,
    resource_arn: String,
    metric_stat: String,
    period: String,
    x_axis_type: String,
    start: Option<i64>,
    end: Option<i64>,
}

impl Input for BatchPutMetrics {
    fn read(call: Call) -> Result<Self, Error> {
        let request: BatchPutMetricsRequest = read(call.input)?;
        // Past the year 9999 no clock is right.
        let possible =
            |seconds: f64| (0.0..253_402_300_800.0).contains(&seconds).then(|| timestamp::from_seconds(seconds));
        let metrics = request.metric_data.into_iter().map(|metric| RawMetric {
            name: metric.metric_name,
            at_ms: possible(metric.timestamp),
            step: metric.step,
            value: metric.value,
        });
        Ok(Self { component: request.trial_component_name, metrics: metrics.collect() })
    }
}

impl Input for Vec<SeriesQuery> {
    fn read(call: Call) -> Result<Self, Error> {
        read::<BatchGetMetricsRequest>(call.input)?.metric_queries.into_iter().map(QueryRequest::check).collect()
    }
}

impl QueryRequest {
    fn check(self) -> Result<SeriesQuery, Error> {
        let axis = match (self.x_axis_type.as_str(), self.period.as_str()) {
            ("IterationNumber", "IterationNumber") => SeriesAxis::Step,
            ("Timestamp", "OneMinute") => SeriesAxis::Time(60_000),
            ("Timestamp", "FiveMinute") => SeriesAxis::Time(300_000),
            ("Timestamp", "OneHour") => SeriesAxis::Time(3_600_000),
            (axis, period) => {
                return Err(Error::validation(format!(
                    "Period {period} does not go with XAxisType {axis}: periods of time go with Timestamp."
                )));
            }
        };
        let bound = |bound: Option<i64>| bound.map(|bound| u64::try_from(bound).unwrap_or(0));
        let statistic = match self.metric_stat.as_str() {
            "Min" => SeriesStatistic::Of(Statistic::Minimum),
            "Max" => SeriesStatistic::Of(Statistic::Maximum),
            "Avg" => SeriesStatistic::Of(Statistic::Average),
            "Count" => SeriesStatistic::Of(Statistic::SampleCount),
            "StdDev" => SeriesStatistic::StdDev,
            _ => SeriesStatistic::Last,
        };
        Ok(SeriesQuery {
            name: self.metric_name,
            resource_arn: self.resource_arn,
            statistic,
            axis,
            start: bound(self.start),
            end: bound(self.end),
        })
    }
}

impl Reply {
    /// `BatchPutMetrics`: code and index of each value that was refused.
    pub fn batch_put_metrics(errors: &[(&str, usize)]) -> Self {
        let errors: Vec<Value> = errors.iter().map(|(code, at)| json!({"Code": code, "MetricIndex": at})).collect();
        Self::of(if errors.is_empty() { json!({}) } else { json!({"Errors": errors}) })
    }

    /// `BatchGetMetrics`: of each query.
    pub fn batch_get_metrics(results: &[SeriesResult]) -> Self {
        Self::of(series(results))
    }
}

fn series(results: &[SeriesResult]) -> Value {
    let entry = |result: &SeriesResult| match result {
        SeriesResult::Complete(values) => json!({
            "Status": "Complete",
            "XAxisValues": values.iter().map(|(x, _)| json!(x)).collect::<Value>(),
            "MetricValues": values.iter().map(|(_, value)| json!(value)).collect::<Value>(),
        }),
        SeriesResult::Refused(message) => {
            json!({"Status": "ValidationError", "Message": message, "XAxisValues": [], "MetricValues": []})
        }
    };
    json!({"MetricQueryResults": results.iter().map(entry).collect::<Value>()})
}
