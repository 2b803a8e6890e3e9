//! `kind = "slurm"`.

mod users;

use std::time::Duration;

use shoal_launch::{Nodes, RestAddress, RestOptions, RestToken, SlurmOptions, SlurmType};

use super::{OnNodes, Scheduler, Target, instances, known, path, text, types};
use crate::{exit::UsageError, settings::sizes::bytes};

/// Between two questions to the controller.
const INTERVAL: Duration = Duration::from_secs(1);
/// Options of `sbatch` that have a member of their own.
const SBATCH: [&str; 6] = ["partition", "account", "qos", "constraint", "gres", "reservation"];

/// What belongs to slurmrestd.
const REST: [&str; 5] = ["rest", "api_version", "user", "token_file", "token_command"];

pub(super) fn target(name: &str, table: &toml::Table, place: &str) -> Result<Target, UsageError> {
    let members = ["kind", "conf", "instances", "program", "cache", "shared", "shared_size", "nodes", "args", "types"];
    let members = [&members[..], &["file_systems"]].concat();
    known(table, &[&members, &SBATCH, &REST, &users::MEMBERS], place)?;
    let rest = rest(table, place)?;
    let slurm = SlurmOptions {
        target: name.to_owned(),
        conf: path(table, "conf", place, "the path of the cluster's slurm.conf on this machine")?,
        users: users::users(table, place, rest.as_ref())?,
        rest,
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
    if slurm.rest.is_some() {
        let of_types = slurm.types.values().flat_map(|of_type| &of_type.args);
        if let Some(option) = slurm.args.iter().chain(of_types).find(|option| !RestOptions::has_option(option)) {
            return Err(UsageError(format!(
                "{place}: slurmrestd has no member for {option:?}: remove it, or remove rest, so that sbatch is used"
            )));
        }
    }
    Ok(Target {
        name: name.to_owned(),
        instances: instances(table, place)?,
        cache: path(table, "cache", place, "the directory on the nodes for environments and inputs")?,
        shared: path(table, "shared", place, "a directory that all nodes see")?,
        shared_size: shared_size(table, place)?,
        file_systems: OnNodes::SamePaths(
            command(table, "file_systems", place, "[\"fs-0123456a\"]")?.unwrap_or_default(),
        ),
        scheduler: Scheduler::Slurm(Box::new(slurm)),
    })
}

/// How slurmrestd is reached, if it is to be used.
fn rest(table: &toml::Table, place: &str) -> Result<Option<RestOptions>, UsageError> {
    let wrong = |name: &str, problem: String| UsageError(format!("{place}: {name} = {problem}"));
    let Some(address) = text(table, "rest", place)? else {
        return match REST.iter().find(|name| table.contains_key(**name)) {
            None => Ok(None),
            Some(name) => Err(UsageError(format!(
                "{place}: {name} is of no use without rest, the address of slurmrestd, such as \"http://login1:6820\""
            ))),
        };
    };
    let address: RestAddress = address.parse().map_err(|problem| wrong("rest", problem))?;
    let version = text(table, "api_version", place)?.map(|text| text.parse()).transpose();
    let file = path(table, "token_file", place, "the path of a file with a token")?;
    let command = command(table, "token_command", place, "[\"scontrol\", \"token\", \"lifespan=3600\"]")?;
    let token = match (file, command) {
        (Some(_), Some(_)) => {
            return Err(UsageError(format!("{place}: token_file and token_command: give one of them")));
        }
        (Some(file), None) => Some(RestToken::File(file)),
        (None, command) => command.map(RestToken::Command),
    };
    if token.is_none() && matches!(address, RestAddress::Tcp { .. }) {
        return Err(UsageError(format!(
            "{place}: rest = \"{address}\" needs a token: give token_file, or token_command = [\"scontrol\", \"token\", \
             \"lifespan=3600\"]"
        )));
    }
    Ok(Some(RestOptions {
        address,
        version: version.map_err(|problem: String| wrong("api_version", problem))?.unwrap_or_default(),
        user: text(table, "user", place)?,
        token,
    }))
}

/// A list of texts, such as a command with its arguments.
fn command(table: &toml::Table, name: &str, place: &str, example: &str) -> Result<Option<Vec<String>>, UsageError> {
    let wrong = || UsageError(format!("{place}: {name} is a list of texts, such as {example}"));
    let Some(value) = table.get(name) else { return Ok(None) };
    let words = value.as_array().filter(|words| !words.is_empty()).ok_or_else(wrong)?;
    let words = words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>();
    Ok(Some(words.ok_or_else(wrong)?))
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
