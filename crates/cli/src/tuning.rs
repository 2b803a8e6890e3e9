//! `shoal tuning`: look at tuning jobs, stop and change them, write reports.

pub(crate) mod endings;
mod list;
pub(crate) mod report;
mod show;
pub(crate) mod study;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use shoal_wire::UPDATE_TUNING_JOB;

pub(crate) use show::summary;

use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::show,
    settings::ClientFlags,
};

/// Subcommands of `shoal tuning`.
#[derive(Debug, Subcommand)]
pub(crate) enum TuningCommand {
    /// List tuning jobs, the newest first.
    List(list::ListArgs),
    /// Show one tuning job: its best trial, counts, and how far trials came.
    Show(show::ShowArgs),
    /// Write a page of charts: objective over time, learning curves, parallel coordinates, what
    /// mattered.
    Report(report::ReportArgs),
    /// Change how many trials run at once, while it runs.
    Parallel(ParallelArgs),
    /// Stop a tuning job and its running trials; what they found stays.
    Stop(StopArgs),
}

/// Arguments of `shoal tuning parallel`.
#[derive(Debug, Args)]
pub(crate) struct ParallelArgs {
    /// Tuning job's name.
    name: String,
    /// So many trials at once. When it is lowered, trials that run go on to their ends.
    trials: u32,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal tuning stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Tuning job's name.
    name: String,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Runs a subcommand.
pub(crate) fn run(command: &TuningCommand) -> Result<Exit> {
    match command {
        TuningCommand::List(args) => list::run(args),
        TuningCommand::Show(args) => show::run(args),
        TuningCommand::Report(args) => report::run(args),
        TuningCommand::Parallel(args) => {
            let client = Client::connect(&args.settings)?;
            let input = json!({"HyperParameterTuningJobName": args.name, "MaxParallelTrainingJobs": args.trials});
            client
                .sagemaker(UPDATE_TUNING_JOB, &input)
                .map_err(|error| client.explained(error, Noun::TuningJob, "parallel", &args.name))?;
            show(&format!("{} runs up to {} trials at once\n", args.name, args.trials))?;
            Ok(Exit::Ok)
        }
        TuningCommand::Stop(args) => {
            let client = Client::connect(&args.settings)?;
            let input = json!({"HyperParameterTuningJobName": args.name});
            client
                .sagemaker("StopHyperParameterTuningJob", &input)
                .map_err(|error| client.explained(error, Noun::TuningJob, "stop", &args.name))?;
            show(&format!(
                "{} is being stopped; `shoal tuning show {}` tells when it is over\n",
                args.name, args.name
            ))?;
            Ok(Exit::Ok)
        }
    }
}
