//! Runs side by side.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::output::table;

/// A column for each run: parameters that differ (`all`: all of them), then the last values of
/// metrics.
pub(super) fn text(runs: &[Value], all: bool) -> String {
    let name = |run: &Value| run["TrialComponentName"].as_str().unwrap_or_default().to_owned();
    let mut rows = vec![[String::new()].into_iter().chain(runs.iter().map(name)).collect::<Vec<_>>()];
    let status = |run: &Value| run["Status"]["PrimaryStatus"].as_str().unwrap_or("-").to_owned();
    rows.push(["status".to_owned()].into_iter().chain(runs.iter().map(status)).collect());
    let keys: BTreeSet<&String> =
        runs.iter().filter_map(|run| run["Parameters"].as_object()).flat_map(|it| it.keys()).collect();
    let mut same = 0;
    for key in keys {
        let values: Vec<String> = runs.iter().map(|run| parameter(&run["Parameters"][key])).collect();
        if !all && values.windows(2).all(|pair| pair[0] == pair[1]) {
            same += 1;
            continue;
        }
        rows.push([key.clone()].into_iter().chain(values).collect());
    }
    let metrics: BTreeSet<&str> = runs.iter().flat_map(summaries).filter_map(|it| it["MetricName"].as_str()).collect();
    for metric in metrics {
        let last = |run: &Value| {
            let found = summaries(run).find(|it| it["MetricName"] == metric);
            found.map_or_else(|| "-".to_owned(), |it| number(&it["Last"]))
        };
        rows.push([metric.to_owned()].into_iter().chain(runs.iter().map(last)).collect());
    }
    let mut text = table(&rows);
    if same > 0 {
        let noun = if same == 1 { "parameter is" } else { "parameters are" };
        text.push_str(&format!("{same} {noun} the same in all of them; --all shows those, too\n"));
    }
    text
}

fn summaries(run: &Value) -> impl Iterator<Item = &Value> {
    run["Metrics"].as_array().into_iter().flatten()
}

fn parameter(value: &Value) -> String {
    match (&value["NumberValue"], &value["StringValue"]) {
        (Value::Null, Value::String(text)) => text.clone(),
        (Value::Null, _) => "-".to_owned(),
        (found, _) => number(found),
    }
}

/// With six digits at most, as far as they matter.
pub(super) fn number(value: &Value) -> String {
    let Some(value) = value.as_f64() else { return "-".to_owned() };
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = 5 - value.abs().log10().floor().clamp(-300.0, 5.0) as i32;
    let digits = usize::try_from(digits.max(0)).unwrap_or(0);
    if digits > 12 { format!("{value:.5e}") } else { format!("{value:.digits$}").trim_end_matches('0').to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_shown_with_the_last_values() {
        let run = |name: &str, rate: f64, loss: Option<f64>| {
            let metrics: Vec<_> = loss.map(|loss| json!({"MetricName": "loss", "Last": loss})).into_iter().collect();
            json!({"TrialComponentName": name, "Status": {"PrimaryStatus": "Completed"}, "Metrics": metrics,
                "Parameters": {"rate": {"NumberValue": rate}, "kind": {"StringValue": "tree"}}})
        };
        let runs = [run("a", 0.1, Some(0.25)), run("b", 3.0, None)];
        let shown = text(&runs, false);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[..2], [vec!["a", "b"], vec!["status", "Completed", "Completed"]]);
        assert_eq!(lines[2..4], [vec!["rate", "0.1", "3"], vec!["loss", "0.25", "-"]]);
        assert_eq!(lines[4][..3], ["1", "parameter", "is"]);
        assert!(text(&runs, true).contains("kind"));
    }

    #[test]
    fn numbers_are_short() {
        let short = |value: f64| number(&json!(value));
        assert_eq!((&*short(0.123_456_789), &*short(12.0), &*short(-1234.5678)), ("0.123457", "12", "-1234.57"));
        assert_eq!((&*short(1e-9), &*number(&Value::Null)), ("1.00000e-9", "-"));
    }
}
