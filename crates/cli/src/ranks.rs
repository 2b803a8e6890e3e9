//! `shoal ranks`: the launcher of a distributed program's ranks, inside its instances.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use shoal_agent::ranks::{self, RankNames, Ranks};

use crate::exit::{self, Exit};

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
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    per_host: u32,
    /// Ranks in all.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
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
    if usize::try_from(node).is_ok_and(|node| node >= hosts.len()) {
        eprintln!("shoal ranks: --node {node}: --hosts names {}, counted from 0", hosts.len());
        return Exit::Usage.into();
    }
    let names = match names {
        Names::DataParallel => RankNames::DataParallel,
        Names::Mpi => RankNames::Mpi,
    };
    exit::of_program(ranks::run(&Ranks { names, hosts, node, per_host, in_all, variables, program }))
}
