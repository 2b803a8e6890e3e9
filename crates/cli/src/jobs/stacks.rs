//! `shoal jobs stacks`: what every process of a running training job is doing, seen from outside.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::visit::{End, Visit, broken, write};
use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::show,
    settings::ClientFlags,
};

/// Arguments of `shoal jobs stacks`.
#[derive(Debug, Args)]
pub(crate) struct StacksArgs {
    /// Training job's name.
    name: String,
    /// Of the instance of this rank alone, from 0: that of algo-1.
    #[arg(long)]
    rank: Option<u32>,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Prints the stacks, instance by instance.
pub(crate) fn run(args: &StacksArgs) -> Result<Exit> {
    let client = Arc::new(Client::connect(&args.settings)?);
    let name = &args.name;
    let answer = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name}));
    let description = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "stacks", name))?;
    let instances = description["ResourceConfig"]["InstanceCount"]
        .as_u64()
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(1);
    let ranks = args.rank.map_or_else(|| (0..instances).collect(), |rank| vec![rank]);
    for rank in ranks {
        let visit = Visit::start(&client, name, rank, json!({}))?;
        show(&format!("algo-{}\n", rank + 1))?;
        if let End::Broken(reason) = visit.read(write)? {
            return Err(broken(name, rank, &reason));
        }
    }
    Ok(Exit::Ok)
}
