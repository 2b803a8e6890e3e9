//! `shoal bench`: measurements of this machine, through the public API, with what came out checked.

mod machine;
mod report;
mod server;
mod start;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;

/// Subcommands of `shoal bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// How fast a training job starts and ends, and what an idle server costs.
    Start(start::StartArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: &BenchCommand) -> Result<Exit> {
    match command {
        BenchCommand::Start(args) => start::run(args),
    }
}
