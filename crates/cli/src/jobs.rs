//! `shoal jobs`: look at training jobs, stop and remove them, read their logs.

mod checkpoints;
mod exec;
mod list;
mod logs;
mod profile;
mod removal;
mod search;
mod stacks;
mod visit;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::{show, show_json, table, time_text},
    settings::ClientFlags,
    utilization, watch,
};

/// Subcommands of `shoal jobs`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List training jobs, the newest first; trials of tuning jobs with --all.
    List(list::ListArgs),
    /// Show one training job: state, times, metrics, artifacts.
    Show(ShowArgs),
    /// Stop a training job: SIGTERM, a grace, SIGKILL; its model directory is stored all the same.
    Stop(StopArgs),
    /// Print the log lines of all hosts in order of time.
    Logs(logs::LogsArgs),
    /// List the checkpoint files that are durable in S3: host, bytes, SHA-256, time.
    Checkpoints(checkpoints::CheckpointsArgs),
    /// Remove jobs that are over, with their logs and metrics; tuning jobs with their trials.
    Delete(removal::DeleteArgs),
    /// Remove all jobs that ended long ago.
    Prune(removal::PruneArgs),
    /// Run a command, or a shell, beside a running training program: where it is, as its user,
    /// within its limits.
    Exec(exec::ExecArgs),
    /// Print what every process of a running training job is doing: Python's frames, and the
    /// kernel's word on all else.
    Stacks(stacks::StacksArgs),
    /// Write one page of HTML about what a training job spends its time on: step times,
    /// utilisation, findings with what to try, and with --stacks where its program is.
    Profile(profile::ProfileArgs),
}

/// Arguments of `shoal jobs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Training job's name.
    name: String,
    /// What its instances, GPUs and ranks use: now, on average, and at most.
    #[arg(long, visible_alias = "utilization")]
    utilisation: bool,
    /// DescribeTrainingJob's answer as it is; with --utilisation that of Shoal.DescribeUtilization.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal jobs stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Training job's name.
    name: String,
    /// Return when it is over.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Runs a subcommand.
pub(crate) fn run(command: &JobsCommand) -> Result<Exit> {
    match command {
        JobsCommand::List(args) => list::run(args),
        JobsCommand::Show(args) => show_job(args),
        JobsCommand::Stop(args) => stop(args),
        JobsCommand::Logs(args) => logs::run(args),
        JobsCommand::Checkpoints(args) => checkpoints::run(args),
        JobsCommand::Delete(args) => removal::delete(args),
        JobsCommand::Prune(args) => removal::prune(args),
        JobsCommand::Exec(args) => exec::run(args),
        JobsCommand::Stacks(args) => stacks::run(args),
        JobsCommand::Profile(args) => profile::run(args),
    }
}

fn show_job(args: &ShowArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    if args.utilisation {
        return utilization::show(&client, &args.name, args.json);
    }
    let answer = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": args.name}));
    let description = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "show", &args.name))?;
    if args.json {
        show_json(&description)?;
    } else {
        show(&watch::summary(&description))?;
        show(&history(&description))?;
    }
    Ok(Exit::Ok)
}

/// The secondary states that a job went through.
fn history(description: &Value) -> String {
    let transitions = description["SecondaryStatusTransitions"].as_array().into_iter().flatten();
    let row = |transition: &Value| {
        let text = |name: &str| transition[name].as_str().unwrap_or_default().to_owned();
        // The summary has it.
        let is_reason = !description["FailureReason"].is_null() && text("Status") == "Failed";
        let message = if is_reason { String::new() } else { shoal_wire::headline(&text("StatusMessage")).into_owned() };
        vec!["  ".to_owned() + &time_text(&transition["StartTime"]), text("Status"), message]
    };
    table(&transitions.map(row).collect::<Vec<_>>())
}

fn stop(args: &StopArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let answer = client.sagemaker_with_notice("StopTrainingJob", &json!({"TrainingJobName": args.name}));
    let (_, notice) = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "stop", &args.name))?;
    if let Some(notice) = notice {
        eprintln!("{}: {notice}", args.name);
    }
    if args.wait {
        let description = watch::until_end(client, &args.settings, &args.name, watch::Show::Status)?;
        show(&watch::summary(&description))?;
    } else {
        show(&format!("{} is being stopped; `shoal jobs show {}` tells when it is over\n", args.name, args.name))?;
    }
    Ok(Exit::Ok)
}
