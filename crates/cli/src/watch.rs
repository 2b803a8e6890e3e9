//! Waiting for a training job's end, with what a person wants to see on the way.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    client::{Client, LogReader},
    exit::Exit,
    output::Progress,
    patient::Patient,
    settings::ClientFlags,
};

/// What is shown while a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Status changes and, on a terminal, one live line.
    Status,
    /// Every line of the logs, too.
    Logs,
}

/// Waits until the job is over; the answer is its last description. A server that goes away
/// meanwhile is waited for.
///
/// # Errors
/// The server stays away or knows no such job.
pub(crate) fn until_end(client: Client, flags: &ClientFlags, job: &str, show: Show) -> Result<Value> {
    let started = Instant::now();
    let mut client = Patient::new(client, flags, job);
    let mut progress = Progress::on_stderr();
    let mut logs = LogReader::new(job);
    let (mut told, mut live_line) = (String::new(), String::new());
    // What is made before a program starts may take minutes, of which the first lines of the log
    // tell.
    let mut is_prepared = true;
    loop {
        let with_logs = show == Show::Logs || progress.is_live() || is_prepared;
        let answer = client.ask(
            |trouble| progress.line(trouble),
            |client| {
                // Described first: what was over before its logs were read has no more lines to
                // come.
                let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": job}))?;
                Ok((description, if with_logs { logs.read(client)? } else { Vec::new() }))
            },
        )?;
        let Some((description, events)) = answer else { continue };
        for event in events {
            let line = if logs.hosts() > 1 { format!("{}  {}", event.host, event.message) } else { event.message };
            if show == Show::Logs || is_prepared && !progress.is_live() && is_of_preparation(&line) {
                progress.line(&line);
            }
            live_line = line;
        }
        let state = state(&description);
        if state != told {
            // A failure is told once: by the summary.
            if description["FailureReason"].is_null() {
                progress.line(&format!("{job}  {state}"));
            }
            told.clone_from(&state);
        }
        if is_over(&description) {
            return Ok(description);
        }
        let secondary = description["SecondaryStatus"].as_str().unwrap_or_default();
        is_prepared = matches!(secondary, "Starting" | "Pending" | "Downloading");
        let live_line = live_line.replace("#011", "  ");
        progress.draw(&format!("{job}  {:>5.1} s  {secondary}  {live_line}", started.elapsed().as_secs_f64()));
        // Short jobs are seen to end at once; long ones are not asked about needlessly.
        thread::sleep((started.elapsed() / 20).clamp(Duration::from_millis(50), Duration::from_millis(500)));
    }
}

/// `Training: Training image download completed. ..`, from the last transition. A failure's text in
/// full is the summary's.
fn state(description: &Value) -> String {
    let secondary = description["SecondaryStatus"].as_str().unwrap_or_default();
    let last = description["SecondaryStatusTransitions"].as_array().and_then(|all| all.last());
    match last.and_then(|transition| transition["StatusMessage"].as_str()) {
        Some(message) if !message.is_empty() => format!("{secondary}: {}", shoal_wire::headline(message)),
        _ => secondary.to_owned(),
    }
}

/// Lines in which an instance says what it makes once for the machine, and that it is made.
fn is_of_preparation(line: &str) -> bool {
    let is_made =
        ["the environment ", "the image "].iter().any(|what| line.starts_with(what)) && line.contains(" is ready: ");
    line.contains(", once for this machine: ") || is_made || line.starts_with("waiting for the environment ")
}

/// Whether a job of this description changes no more.
pub fn is_over(description: &Value) -> bool {
    matches!(description["TrainingJobStatus"].as_str(), Some("Completed" | "Failed" | "Stopped"))
}

/// The exit code that tells how a job ended (or that it goes on).
pub(crate) fn exit(description: &Value) -> Exit {
    match description["TrainingJobStatus"].as_str() {
        Some("Failed") => Exit::Failed,
        Some("Stopped") => Exit::Stopped,
        _ => Exit::Ok,
    }
}

/// How it ended, for people: status and reason, seconds, metrics, model.
pub fn summary(description: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines =
        vec![format!("{}  {}", text(&description["TrainingJobName"]), text(&description["TrainingJobStatus"]))];
    if let Some(reason) = description["FailureReason"].as_str() {
        lines.push(format!("  reason   {}", reason.trim_end().replace('\n', "\n           ")));
    }
    let seconds = |from: &str, to: &str| Some(description[to].as_f64()? - description[from].as_f64()?);
    if let Some(training) = seconds("TrainingStartTime", "TrainingEndTime") {
        let all = seconds("CreationTime", "TrainingEndTime").unwrap_or(training);
        lines.push(format!("  time     {all:.2} s in all, {training:.2} s of it on its instances"));
    }
    if let (Some(training), Some(billable)) =
        (description["TrainingTimeInSeconds"].as_u64(), description["BillableTimeInSeconds"].as_u64())
        && description["EnableManagedSpotTraining"] == true
    {
        // As the SDK's estimators print it.
        let savings = (1.0 - billable as f64 / training as f64) * 100.0;
        lines.push(format!(
            "  spot     {billable} of {training} training seconds billable: {savings:.1} % saved by interruptions"
        ));
    }
    let pool = &description["WarmPoolStatus"];
    if let Some(status) = pool["Status"].as_str() {
        let time = pool["ResourceRetainedBillableTimeInSeconds"]
            .as_u64()
            .map(|s| format!(", kept for {s} s"))
            .unwrap_or_default();
        let by = pool["ReusedByJob"].as_str().map(|job| format!(", by {job}")).unwrap_or_default();
        lines.push(format!("  warm     {status}{time}{by}"));
    }
    for rule in ["DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses"]
        .into_iter()
        .flat_map(|member| description[member].as_array().into_iter().flatten())
    {
        let details = rule["StatusDetails"].as_str().map(|text| format!(": {}", text.trim_end())).unwrap_or_default();
        lines.push(format!(
            "  rule     {} {}{details}",
            text(&rule["RuleConfigurationName"]),
            text(&rule["RuleEvaluationStatus"])
        ));
    }
    for metric in description["FinalMetricDataList"].as_array().into_iter().flatten() {
        lines.push(format!("  metric   {} {}", text(&metric["MetricName"]), metric["Value"]));
    }
    if description["TrainingJobStatus"] == "Failed" {
        lines.push(format!("  logs     shoal jobs logs {}", text(&description["TrainingJobName"])));
    }
    let has_model = matches!(description["TrainingJobStatus"].as_str(), Some("Completed" | "Stopped"));
    if has_model && !description["TrainingStartTime"].is_null() {
        lines.push(format!("  model    {}", text(&description["ModelArtifacts"]["S3ModelArtifacts"])));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_exit_codes() {
        for (status, over, expected) in [
            ("InProgress", false, Exit::Ok),
            ("Stopping", false, Exit::Ok),
            ("Completed", true, Exit::Ok),
            ("Failed", true, Exit::Failed),
            ("Stopped", true, Exit::Stopped),
        ] {
            let description = json!({"TrainingJobStatus": status});
            assert_eq!((is_over(&description), exit(&description)), (over, expected), "{status}");
        }
    }

    #[test]
    fn what_is_made_once_is_told() {
        for (line, expected) in [
            ("making the environment pytorch, once for this machine: Python 3.11.2, 30 packages from pypi.org", true),
            ("waiting for the environment pytorch, which another instance or job is making", true),
            ("the environment pytorch is ready: 812 MB in 40 s", true),
            ("Collecting torch", false),
        ] {
            assert_eq!(is_of_preparation(line), expected, "{line}");
        }
    }

    #[test]
    fn a_failure_says_where_more_stands() {
        let description = json!({"TrainingJobName": "a", "TrainingJobStatus": "Failed", "FailureReason": "AlgorithmError: bad\nof two lines"});
        assert_eq!(
            summary(&description),
            "a  Failed\n  reason   AlgorithmError: bad\n           of two lines\n  logs     shoal jobs logs a\n"
        );
    }

    #[test]
    fn a_summary_says_what_matters() {
        let description = json!({
            "TrainingJobName": "a", "TrainingJobStatus": "Completed", "CreationTime": 10.0, "TrainingStartTime": 10.1,
            "TrainingEndTime": 10.5, "FinalMetricDataList": [{"MetricName": "validation:auc", "Value": 0.75}],
            "ModelArtifacts": {"S3ModelArtifacts": "s3://b/a/output/model.tar.gz"},
            "WarmPoolStatus": {"Status": "Reused", "ResourceRetainedBillableTimeInSeconds": 3, "ReusedByJob": "b"},
        });
        assert_eq!(
            summary(&description),
            "a  Completed\n  time     0.50 s in all, 0.40 s of it on its instances\n  warm     Reused, kept for 3 s, \
             by b\n  metric   validation:auc 0.75\n  \
             model    s3://b/a/output/model.tar.gz\n"
        );
    }
}
