//! An alarm's row: the request as it was received, the typed alarm, and its state.

use serde::{Deserialize, Serialize};
use shoal_runtime::alarm::{AlarmRule, AlarmState, Comparison, MissingData};
use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{AlarmDescription, AlarmHistoryItem, Error, MetricAlarm, Statistic};

use crate::internal::internal;

/// Alarms. The first key is [`key_of`] their metric.
pub(crate) const ALARM: ResourceKind = ResourceKind::new("alarm");
/// What happened to alarms; the parent is the alarm's name, which may be gone.
pub(crate) const HISTORY: ResourceKind = ResourceKind::new("alarm-history");

/// An alarm as it is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alarm {
    pub(crate) spec: MetricAlarm,
    pub(crate) rule: AlarmRule,
    pub(crate) view: View,
}

/// The state of an alarm, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) state: AlarmState,
    pub(crate) reason: String,
    /// JSON.
    pub(crate) reason_data: Option<String>,
    /// Last change of the state or its reason; like all times in milliseconds since the epoch.
    pub(crate) updated_ms: u64,
    /// Last change of the state.
    pub(crate) transitioned_ms: u64,
    /// Last PutMetricAlarm.
    pub(crate) configured_ms: u64,
    pub(crate) actions_enabled: bool,
    /// Number of the newest item of its history.
    pub(crate) items: u64,
}

impl Alarm {
    /// Of a row.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn read(row: &ResourceRow) -> Result<Self, String> {
        let spec = MetricAlarm::from_stored(&row.spec)?;
        let view = serde_json::from_slice(&row.view).map_err(|error| error.to_string())?;
        let rule = rule(&spec).ok_or("its comparison or its treatment of missing data is not known")?;
        Ok(Self { spec, rule, view })
    }

    /// [`key_of`] its metric.
    pub(crate) fn key(&self) -> String {
        key_of(&self.spec.metric.namespace, &self.spec.metric.name)
    }
}

/// What alarms on a metric are found by.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    format!("{namespace}\n{name}")
}

pub(crate) fn rule(spec: &MetricAlarm) -> Option<AlarmRule> {
    let word = |text: &str| serde_json::Value::String(text.to_owned());
    let missing = spec.treat_missing_data.as_deref().unwrap_or("missing");
    let ignores_few = spec.low_sample_count.as_deref() == Some("ignore");
    Some(AlarmRule {
        period_s: spec.period_s,
        evaluation_periods: spec.evaluation_periods,
        datapoints_to_alarm: spec.datapoints_to_alarm.unwrap_or(spec.evaluation_periods),
        threshold: spec.threshold,
        comparison: serde_json::from_value::<Comparison>(word(&spec.comparison)).ok()?,
        missing: serde_json::from_value::<MissingData>(word(missing)).ok()?,
        ignore_few_samples_of: match spec.statistic {
            Statistic::Percentile(percentile) if ignores_few => Some(percentile),
            _ => None,
        },
    })
}

/// As requests and answers name it.
pub(crate) fn state_name(state: AlarmState) -> &'static str {
    match state {
        AlarmState::Ok => "OK",
        AlarmState::Alarm => "ALARM",
        AlarmState::InsufficientData => "INSUFFICIENT_DATA",
    }
}

/// The row of an alarm, which is new if there was none.
pub(crate) fn with_view(row: &ResourceRow, view: &View) -> ResourceRow {
    ResourceRow {
        status: state_name(view.state).to_owned(),
        modified_ms: view.updated_ms.max(view.configured_ms),
        view: serde_json::to_vec(view).expect("a view has string keys only"),
        ..row.clone()
    }
}

/// As DescribeAlarms shows it.
///
/// # Errors
/// The row is damaged.
pub(crate) fn description(row: &ResourceRow) -> Result<AlarmDescription, Error> {
    let view: View = serde_json::from_slice(&row.view).map_err(|error| internal(&error))?;
    Ok(AlarmDescription {
        raw: serde_json::from_slice(&row.request).map_err(|error| internal(&error))?,
        arn: row.arn.clone(),
        configured_ms: view.configured_ms,
        actions_enabled: view.actions_enabled,
        state: state_name(view.state).to_owned(),
        reason: view.reason,
        reason_data: view.reason_data,
        updated_ms: view.updated_ms,
        transitioned_ms: view.transitioned_ms,
    })
}

/// The row of something that happened to an alarm; `number` counts these.
pub(crate) fn history_row(alarm_uid: &str, number: u64, item: &AlarmHistoryItem) -> ResourceRow {
    ResourceRow {
        created_ms: item.at_ms,
        modified_ms: item.at_ms,
        parent: Some(item.alarm.clone()),
        status: item.item_type.clone(),
        ended: true,
        request: serde_json::to_vec(item).expect("an item has string keys only"),
        ..ResourceRow::new(HISTORY, &format!("{alarm_uid}-{number:012}"))
    }
}

/// # Errors
/// The row is damaged.
pub(crate) fn history_item(row: &ResourceRow) -> Result<AlarmHistoryItem, Error> {
    serde_json::from_slice(&row.request).map_err(|error| internal(&error))
}
