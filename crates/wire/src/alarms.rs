//! CloudWatch alarms: `PutMetricAlarm` and what reads and changes alarms.

mod reply;
mod request;

use serde::{Deserialize, Serialize};

use crate::{Metric, Statistic};

/// Version of the stored form of an alarm. A member that is added has a default and keeps the
/// version.
const VERSION: u32 = 1;

/// A `PutMetricAlarm`.
#[derive(Debug, Clone, PartialEq)]
pub struct PutMetricAlarm {
    /// The alarm.
    pub alarm: MetricAlarm,
    /// Whether its actions are done at first.
    pub actions_enabled: bool,
    /// The request without tags, as it was received.
    pub raw: serde_json::Value,
}

/// An alarm on one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricAlarm {
    /// Unique among alarms.
    pub name: String,
    /// The user's.
    pub description: Option<String>,
    /// What it watches.
    pub metric: Metric,
    /// Of which unit only.
    pub unit: Option<String>,
    /// What of each period.
    pub statistic: Statistic,
    /// How the request names the statistic.
    pub statistic_name: String,
    /// Seconds of a period.
    pub period_s: u32,
    /// How many periods are judged together.
    pub evaluation_periods: u32,
    /// How many of them must breach; `None`: all.
    pub datapoints_to_alarm: Option<u32>,
    /// What values are compared with.
    pub threshold: f64,
    /// `GreaterThanThreshold` and the like.
    pub comparison: String,
    /// `missing`, `ignore`, `breaching` or `notBreaching`; `None` is `missing`.
    pub treat_missing_data: Option<String>,
    /// `evaluate` or `ignore`, of percentiles.
    pub low_sample_count: Option<String>,
    /// Topics' ARNs: what is notified when it becomes OK.
    pub ok_actions: Vec<String>,
    /// When it becomes an alarm.
    pub alarm_actions: Vec<String>,
    /// When there are too few data to judge.
    pub insufficient_data_actions: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    alarm: T,
}

impl MetricAlarm {
    /// The form that is stored.
    #[must_use]
    pub fn to_stored(&self) -> Vec<u8> {
        serde_json::to_vec(&Versioned { v: VERSION, alarm: self }).expect("it has no maps")
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn from_stored(stored: &[u8]) -> Result<Self, String> {
        let Versioned { v, alarm } = serde_json::from_slice(stored).map_err(|error| error.to_string())?;
        if v == VERSION { Ok(alarm) } else { Err(format!("version {v} of a stored alarm is not known")) }
    }

    /// Topics' ARNs: what is notified when it comes into this state.
    #[must_use]
    pub fn actions(&self, state: &str) -> &[String] {
        match state {
            "OK" => &self.ok_actions,
            "ALARM" => &self.alarm_actions,
            _ => &self.insufficient_data_actions,
        }
    }
}

/// An alarm as answers show it.
#[derive(Debug, Clone, PartialEq)]
pub struct AlarmDescription {
    /// The request that made it, as it was received.
    pub raw: serde_json::Value,
    /// Amazon resource name.
    pub arn: String,
    /// When it was put last, in milliseconds since the epoch.
    pub configured_ms: u64,
    /// Whether its actions are done.
    pub actions_enabled: bool,
    /// `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// Why, as JSON.
    pub reason_data: Option<String>,
    /// Last change of the state or of its reason.
    pub updated_ms: u64,
    /// Last change of the state.
    pub transitioned_ms: u64,
}

/// A `DescribeAlarms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescribeAlarms {
    /// Only these; empty: all.
    pub names: Vec<String>,
    /// Only those whose names begin so.
    pub prefix: Option<String>,
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those with an action that begins so.
    pub action_prefix: Option<String>,
    /// Whether metric alarms are asked for at all.
    pub metric_alarms: bool,
    /// 1 to 100.
    pub max_records: usize,
    /// From the page before.
    #[serde(skip)]
    pub next_token: Option<String>,
}

/// A `DescribeAlarmsForMetric`.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribeAlarmsForMetric {
    /// Which they watch.
    pub metric: Metric,
    /// Only of this statistic, as requests name it.
    pub statistic_name: Option<String>,
    /// Only of this period.
    pub period_s: Option<u32>,
    /// Only of this unit.
    pub unit: Option<String>,
}

/// A `DeleteAlarms`, `EnableAlarmActions` or `DisableAlarmActions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedAlarms {
    /// Names.
    pub alarm_names: Vec<String>,
}

/// A `SetAlarmState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAlarmState {
    /// Name.
    pub name: String,
    /// `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// The user's.
    pub reason: String,
    /// A JSON text of the user's.
    pub reason_data: Option<String>,
}

/// A `DescribeAlarmHistory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DescribeAlarmHistory {
    /// Only of this alarm.
    pub name: Option<String>,
    /// `ConfigurationUpdate`, `StateUpdate` or `Action`.
    pub item_type: Option<String>,
    /// From this time on, in milliseconds since the epoch.
    pub start_ms: Option<u64>,
    /// Up to this time.
    pub end_ms: Option<u64>,
    /// Whether metric alarms are asked for at all.
    pub metric_alarms: bool,
    /// Oldest items first.
    pub oldest_first: bool,
    /// 1 to 100.
    pub max_records: usize,
    /// From the page before.
    #[serde(skip)]
    pub next_token: Option<String>,
}

/// Something that happened to an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmHistoryItem {
    /// Name.
    pub alarm: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// `ConfigurationUpdate`, `StateUpdate` or `Action`.
    pub item_type: String,
    /// For people.
    pub summary: String,
    /// JSON.
    pub data: String,
}
