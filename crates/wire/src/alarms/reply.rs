//! Alarms as JSON.

use serde_json::{Value, json};

use super::{AlarmDescription, AlarmHistoryItem};
use crate::{Reply, timestamp};

impl AlarmDescription {
    fn entry(&self) -> Value {
        let mut entry = self.raw.clone();
        entry["AlarmArn"] = json!(self.arn);
        entry["AlarmConfigurationUpdatedTimestamp"] = json!(timestamp::seconds(self.configured_ms));
        entry["ActionsEnabled"] = json!(self.actions_enabled);
        for list in ["OKActions", "AlarmActions", "InsufficientDataActions", "Dimensions"] {
            if entry.get(list).is_none() {
                entry[list] = json!([]);
            }
        }
        entry["StateValue"] = json!(self.state);
        entry["StateReason"] = json!(self.reason);
        if let Some(data) = &self.reason_data {
            entry["StateReasonData"] = json!(data);
        }
        entry["StateUpdatedTimestamp"] = json!(timestamp::seconds(self.updated_ms));
        entry["StateTransitionedTimestamp"] = json!(timestamp::seconds(self.transitioned_ms));
        entry
    }
}

impl Reply {
    /// `DescribeAlarms`: one page.
    pub fn describe_alarms(alarms: &[AlarmDescription], next_token: Option<&str>) -> Self {
        Self::page("MetricAlarms", alarms.iter().map(AlarmDescription::entry), "NextToken", next_token)
            .with("CompositeAlarms", json!([]))
    }

    /// `DescribeAlarmsForMetric`.
    pub fn describe_alarms_for_metric(alarms: &[AlarmDescription]) -> Self {
        Self::page("MetricAlarms", alarms.iter().map(AlarmDescription::entry), "NextToken", None)
    }

    /// `DescribeAlarmHistory`: one page.
    pub fn describe_alarm_history(items: &[AlarmHistoryItem], next_token: Option<&str>) -> Self {
        let entry = |item: &AlarmHistoryItem| {
            json!({
                "AlarmName": item.alarm,
                "AlarmType": "MetricAlarm",
                "Timestamp": timestamp::seconds(item.at_ms),
                "HistoryItemType": item.item_type,
                "HistorySummary": item.summary,
                "HistoryData": item.data,
            })
        };
        Self::page("AlarmHistoryItems", items.iter().map(entry), "NextToken", next_token)
    }
}
