//! What an alarm is judged by: the periods of its window, read and put into words as CloudWatch
//! does.

use serde_json::json;
use shoal_runtime::alarm::{AlarmState, Datapoint, Evaluation};
use shoal_store::Telemetry;
use shoal_wire::{Error, Span, Statistic, timestamp};

use super::row::{Alarm, state_name};
use crate::statistics::{ReadSeries, of_sets};

/// A change of state that the data call for.
pub(super) struct Judged {
    pub(super) alarm: Alarm,
    pub(super) state: AlarmState,
    pub(super) reason: String,
    /// JSON.
    pub(super) data: String,
}

/// Judges an alarm; `None` if its state stays as it is.
pub(super) fn judge(
    telemetry: &Telemetry,
    read_series: ReadSeries,
    alarm: Alarm,
    now_ms: u64,
) -> Result<Option<Judged>, Error> {
    let (window, period_ms) = (alarm.rule.window(now_ms), u64::from(alarm.rule.period_s) * 1000);
    let span = Span { start_ms: window.start_ms, end_ms: window.end_ms, period_ms };
    let series = read_series(telemetry, &alarm.spec.metric, alarm.spec.unit.as_deref(), span)?;
    let mut periods = vec![None; usize::try_from((window.end_ms - window.start_ms) / period_ms).unwrap_or(0)];
    for it in &series.periods {
        let place = usize::try_from((it.start_ms - window.start_ms) / period_ms).unwrap_or(usize::MAX);
        let samples = of_sets(Statistic::SampleCount, &it.sets).unwrap_or(0.0);
        let datapoint = of_sets(alarm.spec.statistic, &it.sets).map(|value| Datapoint { value, samples });
        // CloudWatch does not define which of several units counts: here the first.
        if let Some(period @ None) = periods.get_mut(place) {
            *period = datapoint;
        }
    }
    let evaluation = alarm.rule.evaluate(&periods, alarm.view.state);
    if evaluation.state == alarm.view.state {
        return Ok(None);
    }
    let starts = |place: usize| window.start_ms + place as u64 * period_ms;
    let judged: Vec<(u64, Datapoint)> =
        evaluation.judged.iter().filter_map(|place| Some((starts(*place), periods[*place]?))).collect();
    Ok(Some(Judged {
        reason: reason(&alarm, &evaluation, &judged),
        data: data(&alarm, &judged, span, now_ms, &series.unit),
        state: evaluation.state,
        alarm,
    }))
}

/// As CloudWatch puts it.
fn reason(alarm: &Alarm, evaluation: &Evaluation, judged: &[(u64, Datapoint)]) -> String {
    let (rule, filled) = (&alarm.rule, evaluation.filled);
    let plural = |count: usize| if count == 1 { "datapoint was" } else { "datapoints were" };
    if evaluation.state == AlarmState::InsufficientData {
        return format!("Insufficient Data: {filled} {} unknown.", plural(filled));
    }
    if judged.is_empty() {
        let treated = if evaluation.state == AlarmState::Alarm { "[Breaching]" } else { "[NonBreaching]" };
        let (periods, verb) = (if filled == 1 { "period" } else { "periods" }, plural(filled));
        return format!(
            "Threshold Crossed: no datapoints were received for {filled} {periods} and {filled} missing {verb} treated as {treated}."
        );
    }
    let is_alarm = evaluation.state == AlarmState::Alarm;
    let (count, direction) = match is_alarm {
        true => (evaluation.breaching, "OK -> ALARM"),
        false => (judged.len() - evaluation.breaching, "ALARM -> OK"),
    };
    let comparison = match (alarm.spec.comparison.as_str(), is_alarm) {
        ("GreaterThanOrEqualToThreshold", true) => "was greater than or equal to",
        ("GreaterThanOrEqualToThreshold", false) => "was not greater than or equal to",
        ("GreaterThanThreshold", true) => "was greater than",
        ("GreaterThanThreshold", false) => "was not greater than",
        ("LessThanThreshold", true) => "was less than",
        ("LessThanThreshold", false) => "was not less than",
        (_, true) => "was less than or equal to",
        (_, false) => "was not less than or equal to",
    };
    let shown = judged.iter().filter(|(_, it)| rule.comparison.breaches(it.value, rule.threshold) == is_alarm);
    let shown: Vec<String> = shown.map(|(at, it)| format!("{} ({})", number(it.value), day_first(*at))).collect();
    let needed =
        if is_alarm { rule.datapoints_to_alarm } else { rule.evaluation_periods - rule.datapoints_to_alarm + 1 };
    let missing = match filled {
        0 => String::new(),
        _ => format!(
            " {filled} missing {} treated as {}.",
            plural(filled),
            alarm.spec.treat_missing_data.as_deref().unwrap_or("missing")
        ),
    };
    format!(
        "Threshold Crossed: {count} out of the last {} datapoints [{}] {comparison} the threshold ({}) (minimum {needed} \
         datapoint{} for {direction} transition).{missing}",
        rule.evaluation_periods,
        shown.join(", "),
        number(rule.threshold),
        if needed == 1 { "" } else { "s" },
    )
}

/// With a fraction, as CloudWatch writes numbers: `10.0`.
fn number(value: f64) -> serde_json::Value {
    json!(value)
}

/// `27/11/26 03:19:00`.
fn day_first(ms: u64) -> String {
    let text = timestamp::iso8601(ms);
    format!("{}/{}/{} {}", &text[8..10], &text[5..7], &text[2..4], &text[11..19])
}

/// `2026-11-27T03:19:00.000+0000`, as CloudWatch has times in texts.
pub(super) fn time(ms: u64) -> String {
    timestamp::iso8601_ms(ms).replace('Z', "+0000")
}

fn data(alarm: &Alarm, judged: &[(u64, Datapoint)], span: Span, now_ms: u64, unit: &str) -> String {
    let rows =
        judged.iter().map(|(at, it)| json!({"timestamp": time(*at), "sampleCount": it.samples, "value": it.value}));
    let recent: Vec<f64> = judged.iter().rev().map(|(_, it)| it.value).collect();
    json!({
        "version": "1.0",
        "queryDate": time(now_ms),
        "startDate": time(span.start_ms),
        "unit": unit,
        "statistic": alarm.spec.statistic_name,
        "period": alarm.rule.period_s,
        "recentDatapoints": recent,
        "threshold": alarm.rule.threshold,
        "evaluatedDatapoints": rows.collect::<Vec<_>>(),
        "previousState": state_name(alarm.view.state),
    })
    .to_string()
}
