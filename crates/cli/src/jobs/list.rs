//! `shoal jobs list`.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::search::{count, filter, is_no_trial, training_jobs};
use crate::{
    client::Client,
    exit::{Exit, UsageError},
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
};

/// What `--status` can be, in any case of letters.
const STATUSES: [&str; 5] = ["InProgress", "Completed", "Failed", "Stopping", "Stopped"];

/// Of a description, what a list of the API's has.
const SUMMARY: [&str; 8] = [
    "TrainingJobName",
    "TrainingJobArn",
    "CreationTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingJobStatus",
    "SecondaryStatus",
    "WarmPoolStatus",
];

/// Arguments of `shoal jobs list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only these: InProgress, Completed, Failed, Stopping, Stopped.
    #[arg(long)]
    status: Option<String>,
    /// Only names that contain this.
    #[arg(long)]
    name: Option<String>,
    /// Trials of tuning jobs, too.
    #[arg(long)]
    all: bool,
    /// At most so many.
    #[arg(long, default_value = "50")]
    limit: NonZeroUsize,
    /// A list of TrainingJobSummaries.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks page by page and prints.
pub(crate) fn run(args: &ListArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let mut filters = Vec::new();
    if !args.all {
        filters.push(is_no_trial());
    }
    if let Some(status) = &args.status {
        filters.push(filter("TrainingJobStatus", "Equals", spelled(status)?));
    }
    if let Some(name) = &args.name {
        filters.push(filter("TrainingJobName", "Contains", name));
    }
    let mut summaries = training_jobs(&client, &filters, args.limit.get())?;
    for summary in summaries.iter_mut().filter_map(Value::as_object_mut) {
        summary.retain(|name, _| SUMMARY.contains(&name.as_str()));
    }
    let shown = summaries.len();
    if args.json {
        show_json(&Value::Array(summaries))?;
    } else {
        let mut rows = vec![["NAME", "STATUS", "CREATED", "ENDED"].map(str::to_owned).to_vec()];
        rows.extend(summaries.iter().map(row));
        show(&table(&rows))?;
    }
    // On standard error: lists stay data.
    if shown == args.limit.get()
        && let Some(rest) = rest(shown, count(&client, &filters)?)
    {
        eprintln!("{rest}");
    }
    Ok(Exit::Ok)
}

/// What is said of jobs that are not shown.
fn rest(shown: usize, total: usize) -> Option<String> {
    let more = total.checked_sub(shown).filter(|more| *more > 0)?;
    Some(format!("left out: {more} older; --limit {total} shows all, --status and --name fewer"))
}

/// The API's spelling of a status.
fn spelled(status: &str) -> Result<&'static str, UsageError> {
    let known = STATUSES.into_iter().find(|known| known.eq_ignore_ascii_case(status));
    known.ok_or_else(|| UsageError(format!("there is no status {status}; --status takes {}", STATUSES.join(", "))))
}

fn row(summary: &Value) -> Vec<String> {
    let text = |name: &str| summary[name].as_str().unwrap_or_default();
    let secondary = text("SecondaryStatus");
    let status = text("TrainingJobStatus");
    let status =
        if secondary.is_empty() || secondary == status { status.to_owned() } else { format!("{status} ({secondary})") };
    vec![
        text("TrainingJobName").to_owned(),
        status,
        time_text(&summary["CreationTime"]),
        time_text(&summary["TrainingEndTime"]),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_cut_off_is_told() {
        assert_eq!(rest(50, 50), None);
        assert_eq!(rest(50, 62).unwrap(), "left out: 12 older; --limit 62 shows all, --status and --name fewer");
    }

    #[test]
    fn a_row_tells_the_secondary_status_where_it_adds_something() {
        let summary = json!({"TrainingJobName": "a", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Pending", "CreationTime": 0});
        assert_eq!(row(&summary), ["a", "InProgress (Pending)", "1970-01-01 00:00:00Z", "-"]);
        let summary = json!({"TrainingJobName": "a", "TrainingJobStatus": "Failed", "SecondaryStatus": "Failed"});
        assert_eq!(row(&summary)[1], "Failed");
    }
}
