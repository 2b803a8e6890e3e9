//! `shoal timeline`: what the ranks of a process group recorded with `SHOAL_COMM_TIMELINE`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use shoal_comm::timeline::{files_of, merge_files};

use crate::{exit::Exit, output::show};

/// Subcommands of `shoal timeline`.
#[derive(Debug, Subcommand)]
pub(crate) enum TimelineCommand {
    /// Make one Chrome trace of the ranks' files, each rank a row, on one clock; open it in
    /// Perfetto or chrome://tracing.
    Merge(MergeArgs),
}

/// Arguments of `shoal timeline merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Files that ranks wrote (rank-0.json, ...), or directories of them: with several hosts, one
    /// of each.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Where the trace goes.
    #[arg(short, long, value_name = "FILE", default_value = "timeline.json")]
    output: PathBuf,
}

/// Runs a subcommand.
pub(crate) fn run(command: &TimelineCommand) -> Result<Exit> {
    let TimelineCommand::Merge(args) = command;
    let mut files = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            files.extend(files_of(path)?);
        } else {
            files.push(path.clone());
        }
    }
    let ranks = merge_files(&files, &args.output)?;
    show(&format!("{}: {ranks} rank{}\n", args.output.display(), if ranks == 1 { "" } else { "s" }))?;
    Ok(Exit::Ok)
}
