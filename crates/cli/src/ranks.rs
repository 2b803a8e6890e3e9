//! `shoal ranks`: what starts the ranks of a distributed program, inside its instances.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use shoal_agent::ranks::{self, RankNames, Ranks};

use crate::exit::{self, Exit};

/// Arguments of `shoal ranks`.
#[derive(Debug, Args)]
pub(crate) struct RanksArgs {
    /// By which variables ranks learn who they are.
    #[arg(long)]
    names: Names,
    /// All instances, in the order of ranks.
    #[arg(long, value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// This one's place among them.
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
    /// What each rank runs.
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Names {
    DataParallel,
    Mpi,
}

/// Runs them to their end, and ends as they do.
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
