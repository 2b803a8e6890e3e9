//! `shoal-bench comm-rank`: one rank of ours; `shoal-bench comm` starts them.

use anyhow::{Context, Result};
use clap::Args;
use shoal_comm::{
    ProcessGroupExt,
    bench::{Case, Operation, Summary, measure, stay_on_a_core},
    join,
    rendezvous::{Carrier, Config, Meeting},
};

use shoal_cli::{exit::Exit, output::show};

/// Arguments of `shoal-bench comm-rank`.
#[derive(Debug, Args)]
pub(crate) struct RankArgs {
    /// Seconds for each case.
    #[arg(long)]
    seconds: f64,
    /// Vectors in the group's memory.
    #[arg(long)]
    registered: bool,
    /// OPERATION:BYTES.
    #[arg(required = true, value_parser = case)]
    cases: Vec<(Operation, usize)>,
}

fn case(text: &str) -> Result<(Operation, usize), String> {
    let (operation, bytes) = text.split_once(':').ok_or("OPERATION:BYTES")?;
    Ok((operation.parse()?, bytes.parse().map_err(|_| format!("{bytes:?} is no number of bytes"))?))
}

/// Joins the group that the environment names and measures with it; rank 0 prints.
pub(crate) fn run(args: &RankArgs) -> Result<Exit> {
    let directory = std::env::var_os("SHOAL_COMM_DIRECTORY")
        .context("SHOAL_COMM_DIRECTORY is not set: `cargo xtask bench comm` starts ranks")?;
    let directory = std::path::PathBuf::from(directory);
    let variable = |name: &str| std::env::var(name).ok();
    let group = join(Config::read_at(Meeting::Directory(directory.join("measured")), variable)?)?;
    // Ranks meet before each iteration in shared memory, whatever is measured: a barrier over TCP
    // would let them go at different times.
    let starting =
        join(Config::read_at(Meeting::Directory(directory.join("starting")), variable)?.carrier(Carrier::Auto))?;
    stay_on_a_core(group.rank(), group.size());
    for (operation, bytes) in &args.cases {
        let case = Case { operation: *operation, bytes: *bytes, registered: args.registered, seconds: args.seconds };
        let times = measure(&*group, &mut || starting.barrier(), &case)?;
        let iterations = times.len();
        let Summary { least, median, p90 } = Summary::of(times).context("nothing was measured")?;
        if group.rank() == 0 {
            show(&format!(
                "{},{},{bytes},{iterations},{least:.2},{median:.2},{p90:.2}\n",
                operation.name(),
                group.size()
            ))?;
        }
    }
    starting.barrier()?;
    Ok(Exit::Ok)
}
