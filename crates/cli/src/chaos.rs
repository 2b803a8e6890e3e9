//! `shoal chaos`: what happens to training jobs elsewhere, made to happen here.

use std::{thread, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shoal_wire::INTERRUPT_TRAINING_JOB;

use crate::{
    client::{Client, ClientError, now_ms},
    duration::duration,
    exit::Exit,
    output::show,
    patient::Patient,
    settings::ClientFlags,
    watch,
};

/// Between two looks at a job whose time has not come.
const LOOK: Duration = Duration::from_millis(100);

/// Subcommands of `shoal chaos`.
#[derive(Debug, Subcommand)]
pub(crate) enum ChaosCommand {
    /// Take instances of a training job away, as AWS does with those of managed spot training when
    /// it wants them back.
    ///
    /// Programs get SIGTERM and the server's grace to save checkpoints. A managed spot training
    /// waits for instances then and continues from its checkpoints. Of a job with the tag
    /// shoal:min-instances one instance is taken, or the number of --instances, and the others
    /// continue.
    Interrupt(InterruptArgs),
}

/// Arguments of `shoal chaos interrupt`.
#[derive(Debug, Args)]
pub(crate) struct InterruptArgs {
    /// Training job's name.
    name: String,
    /// When it has trained for so long since its last start (10s, 5m), which is waited for. Without
    /// it: at once.
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "every")]
    after: Option<Duration>,
    /// Whenever it has trained for so long since its last start, until it is over.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    every: Option<Duration>,
    /// With --every: so many times.
    #[arg(long, requires = "every", value_name = "NUMBER")]
    times: Option<u32>,
    /// Take only this number of its instances: the others continue. For jobs with the tag
    /// shoal:min-instances.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,
    #[command(flatten)]
    settings: ClientFlags,
}

impl InterruptArgs {
    fn request(&self) -> Value {
        let mut request = json!({"TrainingJobName": self.name});
        if let Some(instances) = self.instances {
            request["InstanceCount"] = instances.into();
        }
        request
    }
}

/// Runs a subcommand.
pub(crate) fn run(command: &ChaosCommand) -> Result<Exit> {
    let ChaosCommand::Interrupt(args) = command;
    interrupt(args)
}

fn interrupt(args: &InterruptArgs) -> Result<Exit> {
    let name = &args.name;
    let client = Client::connect(&args.settings)?;
    let Some(time) = args.every.or(args.after) else {
        client.sagemaker(INTERRUPT_TRAINING_JOB, &args.request()).map_err(|error| error.about(name))?;
        show(&format!("{name} is interrupted\n"))?;
        return Ok(Exit::Ok);
    };
    let most = if args.every.is_some() { args.times.unwrap_or(u32::MAX) } else { 1 };
    let (mut client, mut done, mut told) = (Patient::new(client, &args.settings, name), 0, String::new());
    while done < most {
        let tell = |trouble: &str| eprintln!("{trouble}");
        let Some(description) =
            client.ask(tell, |client| client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name})))?
        else {
            continue;
        };
        if watch::is_over(&description) {
            show(&format!(
                "{name} is over ({}); interrupted {done} times\n",
                description["TrainingJobStatus"].as_str().unwrap_or_default()
            ))?;
            return Ok(Exit::Ok);
        }
        let is_spot = description["EnableManagedSpotTraining"] == true;
        let status = description["SecondaryStatus"].as_str().unwrap_or_default();
        if is_spot && !has_trained(&description, time) {
            if status != told {
                told = status.to_owned();
                eprintln!("{name} is {status}: waiting until it has been in Training for {} s", time.as_secs());
            }
        } else {
            let answer =
                client.ask(tell, |client| match client.sagemaker(INTERRUPT_TRAINING_JOB, &args.request()) {
                    // Its program has ended since it was looked at.
                    Err(ClientError::Refused(_)) if is_spot => Ok(false),
                    answer => answer.map(|_| true),
                })?;
            if answer == Some(true) {
                done += 1;
                show(&format!("{name} is interrupted ({done})\n"))?;
            }
        }
        thread::sleep(LOOK);
    }
    Ok(Exit::Ok)
}

/// Whether the present start's training has lasted for so long.
fn has_trained(description: &Value, time: Duration) -> bool {
    let last = description["SecondaryStatusTransitions"].as_array().and_then(|all| all.last());
    let since = last.filter(|last| last["Status"] == "Training").and_then(|last| last["StartTime"].as_f64());
    since.is_some_and(|since| now_ms() as f64 / 1000.0 - since >= time.as_secs_f64())
}
