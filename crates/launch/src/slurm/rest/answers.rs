//! What slurmrestd answers, of all versions that are known here. Nothing here asks it.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Version;
use crate::slurm::hostlist::expand;
use crate::slurm::partitions::{Counts, Partition};
use crate::slurm::queue::{Job, State, state_of};

/// Of nodes that take no jobs.
const OTHER: [&str; 11] = [
    "DOWN",
    "DRAIN",
    "FAIL",
    "ERROR",
    "UNKNOWN",
    "FUTURE",
    "INVAL",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "NO_RESPOND",
    "POWERED_DOWN",
];

/// A version's answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers {
    pub(super) version: Version,
}

/// A number: as it is, or as `{set, infinite, number}`.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Object(members) if members.get("set") == Some(&Value::Bool(true)) => {
            let is_infinite = members.get("infinite") == Some(&Value::Bool(true));
            members.get("number").filter(|_| !is_infinite)?.as_u64()
        }
        value => value.as_u64(),
    }
}

/// Words: one, or a list.
fn words(value: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().map(str::to_uppercase);
    match value {
        Value::Array(all) => all.iter().filter_map(word).collect(),
        value => word(value).into_iter().collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().filter(|text| !matches!(*text, "None" | "N/A" | "(null)")).unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The errors of an answer, one in a line; none: it has none.
pub(super) fn errors(answer: &Value) -> Option<String> {
    let error = |error: &Value| {
        let of = |name: &str| error[name].as_str().filter(|text| !text.is_empty());
        match (of("description"), of("error")) {
            (Some(description), Some(error)) if description != error => format!("{description}: {error}"),
            (Some(text), _) | (None, Some(text)) => text.to_owned(),
            (None, None) => error.to_string(),
        }
    };
    let mut all = Vec::from_iter(list(&answer["errors"]).iter().map(error));
    all.dedup();
    (!all.is_empty()).then(|| all.join("\n"))
}

/// The numbers of an answer's errors, whatever a version calls them.
pub(super) fn error_numbers(answer: &Value) -> Vec<i64> {
    let names = ["error_number", "error_code", "errno"];
    let number = |error: &Value| names.iter().find_map(|name| error[*name].as_i64());
    list(&answer["errors"]).iter().filter_map(number).collect()
}

impl Answers {
    pub(super) fn jobs(&self, answer: &Value) -> BTreeMap<u64, Job> {
        list(&answer["jobs"]).iter().filter_map(job).collect()
    }

    /// Partitions, whose nodes' states are in another answer.
    pub(super) fn partitions(&self, partitions: &Value, nodes: &Value) -> Vec<Partition> {
        let nodes = Vec::from_iter(list(&nodes["nodes"]).iter().map(|node| self.node(node)));
        list(&partitions["partitions"]).iter().flat_map(|partition| self.partition(partition, &nodes)).collect()
    }

    pub(super) fn nodes_down(&self, nodes: &Value) -> Vec<String> {
        let nodes = list(&nodes["nodes"]).iter().map(|node| self.node(node));
        nodes.filter(|node| node.is_down).map(|node| node.name).collect()
    }

    /// One for each kind of node, as `sinfo` has it.
    fn partition(&self, partition: &Value, nodes: &[Node]) -> Vec<Partition> {
        let is_old = self.version == Version::V38;
        let names = expand(&text(if is_old { &partition["nodes"] } else { &partition["nodes"]["configured"] }));
        let state = words(if is_old { &partition["state"] } else { &partition["partition"]["state"] });
        let limit = number(if is_old { &partition["max_time_limit"] } else { &partition["maximums"]["time"] });
        let empty = Partition {
            name: text(&partition["name"]),
            is_default: words(&partition["flags"]).iter().any(|flag| flag == "DEFAULT"),
            state: state.first().map(|state| state.to_lowercase()).unwrap_or_default(),
            limit: limit.map(minutes).unwrap_or_default(),
            ..Partition::default()
        };
        let mut by_gres = BTreeMap::new();
        for node in nodes.iter().filter(|node| names.contains(&node.name)) {
            let (nodes, cpus): &mut (Counts, Counts) = by_gres.entry(node.gres.clone()).or_default();
            nodes.all += 1;
            nodes.idle += u64::from(node.is_idle);
            nodes.other += u64::from(node.is_other);
            cpus.all += node.cpus;
            cpus.idle += if node.is_other { 0 } else { node.cpus.saturating_sub(node.allocated) };
        }
        if by_gres.is_empty() {
            return vec![empty];
        }
        by_gres.into_iter().map(|(gres, (nodes, cpus))| Partition { gres, nodes, cpus, ..empty.clone() }).collect()
    }

    fn node(&self, node: &Value) -> Node {
        let states = [words(&node["state"]), words(&node["state_flags"])].concat();
        let is = |word: &str| states.iter().any(|state| state.trim_end_matches('*') == word);
        let is_other = OTHER.iter().any(|other| is(other));
        Node {
            name: text(&node["name"]),
            gres: text(&node["gres"]),
            cpus: number(&node["cpus"]).unwrap_or_default(),
            allocated: number(&node["alloc_cpus"]).unwrap_or_default(),
            is_down: is("DOWN") || is("FAIL"),
            is_idle: is("IDLE") && !is_other,
            is_other,
        }
    }
}

struct Node {
    name: String,
    gres: String,
    cpus: u64,
    allocated: u64,
    is_down: bool,
    is_idle: bool,
    /// Down or drained.
    is_other: bool,
}

fn job(job: &Value) -> Option<(u64, Job)> {
    let states = Vec::from_iter(words(&job["job_state"]).iter().map(|word| state_of(word)));
    // Flags beside the state: it ends, however it does; its nodes are being started.
    let is = |wanted: State| states.iter().find(|state| **state == wanted);
    let flag = is(State::Ends).or_else(|| is(State::Boots));
    let start = number(&job["start_time"]).filter(|seconds| *seconds > 0);
    let start = start.and_then(|seconds| Timestamp::from_second(i64::try_from(seconds).ok()?).ok());
    Some((
        number(&job["job_id"])?,
        Job {
            state: *flag.or(states.first())?,
            reason: job["state_reason"].as_str().unwrap_or_default().to_owned(),
            start: start.map(|start| start.to_string()),
            nodes: text(&job["nodes"]),
            name: text(&job["name"]),
            user: text(&job["user_name"]),
            uid: None,
            comment: text(&job["comment"]),
        },
    ))
}

/// As Slurm writes a time: `1-02:30:00`.
fn minutes(minutes: u64) -> String {
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:00"),
        (0, hours) => format!("{hours}:{minutes:02}:00"),
        (days, hours) => format!("{days}-{hours:02}:{minutes:02}:00"),
    }
}

#[cfg(test)]
mod tests;
