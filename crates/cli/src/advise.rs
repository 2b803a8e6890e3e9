//! `shoal advise`: which layout to train a model with, from measured costs in a file.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
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
#[command(after_help = "`shoal advise --help` shows such a file.", after_long_help = FILE)]
pub(crate) struct AdviseArgs {
    /// JSON with what was measured.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How many layouts to print, best first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print the layouts as JSON, with the first layer of each stage.
    #[arg(long)]
    json: bool,
}

/// What `--help` tells beyond the arguments.
const FILE: &str = "\
The file says what each layer costs for one sample on one rank, and where it is to run. Times are in seconds, sizes in bytes.
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
Of a layer: activations are kept until the backward pass, output goes to the next stage, overhead is a forward pass of no samples (optional);
tensor (optional) says which part of the layer tensor ranks share, what their number must divide, and what a pass all-reduces for a sample.
Of the machine, optional: reserved (bytes that are not for the model), ranks_per_host and between (the link between hosts), at_once (how many
ranks of a host compute at once as fast as one alone). Optional, too: update (seconds of the optimizer for each parameter), handover
(seconds that a rank computes to send a micro-batch to another stage, or to receive it) and overlap (which part of the last backward pass the
gradients' way hides behind, 0 to 1). `shoal bench comm` measures latency and bandwidth.

Columns: degrees of data, shard (with ZeRO's level), pipeline and tensor parallelism; micro-batches of a step on each rank; seconds of a step;
of them, the share in which ranks wait for the pipeline, and seconds of exchange that nothing hides; memory of the fullest rank.
Layouts that do not fit come last. docs/parallel.md says how the prediction is made.";

/// Reads, asks, prints.
pub(crate) fn run(args: &AdviseArgs) -> Result<Exit> {
    let path = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("could not read {path}"))?;
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
    let head = ["data", "shard", "pipeline", "tensor", "schedule", "micro-batches", "step", "waiting", "exchange", "memory", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(shown.iter().map(row));
    let rest = if all > shown.len() { format!("{} of {all} layouts; --top prints more.\n", shown.len()) } else { String::new() };
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
