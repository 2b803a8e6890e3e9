//! Metrics as JSON.

use serde_json::{Map, Value, json};

use super::{Datapoint, Metric, MetricResult, Statistic};
use crate::{Reply, timestamp};

impl Reply {
    /// `GetMetricStatistics`: the metric's name,
    /// [`crate::GetMetricStatistics::statistics`], and periods that have values.
    pub fn get_metric_statistics(label: &str, statistics: &[(String, Statistic)], datapoints: &[Datapoint]) -> Self {
        let entry = |datapoint: &Datapoint| {
            let mut entry = json!({"Timestamp": timestamp::seconds(datapoint.at_ms), "Unit": datapoint.unit});
            let mut extended = Map::new();
            for ((name, statistic), value) in statistics.iter().zip(&datapoint.values) {
                match statistic {
                    Statistic::Percentile(_) => drop(extended.insert(name.clone(), number(*value))),
                    _ => entry[name] = number(*value),
                }
            }
            if !extended.is_empty() {
                entry["ExtendedStatistics"] = Value::Object(extended);
            }
            entry
        };
        Self::of(json!({"Label": label, "Datapoints": datapoints.iter().map(entry).collect::<Value>()}))
    }

    /// `GetMetricData`: one page of each query's values.
    pub fn get_metric_data(results: &[MetricResult], next_token: Option<&str>) -> Self {
        let entry = |result: &MetricResult| {
            let mut entry = json!({
                "Id": result.id,
                "Label": result.label,
                "Timestamps": result.values.iter().map(|(at_ms, _)| timestamp::seconds(*at_ms)).collect::<Value>(),
                "Values": result.values.iter().map(|(_, value)| number(*value)).collect::<Value>(),
                "StatusCode": if result.complete { "Complete" } else { "PartialData" },
            });
            if let Some(message) = result.message {
                entry["Messages"] = json!([{"Code": "Thinned", "Value": message}]);
            }
            entry
        };
        Self::page("MetricDataResults", results.iter().map(entry), "NextToken", next_token).with("Messages", json!([]))
    }

    /// `ListMetrics`: one page.
    pub fn list_metrics(metrics: &[Metric], next_token: Option<&str>) -> Self {
        let entry = |metric: &Metric| {
            let dimensions = metric.dimensions.iter().map(|(name, value)| json!({"Name": name, "Value": value}));
            json!({"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions.collect::<Value>()})
        };
        Self::page("Metrics", metrics.iter().map(entry), "NextToken", next_token)
    }
}

/// JSON has no infinities and no NaN; clients read these words for them.
fn number(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}
