//! Requests about metrics, and the rules that a table of shapes cannot say.

use serde::Deserialize;

use super::{GetMetricData, GetMetricStatistics, ListMetrics, Metric, MetricQuery, Span, Statistic};
use crate::{Call, Error, ErrorCode, Input, call::read, timestamp};

/// Data points of one GetMetricStatistics, as AWS has it.
const MOST_STATISTICS: u64 = 1440;
/// Data points of one page of GetMetricData, as AWS has it.
const MOST_DATA: u32 = 100_800;
/// Queries of one GetMetricData, as AWS has it.
const MOST_QUERIES: usize = 500;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Dimension {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetMetricStatisticsRequest {
    namespace: String,
    metric_name: String,
    #[serde(default)]
    dimensions: Vec<Dimension>,
    start_time: f64,
    end_time: f64,
    period: u32,
    #[serde(default)]
    statistics: Vec<String>,
    #[serde(default)]
    extended_statistics: Vec<String>,
    unit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetMetricDataRequest {
    metric_data_queries: Vec<QueryRequest>,
    start_time: f64,
    end_time: f64,
    next_token: Option<String>,
    scan_by: Option<String>,
    max_datapoints: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QueryRequest {
    id: String,
    metric_stat: Option<MetricStatRequest>,
    expression: Option<String>,
    label: Option<String>,
    return_data: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MetricStatRequest {
    metric: MetricRequest,
    period: u32,
    stat: String,
    unit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MetricRequest {
    namespace: Option<String>,
    metric_name: Option<String>,
    #[serde(default)]
    dimensions: Vec<Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DimensionFilter {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListMetricsRequest {
    namespace: Option<String>,
    metric_name: Option<String>,
    #[serde(default)]
    dimensions: Vec<DimensionFilter>,
    next_token: Option<String>,
    recently_active: Option<String>,
}

impl Input for GetMetricStatistics {
    fn read(call: Call) -> Result<Self, Error> {
        let request: GetMetricStatisticsRequest = read(call.input)?;
        let span = Span::of(request.start_time, request.end_time, request.period)?;
        let asked = match (request.statistics.is_empty(), request.extended_statistics.is_empty()) {
            (true, true) => {
                return Err(combination(
                    "At least one of the parameters Statistics and ExtendedStatistics must be specified.",
                ));
            }
            (false, false) => {
                return Err(combination(
                    "The parameters Statistics and ExtendedStatistics are alternatives: give one of them.",
                ));
            }
            (false, true) => request.statistics,
            (true, false) => request.extended_statistics,
        };
        let points = (span.end_ms - span.start_ms).div_ceil(span.period_ms);
        if points > MOST_STATISTICS {
            return Err(combination(&format!(
                "You have requested up to {points} datapoints, which exceeds the limit of {MOST_STATISTICS}. You may \
                 reduce the datapoints requested by \
                 increasing Period, or decreasing the time range."
            )));
        }
        let statistics = asked
            .into_iter()
            .map(|name| Ok((name.clone(), Statistic::parse(&name)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            metric: Metric {
                namespace: request.namespace,
                name: request.metric_name,
                dimensions: pairs(request.dimensions),
            },
            span,
            statistics,
            unit: request.unit,
        })
    }
}

impl Input for GetMetricData {
    fn read(call: Call) -> Result<Self, Error> {
        let request: GetMetricDataRequest = read(call.input)?;
        let count = request.metric_data_queries.len();
        if count == 0 || count > MOST_QUERIES {
            return Err(Error::validation(format!(
                "The parameter MetricDataQueries must have 1 to {MOST_QUERIES} members; it has {count}."
            )));
        }
        if timestamp::from_seconds(request.start_time) == timestamp::from_seconds(request.end_time) {
            return Err(Error::validation("The parameter StartTime must not equal parameter EndTime."));
        }
        if request.start_time > request.end_time {
            return Err(Error::validation("The parameter EndTime must be greater than StartTime."));
        }
        // AWS knows one code for whatever is wrong with this request.
        let invalid = |error: Error| Error::validation(error.message);
        let mut queries: Vec<MetricQuery> = Vec::new();
        let mut ids: Vec<String> = Vec::new();
        for query in request.metric_data_queries {
            if !is_id(&query.id) {
                return Err(Error::validation(format!(
                    "The value {} for parameter Id is not matching the expected pattern ^[a-z][a-zA-Z0-9_]*$.",
                    query.id
                )));
            }
            if ids.contains(&query.id) {
                return Err(Error::validation(format!(
                    "The values for parameter Id in MetricDataQueries must be unique: {} is there twice.",
                    query.id
                )));
            }
            ids.push(query.id.clone());
            let stat = match (query.metric_stat, query.expression) {
                (Some(stat), None) => stat,
                (None, Some(_)) => {
                    return Err(Error::validation(format!(
                        "Shoal evaluates no metric math: the query {} has an Expression; give it a MetricStat.",
                        query.id
                    )));
                }
                _ => {
                    return Err(Error::validation(format!(
                        "The query {} needs either a MetricStat or an Expression.",
                        query.id
                    )));
                }
            };
            let (Some(namespace), Some(name)) = (stat.metric.namespace, stat.metric.metric_name) else {
                return Err(Error::validation(format!(
                    "The Metric of the query {} needs a Namespace and a MetricName.",
                    query.id
                )));
            };
            let checked = MetricQuery {
                label: query.label.unwrap_or_else(|| name.clone()),
                id: query.id,
                metric: Metric { namespace, name, dimensions: pairs(stat.metric.dimensions) },
                span: Span::of(request.start_time, request.end_time, stat.period).map_err(invalid)?,
                statistic: Statistic::parse(&stat.stat).map_err(invalid)?,
                unit: stat.unit,
            };
            if query.return_data != Some(false) {
                queries.push(checked);
            }
        }
        if queries.is_empty() {
            return Err(Error::validation("At least one query of MetricDataQueries must not have ReturnData false."));
        }
        let most = match request.max_datapoints {
            None => MOST_DATA,
            Some(most) => u32::try_from(most).ok().filter(|most| (1..=MOST_DATA).contains(most)).ok_or_else(|| {
                Error::validation(format!(
                    "The value {most} for parameter MaxDatapoints is not supported: it is 1 to {MOST_DATA}."
                ))
            })?,
        };
        Ok(Self {
            queries,
            newest_first: request.scan_by.as_deref() != Some("TimestampAscending"),
            max_datapoints: most,
            next_token: request.next_token.filter(|token| !token.is_empty()),
        })
    }
}

impl Input for ListMetrics {
    fn read(call: Call) -> Result<Self, Error> {
        let request: ListMetricsRequest = read(call.input)?;
        Ok(Self {
            namespace: request.namespace,
            name: request.metric_name,
            dimensions: request.dimensions.into_iter().map(|filter| (filter.name, filter.value)).collect(),
            recently_active: request.recently_active.is_some(),
            next_token: request.next_token.filter(|token| !token.is_empty()),
        })
    }
}

impl Span {
    /// A span's start goes down to a whole minute, or to a whole period where that is shorter.
    fn of(start_s: f64, end_s: f64, period_s: u32) -> Result<Self, Error> {
        if !matches!(period_s, 1 | 5 | 10 | 20 | 30) && !period_s.is_multiple_of(60) {
            return Err(value(&format!(
                "The value {period_s} for parameter Period is not supported: it is 1, 5, 10, 20, 30 or a multiple of \
                 60."
            )));
        }
        let (start, end) = (timestamp::from_seconds(start_s), timestamp::from_seconds(end_s));
        if start >= end {
            return Err(value("The parameter StartTime must be less than the parameter EndTime."));
        }
        let whole = u64::from(period_s.min(60)) * 1000;
        Ok(Self { start_ms: start / whole * whole, end_ms: end, period_ms: u64::from(period_s) * 1000 })
    }
}

impl Statistic {
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let percent = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            digits.parse().ok().filter(|percent: &f64| plain && (0.0..=100.0).contains(percent))
        };
        match name {
            "SampleCount" => Ok(Self::SampleCount),
            "Average" => Ok(Self::Average),
            "Sum" => Ok(Self::Sum),
            "Minimum" => Ok(Self::Minimum),
            "Maximum" => Ok(Self::Maximum),
            other => other.strip_prefix('p').and_then(percent).map(Self::Percentile).ok_or_else(|| {
                value(&format!(
                    "The value {other} for parameter Stat is not supported: Shoal computes SampleCount, Average, Sum, \
                     Minimum, Maximum and percentiles such as p99."
                ))
            }),
        }
    }
}

fn is_id(id: &str) -> bool {
    id.starts_with(|letter: char| letter.is_ascii_lowercase())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(crate) fn pairs(dimensions: Vec<Dimension>) -> Vec<(String, String)> {
    dimensions.into_iter().map(|dimension| (dimension.name, dimension.value)).collect()
}

fn combination(message: &str) -> Error {
    Error::new(ErrorCode::InvalidParameterCombination, message)
}

fn value(message: &str) -> Error {
    Error::new(ErrorCode::InvalidParameterValue, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_names() {
        let check =
            |name: &str, expected: Option<Statistic>| assert_eq!(Statistic::parse(name).ok(), expected, "{name}");
        check("Average", Some(Statistic::Average));
        check("SampleCount", Some(Statistic::SampleCount));
        check("p99", Some(Statistic::Percentile(99.0)));
        check("p0", Some(Statistic::Percentile(0.0)));
        check("p99.95", Some(Statistic::Percentile(99.95)));
        check("p100", Some(Statistic::Percentile(100.0)));
        for other in ["p100.1", "p-1", "p", "pNaN", "p1e1", "average", "tm90", "IQR", ""] {
            check(other, None);
        }
    }

    #[test]
    fn spans_are_whole() {
        let check = |start: f64, end: f64, period: u32, expected: Result<(u64, u64), ErrorCode>| {
            let found =
                Span::of(start, end, period).map(|span| (span.start_ms, span.end_ms)).map_err(|error| error.code);
            assert_eq!(found, expected, "{start} {end} {period}");
        };
        check(125.5, 200.25, 60, Ok((120_000, 200_250)));
        check(125.5, 200.0, 300, Ok((120_000, 200_000)));
        check(127.5, 200.0, 5, Ok((125_000, 200_000)));
        check(127.5, 200.0, 1, Ok((127_000, 200_000)));
        check(10.0, 10.0, 60, Err(ErrorCode::InvalidParameterValue));
        check(20.0, 10.0, 60, Err(ErrorCode::InvalidParameterValue));
        check(0.0, 10.0, 7, Err(ErrorCode::InvalidParameterValue));
        check(0.0, 10.0, 90, Err(ErrorCode::InvalidParameterValue));
    }
}
