//! `shoal cost`: what training jobs cost, by what they have in common.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use shoal_wire::LIST_COSTS;

use crate::{
    client::{Client, now_ms},
    duration::duration,
    exit::Exit,
    output::{amount, show, show_json, table},
    settings::ClientFlags,
};

/// What has one line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// Each training job.
    Job,
    /// Each tuning job with its trials.
    TuningJob,
    /// Each experiment.
    Experiment,
    /// Each tag; a job with several tags counts in each.
    Tag,
    /// Each type of instance.
    InstanceType,
    /// Each role.
    Role,
}

/// Arguments of `shoal cost`.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// What has one line.
    #[arg(long, value_enum, default_value = "tuning-job")]
    by: By,
    /// With --by tag: the values of this tag alone.
    #[arg(long, value_name = "KEY")]
    tag: Option<String>,
    /// What was used in this time until now: 30d, 12h, 90m.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    since: Option<Duration>,
    /// ListCosts' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks and prints.
pub(crate) fn run(args: &CostArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let by = match args.by {
        By::Job => "Job",
        By::TuningJob => "TuningJob",
        By::Experiment => "Experiment",
        By::Tag => "Tag",
        By::InstanceType => "InstanceType",
        By::Role => "Role",
    };
    let mut input = json!({"GroupBy": by});
    if let Some(tag) = &args.tag {
        input["TagKey"] = json!(tag);
    }
    if let Some(since) = args.since {
        input["After"] = json!(now_ms() as f64 / 1000.0 - since.as_secs_f64());
    }
    let answer = client.sagemaker(LIST_COSTS, &input)?;
    if args.json {
        show_json(&answer)?;
    } else {
        show(&text(by, &answer))?;
    }
    Ok(Exit::Ok)
}

fn text(by: &str, answer: &Value) -> String {
    let groups = answer["Groups"].as_array().map_or(&[][..], Vec::as_slice);
    if groups.is_empty() {
        return "No instance was used in this time.\n".to_owned();
    }
    let title = match by {
        "TuningJob" => "TUNING JOB",
        "InstanceType" => "INSTANCE TYPE",
        other => &other.to_uppercase(),
    };
    let mut rows = vec![[title, "JOBS", "INSTANCE HOURS", "US$", "SAVED US$"].map(str::to_owned).to_vec()];
    let key = |line: &Value| match line["Key"].as_str() {
        Some("") | None => "(none)".to_owned(),
        Some(key) => key.to_owned(),
    };
    rows.extend(groups.iter().map(|line| row(key(line), line)));
    rows.push(row("all".to_owned(), &answer["Total"]));
    let mut text = table(&rows);
    let unpriced = answer["Total"]["UnpricedInstanceSeconds"].as_f64().unwrap_or_default();
    if unpriced > 0.0 {
        text.push_str(&format!(
            "{:.2} instance hours are of types without a price; instance-types.txt in the data directory can give them one\n",
            unpriced / 3600.0
        ));
    }
    text
}

fn row(key: String, line: &Value) -> Vec<String> {
    let number = |name: &str| line[name].as_f64().unwrap_or_default();
    vec![
        key,
        line["Jobs"].to_string(),
        amount(number("InstanceSeconds") / 3600.0),
        amount(number("UsDollars")),
        amount(number("SavedUsDollars")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_a_table_with_a_total() {
        let line = |key: &str, jobs, hours: f64, unpriced: f64| {
            json!({"Key": key, "Jobs": jobs, "InstanceSeconds": hours * 3600.0, "UsDollars": hours,
                "SavedUsDollars": 0.5, "UnpricedInstanceSeconds": unpriced})
        };
        let answer =
            json!({"Groups": [line("a", 2, 3.0, 0.0), line("", 1, 0.25, 0.0)], "Total": line("", 3, 3.25, 360.0)});
        let shown = text("TuningJob", &answer);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "2", "3.00", "3.00", "0.50"]);
        assert_eq!(lines[2][0], "(none)");
        assert_eq!(lines[3], ["all", "3", "3.25", "3.25", "0.50"]);
        let small = text("Job", &json!({"Groups": [line("a", 1, 0.0023, 0.0)], "Total": line("", 1, 0.00002, 0.0)}));
        assert!(small.contains("0.0023") && small.contains("<0.0001"), "{small}");
        assert!(lines[4].starts_with(&["0.10", "instance", "hours"]), "{shown}");
        assert_eq!(text("Job", &json!({"Groups": []})), "No instance was used in this time.\n");
    }
}
