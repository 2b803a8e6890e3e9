//! `shoal jobs checkpoints`.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::LIST_CHECKPOINTS;

use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
};

/// Arguments of `shoal jobs checkpoints`.
#[derive(Debug, Args)]
pub(crate) struct CheckpointsArgs {
    /// Training job's name.
    name: String,
    /// The receipts as a list of JSON objects.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks page by page and prints.
pub(crate) fn run(args: &CheckpointsArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let input = json!({"TrainingJobName": args.name});
    let receipts = client.list(LIST_CHECKPOINTS, "Checkpoints", input, usize::MAX);
    let receipts = receipts.map_err(|error| client.explained(error, Noun::TrainingJob, "checkpoints", &args.name))?;
    if args.json {
        show_json(&Value::Array(receipts))?;
    } else if receipts.is_empty() {
        let name = &args.name;
        show(&format!(
            "{name} has no checkpoints: `shoal train --checkpoints s3://BUCKET/PREFIX` keeps what the program writes \
             to /opt/ml/checkpoints\n"
        ))?;
    } else {
        let mut rows = vec![["PATH", "HOST", "BYTES", "SAVED", "SHA-256"].map(str::to_owned).to_vec()];
        rows.extend(receipts.iter().map(row));
        show(&table(&rows))?;
    }
    Ok(Exit::Ok)
}

fn row(receipt: &Value) -> Vec<String> {
    let text = |name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
    vec![text("Path"), text("Host"), receipt["Bytes"].to_string(), time_text(&receipt["SavedTime"]), text("Sha256")]
}
