//! `shoal jobs logs`.

use std::{thread, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::{Client, LogEvent, LogReader},
    exit::Exit,
    output::show,
    settings::ClientFlags,
    watch,
};

/// Arguments of `shoal jobs logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Training job's name.
    name: String,
    /// Go on until the job is over; the exit code then tells how it ended.
    #[arg(short, long)]
    follow: bool,
    /// Only this host's lines, e.g. algo-1.
    #[arg(long)]
    host: Option<String>,
    /// One JSON object a line: timestamp (milliseconds), host, message.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Prints what there is, and with `--follow` what comes.
pub(crate) fn run(args: &LogsArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let mut reader = LogReader::new(&args.name);
    loop {
        // Described first: what was over before we read has no more lines to come. It also tells an unknown name.
        let description =
            client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": args.name})).with_context(|| super::named(&args.name))?;
        let events = reader.read(&client)?;
        let wanted = events.iter().filter(|event| args.host.as_ref().is_none_or(|host| *host == event.host));
        show(&wanted.map(|event| line(event, args.json, reader.hosts() > 1)).collect::<String>())?;
        if let Some(host) = args.host.as_ref().filter(|host| !hosts(&description).contains(host)) {
            bail!("training job {} has no host {host}; it has {}", args.name, hosts(&description).join(", "));
        }
        if !args.follow {
            return Ok(Exit::Ok);
        }
        if watch::is_over(&description) {
            return Ok(watch::exit(&description));
        }
        thread::sleep(Duration::from_millis(300));
    }
}

/// `algo-1` .. `algo-N`.
fn hosts(description: &Value) -> Vec<String> {
    let count = description["ResourceConfig"]["InstanceCount"].as_u64().unwrap_or(1);
    (1..=count).map(|host| format!("algo-{host}")).collect()
}

fn line(event: &LogEvent, json: bool, name_host: bool) -> String {
    if json {
        format!("{}\n", json!({"timestamp": event.at_ms, "host": event.host, "message": event.message}))
    } else if name_host {
        format!("{}  {}\n", event.host, event.message)
    } else {
        format!("{}\n", event.message)
    }
}
