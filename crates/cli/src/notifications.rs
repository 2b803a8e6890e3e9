//! `shoal notifications`: what became of notifications.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use shoal_wire::{LIST_NOTIFICATIONS, timestamp};

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table},
    settings::ClientFlags,
};

/// Which are shown.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    /// On their way, or waiting for another attempt.
    Pending,
    /// The endpoint has them.
    Delivered,
    /// Given up.
    Failed,
}

/// Arguments of `shoal notifications`.
#[derive(Debug, Args)]
pub(crate) struct NotificationsArgs {
    /// Only these.
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// The most lines, newest first.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    max: u32,
    /// ListNotifications' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks and prints.
pub(crate) fn run(args: &NotificationsArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let mut input = json!({"MaxResults": args.max});
    if let Some(status) = args.status {
        input["Status"] = json!(format!("{status:?}"));
    }
    let answer = client.sagemaker(LIST_NOTIFICATIONS, &input)?;
    if args.json {
        show_json(&answer)?;
    } else {
        show(&text(&answer))?;
    }
    Ok(Exit::Ok)
}

fn text(answer: &Value) -> String {
    let lines = answer["Notifications"].as_array().map_or(&[][..], Vec::as_slice);
    if lines.is_empty() {
        return "There are no notifications.\n".to_owned();
    }
    let mut rows = vec![["TIME", "STATUS", "ATTEMPTS", "TOPIC", "TO", "SUBJECT", "REASON"].map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(row));
    table(&rows)
}

fn row(line: &Value) -> Vec<String> {
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let to = match text("Protocol").as_str() {
        "" => "-".to_owned(),
        protocol => format!("{protocol} {}", text("Endpoint")),
    };
    vec![
        timestamp::iso8601(timestamp::from_seconds(line["Time"].as_f64().unwrap_or_default())),
        text("Status"),
        line["Attempts"].to_string(),
        text("TopicArn").rsplit(':').next().unwrap_or_default().to_owned(),
        to,
        text("Subject"),
        text("Reason"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_a_table() {
        let line = json!({"TopicArn": "arn:aws:sns:r:1:ops", "Protocol": "http", "Endpoint": "http://x", "Subject": "Hi",
            "Status": "Pending", "Attempts": 3, "Time": 60, "Reason": "the endpoint answered 503"});
        let shown = text(&json!({"Notifications": [line]}));
        let last: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..7], ["1970-01-01T00:01:00Z", "Pending", "3", "ops", "http", "http://x", "Hi"]);
        assert!(text(&json!({})).starts_with("There are no"));
    }
}
