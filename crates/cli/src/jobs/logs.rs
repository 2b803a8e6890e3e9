//! `shoal jobs logs`.

use std::{thread, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::{Client, ClientError, LogEvent, LogReader, Noun},
    exit::Exit,
    interrupt::Farewell,
    output::show,
    patient::Patient,
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
    // A server that does not answer at once is not there; one that goes away later is waited for.
    let first = read(&client, &args.name, &mut reader)
        .map_err(|error| client.explained(error, Noun::TrainingJob, "logs", &args.name))?;
    let _farewell = args.follow.then(|| Farewell::about(&args.name)).transpose()?;
    let mut client = Patient::new(client, &args.settings, &args.name);
    let mut answer = Some(first);
    loop {
        if let Some((description, events)) = answer {
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
        answer = client.ask(|trouble| eprintln!("{trouble}"), |client| read(client, &args.name, &mut reader))?;
    }
}

/// The job and what its logs have that is new. Described first: what was over before we read has no
/// more lines to come. It also tells an unknown name.
fn read(client: &Client, job: &str, reader: &mut LogReader) -> Result<(Value, Vec<LogEvent>), ClientError> {
    let description = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": job}))?;
    Ok((description, reader.read(client)?))
}

/// `algo-1` .. `algo-N`.
fn hosts(description: &Value) -> Vec<String> {
    let count: u64 = crate::instances::of(&description["ResourceConfig"]).iter().map(|(_, count)| count).sum();
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
