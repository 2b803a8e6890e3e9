//! `shoal advise`: which layout to train a model with, from measured costs in a file.

mod links;

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use serde_json::json;
use shoal_comm::rendezvous::MOST_RANKS;
use shoal_parallel::{
    Degrees, Pipeline, Zero,
    advise::{Advice, Question, advise},
};

use crate::{
    exit::{Exit, UsageError},
    output::{show, show_json, table},
};

/// Arguments of `shoal advise`.
#[derive(Debug, Args)]
#[command(after_help = "`shoal advise --help` shows such a \
                        file.", after_long_help = FILE, group(ArgGroup::new("what").required(true)))]
pub(crate) struct AdviseArgs {
    /// JSON with what was measured.
    #[arg(value_name = "FILE", group = "what")]
    file: Option<PathBuf>,
    /// Measure latency and bandwidth instead, and print them for that file: between this many ranks
    /// of this machine, or with `env` between the ranks of the process group that RANK, WORLD_SIZE,
    /// MASTER_ADDR and MASTER_PORT describe, with this process as one of them.
    #[arg(long, value_name = "RANKS|env", group = "what")]
    links: Option<Ranks>,
    /// How many layouts to print, best first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print the layouts as JSON, with the first layer of each stage.
    #[arg(long)]
    json: bool,
}

/// Between which ranks links are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ranks {
    OfThisMachine(usize),
    OfTheEnvironment,
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ranks) if (2..=MOST_RANKS).contains(&ranks) => Ok(Self::OfThisMachine(ranks)),
            _ if text == "env" => Ok(Self::OfTheEnvironment),
            _ => Err(format!("give a number from 2 to {MOST_RANKS}, or `env`")),
        }
    }
}

/// What `--help` tells beyond the arguments.
const FILE: &str = "\
The file says what each layer costs for one sample on one rank, and where it is to run. Times are in seconds, sizes in \
                    bytes.
  {
    \"layers\": [
      {\"forward\": 0.002, \"backward\": 0.004, \"parameters\": 3000000, \"activations\": 4194304, \"output\": 262144,
       \"overhead\": 0.0001, \"tensor\": {\"part\": 0.95, \"divides\": 8, \"reduced\": 524288}},
      {\"forward\": 0.002, \"backward\": 0.004, \"parameters\": 3000000, \"activations\": 4194304, \"output\": 262144}
    ],
    \"machine\": {\"ranks\": 4, \"memory\": 4294967296, \"inside\": {\"latency\": 0.00002, \"bandwidth\": 5e9}},
    \"batch\": 64,
    \"precision\": {\"parameter\": 4, \"gradient\": 4, \"state\": 8}
  }
Of a layer: activations are kept until the backward pass, output goes to the next stage, overhead is a forward pass of \
                    no samples (optional);
tensor (optional) says which part of the layer tensor ranks share, what their number must divide, and what a pass \
                    all-reduces for a sample.
Of the machine, optional: reserved (bytes that are not for the model), ranks_per_host and between (the link between \
                    hosts), at_once (how many
ranks of a host compute at once as fast as one alone). Optional, too: update (seconds of the optimizer for each \
                    parameter), handover
(seconds that a rank computes to send a micro-batch to another stage, or to receive it) and overlap (which part of the \
                    last backward pass the
gradients' way hides behind, 0 to 1). `shoal advise --links 4` measures latency and bandwidth
between 4 ranks of this machine; with `--links env`, started once for each rank, between hosts.

Columns: degrees of data, shard (with ZeRO's level), pipeline and tensor parallelism; micro-batches of a step on each \
                    rank; seconds of a step;
of them, the share in which ranks wait for the pipeline, and seconds of exchange that nothing hides; memory of the \
                    fullest rank.
Layouts that do not fit come last. docs/parallel.md says how the prediction is made.";

/// Advises, or measures what advice needs.
pub(crate) fn run(args: &AdviseArgs) -> Result<Exit> {
    match (&args.file, args.links) {
        (Some(file), _) => from_file(file, args),
        (None, Some(ranks)) => print_link(ranks),
        (None, None) => unreachable!("clap requires one of them"),
    }
}

fn print_link(ranks: Ranks) -> Result<Exit> {
    let measured = match ranks {
        Ranks::OfThisMachine(ranks) => Some(links::of_this_machine(ranks)?),
        Ranks::OfTheEnvironment => links::of_the_environment()?,
    };
    if let Some(link) = measured {
        show_json(&json!({"latency": link.latency, "bandwidth": link.bandwidth}))?;
    }
    Ok(Exit::Ok)
}

fn from_file(file: &Path, args: &AdviseArgs) -> Result<Exit> {
    let path = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("could not read {path}"))?;
    let question: Question = serde_json::from_str(&text)
        .map_err(|error| UsageError(format!("{path}: {error}; `shoal advise --help` shows a file that is complete")))?;
    let all = match advise(&question) {
        Ok(all) => all,
        Err(error) => bail!(UsageError(format!("{path}: {error}"))),
    };
    let shown = &all[..all.len().min(args.top)];
    if args.json {
        show_json(&serde_json::to_value(shown)?)?;
    } else {
        show(&listing(shown, all.len()))?;
    }
    Ok(Exit::Ok)
}

fn listing(shown: &[Advice], all: usize) -> String {
    let head = [
        "data",
        "shard",
        "pipeline",
        "tensor",
        "schedule",
        "micro-batches",
        "step",
        "waiting",
        "exchange",
        "memory",
        "",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(shown.iter().map(row));
    let rest = if all > shown.len() {
        format!("{} of {all} layouts; --top prints more.\n", shown.len())
    } else {
        String::new()
    };
    table(&rows) + &rest
}

fn row(advice: &Advice) -> Vec<String> {
    let Degrees { data, shard, pipeline, tensor, .. } = advice.degrees;
    let level = match advice.zero {
        Zero::None => "",
        Zero::State => " (ZeRO 1)",
        Zero::Gradients => " (ZeRO 2)",
        Zero::Parameters => " (ZeRO 3)",
    };
    let schedule = match advice.pipeline {
        None => "-",
        Some(Pipeline::Gpipe) => "GPipe",
        Some(Pipeline::OneForwardOneBackward) => "1F1B",
        Some(Pipeline::Interleaved { .. }) => "interleaved",
        Some(Pipeline::ZeroBubble) => "ZB-H1",
        Some(Pipeline::Dynamic { .. }) => "dynamic",
    };
    vec![
        data.unwrap_or(1).to_string(),
        format!("{shard}{level}"),
        pipeline.to_string(),
        tensor.to_string(),
        schedule.to_owned(),
        advice.microbatches.to_string(),
        format!("{:.4} s", advice.step),
        format!("{:.1} %", 100.0 * advice.idle),
        format!("{:.4} s", advice.exchange),
        format!("{:.1} MiB", advice.memory as f64 / f64::from(1 << 20)),
        if advice.fits { "" } else { "does not fit" }.to_owned(),
    ]
}
