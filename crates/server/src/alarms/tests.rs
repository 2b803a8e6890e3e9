use serde_json::Value;
use shoal_runtime::alarm::AlarmState;
use shoal_store::{OwnPoint, ResourceKind};
use shoal_wire::{Metric, MetricAlarm, Statistic};

use super::*;
use crate::notifications::rows::MESSAGE;

const TOPIC: &str = "arn:aws:sns:us-east-1:000000000000:t";

fn identity() -> Identity {
    Identity { region: "us-east-1".to_owned(), account: "000000000000".to_owned() }
}

fn spec() -> MetricAlarm {
    MetricAlarm {
        name: "hot".to_owned(),
        description: None,
        metric: Metric { namespace: "Mine".to_owned(), name: "m".to_owned(), dimensions: Vec::new() },
        unit: None,
        statistic: Statistic::Average,
        statistic_name: "Average".to_owned(),
        period_s: 60,
        evaluation_periods: 3,
        datapoints_to_alarm: Some(2),
        threshold: 10.0,
        comparison: "GreaterThanThreshold".to_owned(),
        treat_missing_data: None,
        low_sample_count: None,
        ok_actions: Vec::new(),
        alarm_actions: vec![TOPIC.to_owned()],
        insufficient_data_actions: Vec::new(),
    }
}

fn row(state: AlarmState, actions_enabled: bool) -> ResourceRow {
    let view = View {
        state,
        reason: "before".to_owned(),
        reason_data: None,
        updated_ms: 1,
        transitioned_ms: 1,
        configured_ms: 1,
        actions_enabled,
        items: 4,
    };
    let row = ResourceRow { uid: "u".to_owned(), spec: spec().to_stored(), ..ResourceRow::new(ALARM, "hot") };
    row::with_view(&row, &view)
}

fn put(changes: &[RowChange], kind: ResourceKind) -> Vec<ResourceRow> {
    let rows = changes.iter().filter_map(|it| if let RowChange::Put(row) = it { Some((**row).clone()) } else { None });
    rows.filter(|row| row.kind == kind).collect()
}

fn judged(row: &ResourceRow) -> Judged {
    Judged {
        alarm: Alarm::read(row).unwrap(),
        state: AlarmState::Alarm,
        reason: "too hot".to_owned(),
        data: "{\"version\":\"1.0\"}".to_owned(),
    }
}

#[test]
fn a_transition_writes_state_history_and_message_together() {
    let before = row(AlarmState::Ok, true);
    let changes = changes(&before, judged(&before), &identity(), 9, |topic| Ok(topic == "t")).unwrap();
    let after = Alarm::read(&put(&changes, ALARM)[0]).unwrap().view;
    assert_eq!((after.state, after.transitioned_ms, after.items), (AlarmState::Alarm, 9, 6));
    let items: Vec<_> = put(&changes, HISTORY).iter().map(|row| history_item(row).unwrap().summary).collect();
    assert_eq!(items, ["Alarm updated from OK to ALARM", &format!("Successfully executed action {TOPIC}")]);
    let message = put(&changes, MESSAGE);
    let text = String::from_utf8(message[0].spec.clone()).unwrap();
    assert!(text.contains("too hot") && text.contains("ALARM: \\\"hot\\\" in us-east-1"), "{text}");
    let again = super::changes(&put(&changes, ALARM)[0], judged(&before), &identity(), 9, |_| Ok(true)).unwrap();
    assert_eq!(again, Vec::new(), "it is decided once");
}

#[test]
fn only_changes_of_the_state_notify_and_only_if_the_alarm_does() {
    let messages = |before: &ResourceRow, state, has_topic| {
        let alarm = Alarm::read(before).unwrap();
        let new = Change { state, reason: "r".to_owned(), data: None };
        let changes = change(before, &alarm, new, &identity(), 9, |_| Ok(has_topic)).unwrap();
        (put(&changes, MESSAGE).len(), put(&changes, HISTORY).len())
    };
    assert_eq!(messages(&row(AlarmState::Ok, true), AlarmState::Alarm, true), (1, 2));
    assert_eq!(messages(&row(AlarmState::Ok, true), AlarmState::Alarm, false), (0, 2), "no such topic");
    assert_eq!(messages(&row(AlarmState::Ok, false), AlarmState::Alarm, true), (0, 1));
    assert_eq!(messages(&row(AlarmState::Alarm, true), AlarmState::Ok, true), (0, 1), "it has no actions for OK");
    assert_eq!(messages(&row(AlarmState::Alarm, true), AlarmState::Alarm, true), (0, 0));
}

#[test]
fn data_are_judged_and_put_into_words() {
    let dir = tempfile::tempdir().unwrap();
    let telemetry = Telemetry::open(&dir.path().join("telemetry.db")).unwrap();
    let metric = OwnMetric { namespace: "Mine".to_owned(), name: "m".to_owned(), dimensions: Vec::new() };
    let point = |at_ms, value: f64| OwnPoint { at_ms, unit: "Count".to_owned(), set: value.into(), is_thinned: false };
    let now_ms = 1_795_245_868_250;
    let minute = now_ms / 60_000 * 60_000;
    let points = vec![point(minute - 120_000, 11.0), point(minute - 60_000, 12.0), point(minute, 99.0)];
    telemetry.put_own(&[(metric, points)]).unwrap();
    let judge = |state| {
        evaluation::judge(&telemetry, crate::api::read_series, Alarm::read(&row(state, true)).unwrap(), now_ms).unwrap()
    };
    let judged = judge(AlarmState::Ok).expect("two of three");
    assert_eq!(judged.state, AlarmState::Alarm);
    assert_eq!(
        judged.reason,
        "Threshold Crossed: 2 out of the last 3 datapoints [12.0 (21/11/26 07:23:00), 11.0 (21/11/26 07:22:00)] was \
         greater than the threshold (10.0) (minimum 2 datapoints for OK -> ALARM transition). 1 missing datapoint was \
         treated as missing."
    );
    let data: Value = serde_json::from_str(&judged.data).unwrap();
    assert_eq!(
        (data["recentDatapoints"].to_string(), &data["unit"]),
        ("[11.0,12.0]".to_owned(), &Value::from("Count"))
    );
    assert!(judge(AlarmState::Alarm).is_none());
    let nothing = evaluation::judge(
        &telemetry,
        crate::api::read_series,
        Alarm::read(&row(AlarmState::Ok, true)).unwrap(),
        now_ms + 3_600_000,
    );
    let nothing = nothing.unwrap().expect("no data");
    assert_eq!(nothing.state, AlarmState::InsufficientData);
    assert_eq!(nothing.reason, "Insufficient Data: 3 datapoints were unknown.");
}
