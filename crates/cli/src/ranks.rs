//! `shoal ranks`: the launcher of a distributed program's ranks, inside its instances.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use shoal_agent::ranks::{self, RankNames, Ranks};

use crate::exit;

/// Arguments of `shoal ranks`.
#[derive(Debug, Args)]
pub(crate) struct RanksArgs {
    /// The variables that tell a rank its number.
    #[arg(long)]
    names: Names,
    /// All instances, in the order of ranks.
    #[arg(long, value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// This instance's number among them.
    #[arg(long)]
    node: u32,
    /// Ranks on each.
    #[arg(long)]
    per_host: u32,
    /// Ranks in all.
    #[arg(long)]
    in_all: Option<u32>,
    /// A variable of all ranks: NAME=VALUE.
    #[arg(long = "variable")]
    variables: Vec<String>,
    /// Program and arguments of each rank.
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Names {
    DataParallel,
    Mpi,
}

/// Runs the ranks to their end, and ends with their exit code.
pub(crate) fn run(args: RanksArgs) -> ExitCode {
    let RanksArgs { names, hosts, node, per_host, in_all, variables, program } = args;
    let names = match names {
        Names::DataParallel => RankNames::DataParallel,
        Names::Mpi => RankNames::Mpi,
    };
    exit::of_program(ranks::run(&Ranks { names, hosts, node, per_host: per_host.max(1), in_all, variables, program }))
}
