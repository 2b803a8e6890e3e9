//! `shoal tuning list`.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::{DESCRIBE_STUDY, STRATEGY_TAG, StudyDescription};

use crate::{
    client::{Client, ClientError},
    exit::Exit,
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
};

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
    let summaries =
        client.list("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries", input, args.limit.get())?;
    if args.json {
        show_json(&Value::Array(summaries))?;
    } else {
        let heads = ["NAME", "STATUS", "STRATEGY", "TRIALS", "RUNNING", "WAITING", "PAUSED", "CREATED", "ENDED"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for summary in &summaries {
            rows.push(row(summary, &strategy(&client, summary), live(&client, summary)?));
        }
        show(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

/// Trials that run, wait for instances and are paused: the API's `InProgress` is all three.
fn live(client: &Client, summary: &Value) -> Result<[u32; 3], ClientError> {
    if summary["TrainingJobStatusCounters"]["InProgress"].as_u64().unwrap_or(0) == 0 {
        return Ok([0; 3]);
    }
    let input = json!({"HyperParameterTuningJobName": summary["HyperParameterTuningJobName"], "LiveOnly": true});
    let study = match client.sagemaker(DESCRIBE_STUDY, &input) {
        // It was deleted in between.
        Err(error) if error.is_not_found() => StudyDescription::default(),
        answer => serde_json::from_value(answer?).map_err(|error| client.not_understood(error.to_string()))?,
    };
    Ok([study.running, study.waiting, study.paused])
}

/// The strategy's name: the API's, or the one that a tag has put in its place.
pub(crate) fn strategy(client: &Client, summary: &Value) -> String {
    let of_the_api = summary["Strategy"].as_str().unwrap_or_default().to_owned();
    // It was deleted in between, or its tags are not this user's to see: the table is worth more
    // than the name.
    let Ok(answer) = client.sagemaker("ListTags", &json!({"ResourceArn": summary["HyperParameterTuningJobArn"]}))
    else {
        return of_the_api;
    };
    let tag = answer["Tags"].as_array().into_iter().flatten().find(|tag| tag["Key"] == STRATEGY_TAG);
    tag.and_then(|tag| tag["Value"].as_str()).map_or(of_the_api, named)
}

/// A tag's value in few words: a name as it stands, of an object its parts, joined as names are.
fn named(tag: &str) -> String {
    let decoded = base64_simd::STANDARD.decode_to_vec(tag.trim()).unwrap_or_default();
    let object = serde_json::from_str::<Value>(tag).or_else(|_| serde_json::from_slice(&decoded)).unwrap_or_default();
    if !object.is_object() {
        return tag.to_owned();
    }
    let kind = |part: &str| object[part]["kind"].as_str().or_else(|| object[part].as_str());
    let searcher = if object["grid"].is_object() { Some("grid") } else { kind("searcher") };
    let parts: Vec<&str> =
        [kind("strategy"), searcher, kind("scheduler").filter(|it| *it != "none")].into_iter().flatten().collect();
    if parts.is_empty() { "custom".to_owned() } else { parts.join("+") }
}

fn row(summary: &Value, strategy: &str, [running, waiting, paused]: [u32; 3]) -> Vec<String> {
    let text = |name: &str| summary[name].as_str().unwrap_or_default().to_owned();
    let counters = summary["TrainingJobStatusCounters"].as_object();
    let all: u64 = counters.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    vec![
        text("HyperParameterTuningJobName"),
        text("HyperParameterTuningJobStatus"),
        strategy.to_owned(),
        all.to_string(),
        running.to_string(),
        waiting.to_string(),
        paused.to_string(),
        time_text(&summary["CreationTime"]),
        time_text(&summary["HyperParameterTuningEndTime"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_of_tags_have_names() {
        let encoded = |json: &str| base64_simd::STANDARD.encode_to_string(json);
        for (tag, expected) in [
            ("tpe+asha", "tpe+asha"),
            (encoded(r#"{"searcher":"tpe","scheduler":{"kind":"asha","eta":4}}"#).as_str(), "tpe+asha"),
            (encoded(r#"{"grid":{"points":3}}"#).as_str(), "grid"),
            (r#"{"strategy":"mobster","scheduler":"none"}"#, "mobster"),
            (encoded(r#"{"objectives":[{"metric":"s"}]}"#).as_str(), "custom"),
        ] {
            assert_eq!(named(tag), expected);
        }
    }

    #[test]
    fn a_row_counts_all_trials() {
        let counters =
            json!({"Completed": 3, "InProgress": 6, "RetryableError": 0, "NonRetryableError": 1, "Stopped": 4});
        let summary = json!({
            "HyperParameterTuningJobName": "a", "HyperParameterTuningJobStatus": "InProgress", "Strategy": "Random", "CreationTime": 0,
            "TrainingJobStatusCounters": counters,
        });
        assert_eq!(
            row(&summary, "Random", [3, 2, 1]),
            ["a", "InProgress", "Random", "14", "3", "2", "1", "1970-01-01 00:00:00Z", "-"]
        );
    }
}
