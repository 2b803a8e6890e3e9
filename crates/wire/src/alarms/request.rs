//! Requests about alarms, and the rules that a table of shapes cannot say.

use serde::Deserialize;
use serde_json::Value;

use super::{
    DescribeAlarmHistory, DescribeAlarms, DescribeAlarmsForMetric, MetricAlarm, NamedAlarms, PutMetricAlarm,
    SetAlarmState,
};
use crate::{
    Call, Error, ErrorCode, Input, Metric, Statistic,
    call::{plain_inputs, read},
    cloudwatch::{Dimension, pairs},
    timestamp,
};

/// Comparisons with a threshold; AWS's others are with a band of anomaly detection.
const COMPARISONS: [&str; 4] =
    ["GreaterThanOrEqualToThreshold", "GreaterThanThreshold", "LessThanThreshold", "LessThanOrEqualToThreshold"];
const MISSING_DATA: [&str; 4] = ["missing", "ignore", "breaching", "notBreaching"];
const LOW_SAMPLE_COUNTS: [&str; 2] = ["evaluate", "ignore"];
/// Seconds that the periods of an alarm may take together, as AWS has it: a week, and a day if a
/// period is shorter than an hour.
const MAX_WINDOW_S: u64 = 604_800;
const MAX_SHORT_WINDOW_S: u64 = 86_400;
const HOUR_S: u32 = 3600;
/// Members that no alarm of Shoal has, and why.
const REFUSED: [(&str, &str); 6] = [
    ("Metrics", "Shoal evaluates no metric math: give MetricName, Namespace and Statistic instead"),
    ("ThresholdMetricId", "Shoal has no anomaly detection: give a Threshold"),
    ("EvaluationCriteria", "Shoal evaluates no PromQL: give MetricName, Namespace and Statistic instead"),
    ("EvaluationWindow", "windows of alarms slide as AWS's do by default: leave it out"),
    ("EvaluationInterval", "alarms are evaluated each minute, those of shorter periods every 10 s: leave it out"),
    ("WarmUpConfiguration", "alarms are evaluated from their creation on: leave it out"),
];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutMetricAlarmRequest {
    alarm_name: String,
    alarm_description: Option<String>,
    actions_enabled: Option<bool>,
    #[serde(default, rename = "OKActions")]
    ok_actions: Vec<String>,
    #[serde(default)]
    alarm_actions: Vec<String>,
    #[serde(default)]
    insufficient_data_actions: Vec<String>,
    metric_name: Option<String>,
    namespace: Option<String>,
    statistic: Option<String>,
    extended_statistic: Option<String>,
    #[serde(default)]
    dimensions: Vec<Dimension>,
    period: Option<u32>,
    unit: Option<String>,
    evaluation_periods: Option<u32>,
    datapoints_to_alarm: Option<u32>,
    threshold: Option<f64>,
    comparison_operator: Option<String>,
    treat_missing_data: Option<String>,
    evaluate_low_sample_count_percentile: Option<String>,
}

impl Input for PutMetricAlarm {
    fn read(call: Call) -> Result<Self, Error> {
        let mut raw = call.input;
        if let Some((member, why)) = REFUSED.iter().find(|(member, _)| raw.get(member).is_some()) {
            return Err(invalid(format!("The parameter {member} is not supported: {why}.")));
        }
        let request: PutMetricAlarmRequest = read(raw.clone())?;
        let actions_enabled = request.actions_enabled.unwrap_or(true);
        if let Some(members) = raw.as_object_mut() {
            members.retain(|name, _| !matches!(name.as_str(), "Tags" | "ActionsEnabled" | "ActionConfiguration"));
        }
        Ok(Self { alarm: request.check()?, actions_enabled, raw })
    }
}

impl PutMetricAlarmRequest {
    fn check(self) -> Result<MetricAlarm, Error> {
        let (statistic_name, statistic) = match (self.statistic, self.extended_statistic) {
            (Some(name), None) | (None, Some(name)) => (name.clone(), Statistic::parse(&name)?),
            (None, None) => return Err(missing("Either Statistic or ExtendedStatistic")),
            (Some(_), Some(_)) => {
                return Err(Error::new(
                    ErrorCode::InvalidParameterCombination,
                    "The parameters Statistic and ExtendedStatistic are alternatives: give one of them.",
                ));
            }
        };
        let alarm = MetricAlarm {
            metric: Metric {
                namespace: self.namespace.ok_or_else(|| missing("Namespace"))?,
                name: self.metric_name.ok_or_else(|| missing("MetricName"))?,
                dimensions: pairs(self.dimensions),
            },
            name: self.alarm_name,
            description: self.alarm_description,
            unit: self.unit,
            statistic,
            statistic_name,
            period_s: self.period.ok_or_else(|| missing("Period"))?,
            evaluation_periods: self.evaluation_periods.ok_or_else(|| missing("EvaluationPeriods"))?,
            datapoints_to_alarm: self.datapoints_to_alarm,
            threshold: self.threshold.ok_or_else(|| missing("Threshold"))?,
            comparison: self.comparison_operator.ok_or_else(|| missing("ComparisonOperator"))?,
            treat_missing_data: self.treat_missing_data,
            low_sample_count: self.evaluate_low_sample_count_percentile,
            ok_actions: self.ok_actions,
            alarm_actions: self.alarm_actions,
            insufficient_data_actions: self.insufficient_data_actions,
        };
        alarm.check()?;
        Ok(alarm)
    }
}

impl MetricAlarm {
    fn check(&self) -> Result<(), Error> {
        one_of("ComparisonOperator", &self.comparison, &COMPARISONS)?;
        self.treat_missing_data.iter().try_for_each(|it| one_of("TreatMissingData", it, &MISSING_DATA))?;
        let low = self.low_sample_count.as_ref();
        low.map_or(Ok(()), |it| one_of("EvaluateLowSampleCountPercentile", it, &LOW_SAMPLE_COUNTS))?;
        let (period_s, periods) = (self.period_s, self.evaluation_periods);
        if !matches!(period_s, 10 | 20 | 30) && !period_s.is_multiple_of(60) {
            return Err(invalid(format!(
                "The value {period_s} for parameter Period is not supported: it is 10, 20, 30 or a multiple of 60."
            )));
        }
        if self.datapoints_to_alarm.is_some_and(|needed| needed > periods) {
            return Err(invalid(
                "The parameter DatapointsToAlarm must be less than or equal to EvaluationPeriods.".to_owned(),
            ));
        }
        let longest = if period_s < HOUR_S { MAX_SHORT_WINDOW_S } else { MAX_WINDOW_S };
        if u64::from(period_s) * u64::from(periods) > longest {
            return Err(invalid(format!(
                "Metrics cannot be checked across more than {longest} s: EvaluationPeriods * Period must be at most \
                 that; it is {periods} * {period_s}."
            )));
        }
        if !self.threshold.is_finite() {
            return Err(invalid("The parameter Threshold must be a number.".to_owned()));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAlarmsRequest {
    #[serde(default)]
    alarm_names: Vec<String>,
    alarm_name_prefix: Option<String>,
    #[serde(default)]
    alarm_types: Vec<String>,
    children_of_alarm_name: Option<Value>,
    parents_of_alarm_name: Option<Value>,
    state_value: Option<String>,
    action_prefix: Option<String>,
    max_records: Option<usize>,
    next_token: Option<String>,
}

impl Input for DescribeAlarms {
    fn read(call: Call) -> Result<Self, Error> {
        let request: DescribeAlarmsRequest = read(call.input)?;
        if request.children_of_alarm_name.is_some() || request.parents_of_alarm_name.is_some() {
            return Err(invalid(
                "Shoal has no composite alarms: leave ChildrenOfAlarmName and ParentsOfAlarmName out.".to_owned(),
            ));
        }
        if !request.alarm_names.is_empty() && request.alarm_name_prefix.is_some() {
            return Err(Error::new(
                ErrorCode::InvalidParameterCombination,
                "The parameters AlarmNames and AlarmNamePrefix are alternatives: give one of them.",
            ));
        }
        Ok(Self {
            names: request.alarm_names,
            prefix: request.alarm_name_prefix,
            state: request.state_value,
            action_prefix: request.action_prefix,
            metric_alarms: has_metric_alarms(&request.alarm_types),
            max_records: request.max_records.unwrap_or(50),
            next_token: request.next_token.filter(|token| !token.is_empty()),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAlarmsForMetricRequest {
    metric_name: String,
    namespace: String,
    statistic: Option<String>,
    extended_statistic: Option<String>,
    #[serde(default)]
    dimensions: Vec<Dimension>,
    period: Option<u32>,
    unit: Option<String>,
}

impl Input for DescribeAlarmsForMetric {
    fn read(call: Call) -> Result<Self, Error> {
        let request: DescribeAlarmsForMetricRequest = read(call.input)?;
        Ok(Self {
            metric: Metric {
                namespace: request.namespace,
                name: request.metric_name,
                dimensions: pairs(request.dimensions),
            },
            statistic_name: request.statistic.or(request.extended_statistic),
            period_s: request.period,
            unit: request.unit,
        })
    }
}

plain_inputs!(NamedAlarms);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SetAlarmStateRequest {
    alarm_name: String,
    state_value: String,
    state_reason: String,
    state_reason_data: Option<String>,
}

impl Input for SetAlarmState {
    fn read(call: Call) -> Result<Self, Error> {
        let request: SetAlarmStateRequest = read(call.input)?;
        if let Some(data) = &request.state_reason_data
            && let Err(error) = serde_json::from_str::<Value>(data)
        {
            return Err(Error::new(
                ErrorCode::InvalidFormat,
                format!("The parameter StateReasonData is not valid JSON: {error}."),
            ));
        }
        Ok(Self {
            name: request.alarm_name,
            state: request.state_value,
            reason: request.state_reason,
            reason_data: request.state_reason_data,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAlarmHistoryRequest {
    alarm_name: Option<String>,
    alarm_contributor_id: Option<Value>,
    #[serde(default)]
    alarm_types: Vec<String>,
    history_item_type: Option<String>,
    start_date: Option<f64>,
    end_date: Option<f64>,
    max_records: Option<usize>,
    next_token: Option<String>,
    scan_by: Option<String>,
}

impl Input for DescribeAlarmHistory {
    fn read(call: Call) -> Result<Self, Error> {
        let request: DescribeAlarmHistoryRequest = read(call.input)?;
        if request.alarm_contributor_id.is_some() {
            return Err(invalid("Shoal's alarms have no contributors: leave AlarmContributorId out.".to_owned()));
        }
        Ok(Self {
            name: request.alarm_name,
            item_type: request.history_item_type,
            start_ms: request.start_date.map(timestamp::from_seconds),
            end_ms: request.end_date.map(timestamp::from_seconds),
            metric_alarms: has_metric_alarms(&request.alarm_types),
            oldest_first: request.scan_by.as_deref() == Some("TimestampAscending"),
            max_records: request.max_records.unwrap_or(100),
            next_token: request.next_token.filter(|token| !token.is_empty()),
        })
    }
}

/// Without types AWS answers with metric alarms.
fn has_metric_alarms(types: &[String]) -> bool {
    types.is_empty() || types.iter().any(|it| it == "MetricAlarm")
}

fn one_of(member: &str, given: &str, known: &[&str]) -> Result<(), Error> {
    if known.contains(&given) {
        return Ok(());
    }
    Err(invalid(format!(
        "The value {given} for parameter {member} is not supported: it is one of {}.",
        known.join(", ")
    )))
}

fn missing(what: &str) -> Error {
    Error::new(ErrorCode::MissingParameter, format!("{what} must be specified for a metric alarm."))
}

fn invalid(message: String) -> Error {
    Error::validation(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(changes: Value) -> Result<PutMetricAlarm, Error> {
        let mut input = json!({
            "AlarmName": "a", "MetricName": "m", "Namespace": "Mine", "Statistic": "Average", "Period": 60,
            "EvaluationPeriods": 3, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold",
            "Tags": [{"Key": "k", "Value": "v"}],
        });
        let Value::Object(changes) = changes else { panic!("an object") };
        for (name, value) in changes {
            input[name] = value;
        }
        let members = input.as_object_mut().expect("an object");
        members.retain(|_, value| !value.is_null());
        let operation = crate::operations().find(|it| it.name == "PutMetricAlarm").expect("it is served");
        Call { operation, input }.read()
    }

    #[test]
    fn an_alarm_is_stored_and_read_back() {
        let put = put(json!({"AlarmActions": ["arn:aws:sns:r:1:t"], "DatapointsToAlarm": 2})).unwrap();
        assert_eq!(MetricAlarm::from_stored(&put.alarm.to_stored()), Ok(put.alarm.clone()));
        assert_eq!(put.alarm.actions("ALARM"), ["arn:aws:sns:r:1:t"]);
        assert!(put.alarm.actions("OK").is_empty());
        assert!(put.raw.get("Tags").is_none() && put.actions_enabled);
        assert!(MetricAlarm::from_stored(b"{\"v\":2,\"alarm\":{}}").is_err());
    }

    /// Of the first release; what is added later has a default.
    #[test]
    fn the_stored_form_is_still_read() {
        let stored = br#"{"v":1,"alarm":{"name":"a","description":null,"metric":{"namespace":"N","name":"m","dimensions":[["d","v"]]},"unit":null,"statistic":{"Percentile":99.0},"statistic_name":"p99","period_s":60,"evaluation_periods":3,"datapoints_to_alarm":2,"threshold":1.5,"comparison":"GreaterThanThreshold","treat_missing_data":"ignore","low_sample_count":null,"ok_actions":[],"alarm_actions":["arn:aws:sns:r:1:t"],"insufficient_data_actions":[]}}"#;
        let alarm = MetricAlarm::from_stored(stored).unwrap();
        assert_eq!((alarm.statistic, alarm.threshold), (Statistic::Percentile(99.0), 1.5));
        assert_eq!(alarm.to_stored(), stored);
    }

    #[test]
    fn what_makes_no_alarm_is_refused_with_what_to_do() {
        for (change, hint) in [
            (json!({"Metrics": []}), "metric math"),
            (json!({"EvaluationCriteria": {}}), "PromQL"),
            (json!({"Namespace": null}), "Namespace"),
            (json!({"Statistic": null}), "ExtendedStatistic"),
            (json!({"ExtendedStatistic": "p99"}), "alternatives"),
            (json!({"Statistic": null, "ExtendedStatistic": "tm90"}), "percentiles"),
            (json!({"Period": 45}), "10, 20, 30"),
            (json!({"Period": 1}), "10, 20, 30"),
            (json!({"DatapointsToAlarm": 4}), "DatapointsToAlarm"),
            (json!({"Period": 60, "EvaluationPeriods": 1441}), "86400"),
            (json!({"Period": 86400, "EvaluationPeriods": 8}), "604800"),
            (json!({"ComparisonOperator": "GreaterThanUpperThreshold"}), "GreaterThanThreshold"),
            (json!({"TreatMissingData": "bad"}), "notBreaching"),
            (json!({"EvaluateLowSampleCountPercentile": "no"}), "evaluate, ignore"),
            (json!({"Threshold": null}), "Threshold"),
        ] {
            let message = put(change.clone()).expect_err(hint).message;
            assert!(message.contains(hint), "{change}: {message}");
        }
    }
}
