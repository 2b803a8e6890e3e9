//! `PutMetricData`: values that users have measured.

use serde::Deserialize;
use serde_json::Value;

use super::request::{Dimension, pairs};
use crate::{Call, Error, ErrorCode, Input, call::read, timestamp};

/// Data of one request, as AWS has it.
const MAX_DATA: usize = 1000;
/// Different values of one datum, as AWS has it.
const MAX_VALUES: usize = 150;
/// Values are between minus and plus 2 to the power of this.
const MAX_EXPONENT: i32 = 360;
/// Namespaces that users cannot put into: AWS's, and what Shoal measures.
const RESERVED: [&str; 3] = ["AWS/", "/aws/sagemaker/", "Shoal/"];

/// A `PutMetricData`.
#[derive(Debug, Clone, PartialEq)]
pub struct PutMetricData {
    /// None of AWS's, and none of Shoal's.
    pub namespace: String,
    /// At least one.
    pub data: Vec<MetricDatum>,
}

/// Values of one metric at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricDatum {
    /// The metric's name.
    pub name: String,
    /// Each name once, in the order of names.
    pub dimensions: Vec<(String, String)>,
    /// Milliseconds since the epoch; `None` is when it is received.
    pub at_ms: Option<u64>,
    /// As CloudWatch names units; `None` where the request has none.
    pub unit: String,
    /// Times are kept to the second, not to the minute.
    pub is_high_resolution: bool,
    /// At least one.
    pub samples: Vec<MetricSample>,
}

/// A value as often as it came, or the statistics of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSample {
    /// How many values.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutMetricDataRequest {
    namespace: String,
    #[serde(default)]
    metric_data: Vec<DatumRequest>,
    entity_metric_data: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DatumRequest {
    metric_name: String,
    #[serde(default)]
    dimensions: Vec<Dimension>,
    timestamp: Option<f64>,
    value: Option<f64>,
    statistic_values: Option<StatisticValues>,
    #[serde(default)]
    values: Vec<f64>,
    #[serde(default)]
    counts: Vec<f64>,
    unit: Option<String>,
    storage_resolution: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StatisticValues {
    sample_count: f64,
    sum: f64,
    minimum: f64,
    maximum: f64,
}

impl Input for PutMetricData {
    fn read(call: Call) -> Result<Self, Error> {
        let request: PutMetricDataRequest = read(call.input)?;
        if let Some(reserved) = RESERVED.iter().find(|reserved| request.namespace.starts_with(**reserved)) {
            return Err(value(format!(
                "The value {reserved} for parameter Namespace is invalid: namespaces that begin with it are AWS's; \
                 use another one."
            )));
        }
        if request.entity_metric_data.is_some() {
            return Err(combination(
                "Shoal knows no entities: give the data in the parameter MetricData instead of EntityMetricData.",
            ));
        }
        match request.metric_data.len() {
            0 => return Err(missing("The parameter MetricData is required.")),
            count if count > MAX_DATA => {
                return Err(value(format!(
                    "The parameter MetricData must have at most {MAX_DATA} members; it has {count}."
                )));
            }
            _ => {}
        }
        let data = (1..).zip(request.metric_data).map(|(at, datum)| datum.check(&format!("MetricData.member.{at}")));
        Ok(Self { namespace: request.namespace, data: data.collect::<Result<_, _>>()? })
    }
}

impl DatumRequest {
    fn check(self, path: &str) -> Result<MetricDatum, Error> {
        let samples = self.samples(path)?;
        let mut dimensions = pairs(self.dimensions);
        dimensions.sort_unstable();
        if let Some(twice) = dimensions.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(value(format!("The parameter {path}.Dimensions has the name {} twice.", twice[0].0)));
        }
        let is_high_resolution = match self.storage_resolution {
            None | Some(60) => false,
            Some(1) => true,
            Some(other) => {
                return Err(value(format!(
                    "The value {other} for parameter {path}.StorageResolution is not supported: it is 1 or 60."
                )));
            }
        };
        Ok(MetricDatum {
            name: self.metric_name,
            dimensions,
            at_ms: self.timestamp.map(timestamp::from_seconds),
            unit: self.unit.unwrap_or_else(|| "None".to_owned()),
            is_high_resolution,
            samples,
        })
    }

    fn samples(&self, path: &str) -> Result<Vec<MetricSample>, Error> {
        match (self.value, &self.statistic_values, self.values.as_slice()) {
            (None, None, []) => Err(missing(&format!(
                "At least one of the parameters {path}.Value, {path}.Values and {path}.StatisticValues must be \
                 specified."
            ))),
            (Some(it), None, []) => Ok(vec![once(&format!("{path}.Value"), it)?]),
            (None, Some(set), []) => Ok(vec![set.check(&format!("{path}.StatisticValues"))?]),
            (None, None, values) => counted(path, values, &self.counts),
            _ => Err(combination(&format!(
                "The parameters {path}.Value, {path}.Values and {path}.StatisticValues are mutually exclusive: give \
                 one of them."
            ))),
        }
    }
}

impl StatisticValues {
    fn check(&self, path: &str) -> Result<MetricSample, Error> {
        let named = |name: &str| format!("{path}.{name}");
        let (low, high) = (finite(&named("Minimum"), self.minimum)?, finite(&named("Maximum"), self.maximum)?);
        let (sum, count) = (finite(&named("Sum"), self.sum)?, finite(&named("SampleCount"), self.sample_count)?);
        if count <= 0.0 {
            return Err(value(format!("The value {count} for parameter {path}.SampleCount must be greater than 0.")));
        }
        if low > high {
            return Err(value(format!(
                "The value {low} for parameter {path}.Minimum must not be greater than {path}.Maximum, which is {high}."
            )));
        }
        Ok(MetricSample { count, sum, low, high })
    }
}

fn counted(path: &str, values: &[f64], counts: &[f64]) -> Result<Vec<MetricSample>, Error> {
    if values.len() > MAX_VALUES {
        return Err(value(format!(
            "The parameter {path}.Values must have at most {MAX_VALUES} members; it has {}.",
            values.len()
        )));
    }
    if !counts.is_empty() && counts.len() != values.len() {
        return Err(value(format!(
            "The parameters {path}.Values and {path}.Counts must have the same number of members; they have {} and {}.",
            values.len(),
            counts.len()
        )));
    }
    let counts = counts.iter().copied().chain(std::iter::repeat(1.0));
    let sample = |(at, (it, count)): (usize, (&f64, f64))| {
        let one = once(&format!("{path}.Values.member.{at}"), *it)?;
        let count = finite(&format!("{path}.Counts.member.{at}"), count)?;
        if count <= 0.0 {
            return Err(value(format!("The value {count} for parameter {path}.Counts.member.{at} must be above 0.")));
        }
        Ok(MetricSample { count, sum: one.sum * count, ..one })
    };
    (1..).zip(values.iter().zip(counts)).map(sample).collect()
}

fn once(path: &str, it: f64) -> Result<MetricSample, Error> {
    let it = finite(path, it)?;
    Ok(MetricSample { count: 1.0, sum: it, low: it, high: it })
}

fn finite(path: &str, it: f64) -> Result<f64, Error> {
    if it.is_finite() && it.abs() <= 2_f64.powi(MAX_EXPONENT) {
        // There is one zero.
        return Ok(it + 0.0);
    }
    Err(value(format!(
        "The value {it} for parameter {path} is invalid: it must be a number between -2^{MAX_EXPONENT} and \
         2^{MAX_EXPONENT}."
    )))
}

fn value(message: String) -> Error {
    Error::new(ErrorCode::InvalidParameterValue, message)
}

fn combination(message: &str) -> Error {
    Error::new(ErrorCode::InvalidParameterCombination, message)
}

fn missing(message: &str) -> Error {
    Error::new(ErrorCode::MissingParameter, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data(data: Value) -> Result<Vec<MetricDatum>, ErrorCode> {
        let mut input = json!({"Namespace": "Mine"});
        input["MetricData"] = data;
        put(input).map(|put| put.data)
    }

    fn put(input: Value) -> Result<PutMetricData, ErrorCode> {
        let operation = crate::operations().find(|it| it.name == "PutMetricData").expect("it is served");
        Call { operation, input }.read().map_err(|error| error.code)
    }

    fn samples(datum: Value) -> Result<Vec<(f64, f64, f64, f64)>, ErrorCode> {
        let mut datum = datum;
        datum["MetricName"] = json!("m");
        let found = data(json!([datum]))?;
        Ok(found[0].samples.iter().map(|it| (it.count, it.sum, it.low, it.high)).collect())
    }

    #[test]
    fn values_come_in_three_forms() {
        assert_eq!(samples(json!({"Value": 2.5})), Ok(vec![(1.0, 2.5, 2.5, 2.5)]));
        assert_eq!(
            samples(json!({"Values": [1, 4], "Counts": [3, 0.5]})),
            Ok(vec![(3.0, 3.0, 1.0, 1.0), (0.5, 2.0, 4.0, 4.0)])
        );
        assert_eq!(samples(json!({"Values": [7]})), Ok(vec![(1.0, 7.0, 7.0, 7.0)]));
        let set = json!({"SampleCount": 4, "Sum": 10, "Minimum": 1, "Maximum": 4});
        assert_eq!(samples(json!({"StatisticValues": set})), Ok(vec![(4.0, 10.0, 1.0, 4.0)]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        use ErrorCode::{InvalidParameterCombination, InvalidParameterValue, MissingParameter};
        let set = |count: f64, low: f64, high: f64| json!({"StatisticValues": {"SampleCount": count, "Sum": 1, "Minimum": low, "Maximum": high}});
        for (datum, expected) in [
            (json!({}), MissingParameter),
            (json!({"Value": 1, "Values": [1]}), InvalidParameterCombination),
            (json!({"Value": 1e300}), InvalidParameterValue),
            (json!({"Values": [1, 2], "Counts": [1]}), InvalidParameterValue),
            (json!({"Values": [1], "Counts": [0]}), InvalidParameterValue),
            (json!({"Values": vec![1; 151]}), InvalidParameterValue),
            (set(0.0, 1.0, 1.0), InvalidParameterValue),
            (set(1.0, 2.0, 1.0), InvalidParameterValue),
            (json!({"Value": 1, "StorageResolution": 30}), InvalidParameterValue),
            (
                json!({"Value": 1, "Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}]}),
                InvalidParameterValue,
            ),
        ] {
            assert_eq!(samples(datum.clone()), Err(expected), "{datum}");
        }
        assert_eq!(data(json!([])), Err(MissingParameter));
        let many = vec![json!({"MetricName": "m", "Value": 1}); 1001];
        assert_eq!(data(json!(many)), Err(InvalidParameterValue));
        for namespace in ["AWS/EC2", "/aws/sagemaker/TrainingJobs", "Shoal/TrainingJobs"] {
            let one = json!({"Namespace": namespace, "MetricData": [{"MetricName": "m", "Value": 1}]});
            assert_eq!(put(one), Err(InvalidParameterValue), "{namespace}");
        }
    }
}
