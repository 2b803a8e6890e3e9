//! `shoal stacks`: what agents start to look at the processes of an instance.

use std::process::ExitCode;

use clap::Args;

use crate::output::show;

/// Arguments of `shoal stacks`.
#[derive(Debug, Args)]
pub(crate) struct StacksArgs {
    /// An instance's first process, as this machine numbers it.
    first: u32,
}

/// Prints the stacks of all processes below it.
pub(crate) fn run(args: &StacksArgs) -> ExitCode {
    match show(&shoal_agent::stacks(args.first)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal stacks: could not print: {error}");
            ExitCode::FAILURE
        }
    }
}
