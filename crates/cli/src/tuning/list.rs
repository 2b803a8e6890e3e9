//! `shoal tuning list`.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
};

/// Most summaries in one answer of the API.
const PAGE: usize = 100;

/// Arguments of `shoal tuning list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only names that contain this.
    #[arg(long)]
    name: Option<String>,
    /// At most so many.
    #[arg(long, default_value = "50")]
    limit: NonZeroUsize,
    /// A list of HyperParameterTuningJobSummaries.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks page by page and prints.
pub(crate) fn run(args: &ListArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let mut input = json!({"SortBy": "CreationTime", "SortOrder": "Descending"});
    if let Some(name) = &args.name {
        input["NameContains"] = json!(name);
    }
    let mut summaries: Vec<Value> = Vec::new();
    let limit = args.limit.get();
    while summaries.len() < limit {
        input["MaxResults"] = json!(PAGE.min(limit - summaries.len()));
        let answer = client.sagemaker("ListHyperParameterTuningJobs", &input)?;
        summaries.extend(answer["HyperParameterTuningJobSummaries"].as_array().into_iter().flatten().cloned());
        match answer.get("NextToken") {
            Some(token) => input["NextToken"] = token.clone(),
            None => break,
        }
    }
    if args.json {
        show_json(&Value::Array(summaries))?;
    } else {
        let mut rows = vec![["NAME", "STATUS", "STRATEGY", "TRIALS", "RUNNING", "CREATED", "ENDED"].map(str::to_owned).to_vec()];
        rows.extend(summaries.iter().map(row));
        show(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

fn row(summary: &Value) -> Vec<String> {
    let text = |name: &str| summary[name].as_str().unwrap_or_default().to_owned();
    let counters = summary["TrainingJobStatusCounters"].as_object();
    let all: u64 = counters.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    vec![
        text("HyperParameterTuningJobName"),
        text("HyperParameterTuningJobStatus"),
        text("Strategy"),
        all.to_string(),
        summary["TrainingJobStatusCounters"]["InProgress"].as_u64().unwrap_or(0).to_string(),
        time_text(&summary["CreationTime"]),
        time_text(&summary["HyperParameterTuningEndTime"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_all_trials() {
        let counters = json!({"Completed": 3, "InProgress": 2, "RetryableError": 0, "NonRetryableError": 1, "Stopped": 4});
        let summary = json!({
            "HyperParameterTuningJobName": "a", "HyperParameterTuningJobStatus": "InProgress", "Strategy": "Random", "CreationTime": 0,
            "TrainingJobStatusCounters": counters,
        });
        assert_eq!(row(&summary), ["a", "InProgress", "Random", "10", "2", "1970-01-01 00:00:00Z", "-"]);
    }
}
