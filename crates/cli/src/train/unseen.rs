//! Metrics that were asked for and never appeared: told at a job's end, with the lines that came
//! near.

use serde_json::Value;
use shoal_server::near_misses;

use crate::client::{Client, ClientError};

/// Lines at the end of a log that are looked through.
const LINES: usize = 2000;

/// Name and expression of the request's metrics that have no value in a description.
pub(super) fn unseen<'a>(request: &'a Value, description: &Value) -> Vec<(&'a str, &'a str)> {
    let definitions = request["AlgorithmSpecification"]["MetricDefinitions"].as_array().into_iter().flatten();
    let has_a_value = |name: &str| {
        let mut found = description["FinalMetricDataList"].as_array().into_iter().flatten();
        found.any(|metric| metric["MetricName"] == name)
    };
    definitions
        .filter_map(|definition| Some((definition["Name"].as_str()?, definition["Regex"].as_str()?)))
        .filter(|(name, _)| !has_a_value(name))
        .collect()
}

/// What is said of them; `None` if all have values. A failed job has another trouble.
///
/// # Errors
/// The log cannot be read.
pub(super) fn note(client: &Client, request: &Value, description: &Value) -> Result<Option<String>, ClientError> {
    let unseen = unseen(request, description);
    if unseen.is_empty() || description["TrainingJobStatus"] == "Failed" {
        return Ok(None);
    }
    let lines = client.last_lines(description["TrainingJobName"].as_str().unwrap_or_default(), LINES)?;
    Ok(Some(Vec::from_iter(unseen.into_iter().map(|(name, regex)| told(name, regex, &lines))).join("\n")))
}

fn told(name: &str, regex: &str, lines: &[String]) -> String {
    let near = near_misses(lines.iter().map(String::as_str), name, Some(regex));
    let near = Vec::from_iter(near.iter().map(|line| format!("'{line}'")));
    let came_near = match near.as_slice() {
        [] => "no line of the output looks like a metric".to_owned(),
        near => format!("lines that came near: {}", near.join(", ")),
    };
    format!(
        "the metric {name} never appeared in the output: --metric '{name}={regex}' finds no number there; {came_near}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_metric_without_a_value_is_told_with_lines_that_came_near() {
        let request = json!({"AlgorithmSpecification": {"MetricDefinitions": [
            {"Name": "loss", "Regex": r"loss=(\S+)"}, {"Name": "auc", "Regex": r"auc: (\S+)"},
        ]}});
        let description = json!({"FinalMetricDataList": [{"MetricName": "auc", "Value": 0.5}]});
        assert_eq!(unseen(&request, &description), [("loss", r"loss=(\S+)")]);
        assert_eq!(unseen(&json!({}), &description), []);
        let lines = ["starting", "epoch 1 loss: 0.25"].map(str::to_owned);
        assert_eq!(
            told("loss", r"loss=(\S+)", &lines),
            r"the metric loss never appeared in the output: --metric 'loss=loss=(\S+)' finds no number there; lines that came near: 'epoch 1 loss: 0.25'"
        );
        assert!(told("loss", "x", &[]).ends_with("no line of the output looks like a metric"));
    }
}
