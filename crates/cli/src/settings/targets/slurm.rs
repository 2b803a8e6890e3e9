//! `kind = "slurm"`.

use std::time::Duration;

use shoal_launch::{Nodes, SlurmOptions, SlurmType};

use super::{Scheduler, Target, instances, known, path, text, types};
use crate::{exit::UsageError, settings::sizes::bytes};

/// Between two questions to the controller.
const INTERVAL: Duration = Duration::from_secs(1);
/// Options of `sbatch` that have a member of their own.
const SBATCH: [&str; 6] = ["partition", "account", "qos", "constraint", "gres", "reservation"];

pub(super) fn target(name: &str, table: &toml::Table, place: &str) -> Result<Target, UsageError> {
    let members = ["kind", "conf", "instances", "program", "cache", "shared", "shared_size", "nodes", "args", "types"];
    known(table, &[&members, &SBATCH], place)?;
    let slurm = SlurmOptions {
        target: name.to_owned(),
        conf: path(table, "conf", place, "the path of the cluster's slurm.conf on this machine")?,
        program: path(table, "program", place, "the path of shoal on the nodes")?,
        env: Vec::new(),
        args: arguments(table, place)?,
        nodes: nodes(table, place)?.unwrap_or_default(),
        types: types(table, place, "partition = \"gpu\"", |table, place| {
            known(table, &[&["nodes", "args"], &SBATCH], place)?;
            Ok(SlurmType { args: arguments(table, place)?, nodes: nodes(table, place)? })
        })?,
        interval: INTERVAL,
    };
    Ok(Target {
        name: name.to_owned(),
        instances: instances(table, place)?,
        cache: path(table, "cache", place, "the directory on the nodes for environments and inputs")?,
        shared: path(table, "shared", place, "a directory that all nodes see")?,
        shared_size: shared_size(table, place)?,
        scheduler: Scheduler::Slurm(slurm),
    })
}

fn shared_size(table: &toml::Table, place: &str) -> Result<Option<u64>, UsageError> {
    let size = |text: String| {
        let wrong = || UsageError(format!("{place}: shared_size = {text:?} is not a size such as \"200GiB\""));
        bytes(&text).ok_or_else(wrong)
    };
    text(table, "shared_size", place)?.map(size).transpose()
}

fn nodes(table: &toml::Table, place: &str) -> Result<Option<Nodes>, UsageError> {
    Ok(match text(table, "nodes", place)?.as_deref() {
        None => None,
        Some("spread") => Some(Nodes::Spread),
        Some("exclusive") => Some(Nodes::Exclusive),
        Some("packed") => Some(Nodes::Packed),
        Some(other) => {
            return Err(UsageError(format!(
                "{place}: nodes = {other:?} is none of \"spread\" (each instance of a job on another node), \"exclusive\" \
                 (and alone there) and \"packed\" (as many on a node as fit)"
            )));
        }
    })
}

/// Arguments of `sbatch`.
fn arguments(table: &toml::Table, place: &str) -> Result<Vec<String>, UsageError> {
    let mut args = Vec::new();
    for name in SBATCH {
        args.extend(text(table, name, place)?.map(|value| format!("--{name}={value}")));
    }
    let wrong = || UsageError(format!("{place}: args is a list of texts, such as [\"--exclude=n3\"]"));
    let given = table.get("args").map(|value| value.as_array().ok_or_else(wrong)).transpose()?;
    for value in given.into_iter().flatten() {
        args.push(value.as_str().ok_or_else(wrong)?.to_owned());
    }
    Ok(args)
}
