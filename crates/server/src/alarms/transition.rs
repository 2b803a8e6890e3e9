//! What a change of an alarm writes: its row, its history, and the messages to the topics that it
//! notifies. Pure: rows in, rows out.

use serde_json::{Value, json};
use shoal_runtime::alarm::AlarmState;
use shoal_store::{ResourceRow, RowChange};
use shoal_wire::{AlarmHistoryItem, Error, MetricAlarm, PublishedMessage};

use super::{
    evaluation::time,
    row::{Alarm, View, history_row, state_name, with_view},
};
use crate::{
    identity::Identity,
    notifications::{Message, TopicArn, message_id},
};

/// A state that an alarm comes into.
pub(crate) struct Change {
    pub(crate) state: AlarmState,
    pub(crate) reason: String,
    /// JSON.
    pub(crate) data: Option<String>,
}

/// Rows of an alarm's new state. Only a change of the state is in its history and notifies.
///
/// # Errors
/// Those of `has_topic`, which is asked for topics by name.
pub(crate) fn change(
    row: &ResourceRow,
    alarm: &Alarm,
    change: Change,
    identity: &Identity,
    now_ms: u64,
    has_topic: impl Fn(&str) -> Result<bool, Error>,
) -> Result<Vec<RowChange>, Error> {
    let (before, is_same) = (&alarm.view, change.state == alarm.view.state);
    let mut view = View {
        state: change.state,
        reason: change.reason,
        reason_data: change.data,
        updated_ms: now_ms,
        transitioned_ms: if is_same { before.transitioned_ms } else { now_ms },
        ..before.clone()
    };
    let mut changes = Vec::new();
    let item = |item_type: &str, summary: String, data: Value| AlarmHistoryItem {
        alarm: row.name.clone(),
        at_ms: now_ms,
        item_type: item_type.to_owned(),
        summary,
        data: data.to_string(),
    };
    let mut add = |view: &mut View, item: &AlarmHistoryItem| {
        view.items += 1;
        changes.push(RowChange::Put(Box::new(history_row(&row.uid, view.items, item))));
    };
    let (old, new) = (state_name(before.state), state_name(view.state));
    if !is_same {
        let data = json!({"version": "1.0", "oldState": state_data(before), "newState": state_data(&view)});
        add(&mut view, &item("StateUpdate", format!("Alarm updated from {old} to {new}"), data));
    }
    let mut messages = Vec::new();
    let actions = if is_same || !view.actions_enabled { &[][..] } else { alarm.spec.actions(new) };
    for arn in actions {
        let topic = TopicArn::parse(arn, identity).ok();
        let is_there = topic.as_ref().map_or(Ok(false), |topic| has_topic(&topic.name))?;
        let data = json!({
            "actionState": if is_there { "Succeeded" } else { "Failed" }, "notificationResource": arn,
            "stateUpdateTimestamp": now_ms, "error": if is_there { Value::Null } else { json!("there is no such topic") },
        });
        let done = if is_there { "Successfully executed" } else { "Failed to execute" };
        add(&mut view, &item("Action", format!("{done} action {arn}"), data));
        if is_there {
            messages.push(Message {
                id: message_id(&[&row.uid, &view.items.to_string()]),
                topic_arn: arn.clone(),
                message: notification(&alarm.spec, row, before, &view, identity),
                subscribe: Vec::new(),
            });
        }
    }
    changes.push(RowChange::Put(Box::new(with_view(row, &view))));
    changes.extend(messages.into_iter().map(|message| RowChange::Put(Box::new(message.into_row(now_ms)))));
    Ok(changes)
}

/// Rows of an alarm that is created or updated; an update keeps its state.
pub(crate) fn configured(row: &ResourceRow, mut view: View, is_new: bool, now_ms: u64) -> Vec<RowChange> {
    view.items += 1;
    let verb = if is_new { "created" } else { "updated" };
    let request: Value = serde_json::from_slice(&row.request).unwrap_or_default();
    let item = AlarmHistoryItem {
        alarm: row.name.clone(),
        at_ms: now_ms,
        item_type: "ConfigurationUpdate".to_owned(),
        summary: format!("Alarm \"{}\" {verb}", row.name),
        data: json!({"version": "1.0", "type": if is_new { "Create" } else { "Update" }, (format!("{verb}Alarm")): request})
            .to_string(),
    };
    let history = history_row(&row.uid, view.items, &item);
    vec![RowChange::Put(Box::new(with_view(row, &view))), RowChange::Put(Box::new(history))]
}

fn state_data(view: &View) -> Value {
    let data = view.reason_data.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut state = json!({"stateValue": state_name(view.state), "stateReason": view.reason});
    if let Some(data) = data {
        state["stateReasonData"] = data;
    }
    state
}

/// What CloudWatch publishes to a topic.
fn notification(
    alarm: &MetricAlarm,
    row: &ResourceRow,
    before: &View,
    view: &View,
    identity: &Identity,
) -> PublishedMessage {
    let (old, new) = (state_name(before.state), state_name(view.state));
    let dimensions: Vec<Value> =
        alarm.metric.dimensions.iter().map(|(name, value)| json!({"value": value, "name": name})).collect();
    let is_extended = alarm.statistic_name.starts_with('p');
    let mut trigger = json!({
        "MetricName": alarm.metric.name,
        "Namespace": alarm.metric.namespace,
        "StatisticType": if is_extended { "ExtendedStatistic" } else { "Statistic" },
        "Unit": alarm.unit,
        "Dimensions": dimensions,
        "Period": alarm.period_s,
        "EvaluationPeriods": alarm.evaluation_periods,
        "ComparisonOperator": alarm.comparison,
        "Threshold": alarm.threshold,
        "TreatMissingData": alarm.treat_missing_data.as_deref().unwrap_or("missing"),
        "EvaluateLowSampleCountPercentile": alarm.low_sample_count.as_deref().unwrap_or_default(),
    });
    match is_extended {
        true => trigger["ExtendedStatistic"] = json!(alarm.statistic_name),
        false => trigger["Statistic"] = json!(in_capitals(&alarm.statistic_name)),
    }
    if let Some(needed) = alarm.datapoints_to_alarm {
        trigger["DatapointsToAlarm"] = json!(needed);
    }
    let text = json!({
        "AlarmName": alarm.name,
        "AlarmDescription": alarm.description,
        "AWSAccountId": identity.account,
        "AlarmConfigurationUpdatedTimestamp": time(view.configured_ms),
        "NewStateValue": new,
        "NewStateReason": view.reason,
        "StateChangeTime": time(view.transitioned_ms),
        "Region": identity.region,
        "AlarmArn": row.arn,
        "OldStateValue": old,
        "OKActions": alarm.ok_actions,
        "AlarmActions": alarm.alarm_actions,
        "InsufficientDataActions": alarm.insufficient_data_actions,
        "Trigger": trigger,
    });
    let subject = format!("{new}: \"{}\" in {}", alarm.name, identity.region);
    let plain = subject.chars().map(|letter| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' });
    PublishedMessage { subject: Some(plain.take(100).collect()), text: text.to_string(), ..PublishedMessage::default() }
}

/// `SAMPLE_COUNT` of `SampleCount`.
fn in_capitals(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}
