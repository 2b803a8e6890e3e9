//! `shoal stacks`: what agents start to look at the processes of an instance.

use std::process::ExitCode;

use clap::Args;

use crate::output::show;

/// Arguments of `shoal stacks`.
#[derive(Debug, Args)]
pub(crate) struct StacksArgs {
    /// An instance's first process, as this machine numbers it.
    first: u32,
    /// Samples them 20 times a second for this number of seconds, and folds them.
    #[arg(long)]
    seconds: Option<u32>,
}

/// Samples in a second.
const RATE: u32 = 20;

/// Prints the stacks of all processes below it.
pub(crate) fn run(args: &StacksArgs) -> ExitCode {
    let text = match args.seconds {
        Some(seconds) => shoal_agent::sampled_stacks(args.first, seconds, RATE),
        None => shoal_agent::stacks(args.first),
    };
    match show(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal stacks: could not print: {error}");
            ExitCode::FAILURE
        }
    }
}
