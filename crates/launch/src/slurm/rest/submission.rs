//! What is sent to submit a job. The members of v0.0.38 are options of `sbatch` under other names;
//! those of later versions are Slurm's own description of a job.

use std::env;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use crate::slurm::Nodes;
use crate::slurm::hostlist::expand;
use crate::slurm::request::Request;

/// A version of slurmrestd's API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Slurm 22.05 to 23.11.
    #[default]
    V38,
    /// Slurm 23.02 to 24.05.
    V39,
    /// Slurm 23.11 and later.
    V40,
}

const VERSIONS: [(Version, &str); 3] =
    [(Version::V38, "v0.0.38"), (Version::V39, "v0.0.39"), (Version::V40, "v0.0.40")];

impl Version {
    pub(super) fn name(self) -> &'static str {
        VERSIONS.iter().find(|(version, _)| *version == self).map_or("", |(_, name)| name)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = VERSIONS.iter().find(|(_, name)| *name == text);
        let names = VERSIONS.map(|(_, name)| name).join(", ");
        known.map(|(version, _)| *version).ok_or_else(|| format!("{text:?} is none of {names}"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How an option of `sbatch` is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    option: &'static str,
    /// In v0.0.38.
    old: &'static str,
    /// Later.
    new: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// A number; later versions, too.
    Number,
    /// Later versions have a list of names.
    Names,
    /// Later versions have it among a node's resources.
    Gres,
}

const fn same(option: &'static str, name: &'static str) -> Member {
    Member { option, old: name, new: name, kind: Kind::Text }
}

const MEMBERS: [Member; 11] = [
    same("--partition", "partition"),
    same("--account", "account"),
    same("--qos", "qos"),
    same("--constraint", "constraints"),
    same("--reservation", "reservation"),
    same("--licenses", "licenses"),
    same("--wckey", "wckey"),
    Member { kind: Kind::Number, ..same("--nice", "nice") },
    Member { option: "--gres", old: "gres", new: "tres_per_node", kind: Kind::Gres },
    Member { option: "--exclude", old: "exclude_nodes", new: "excluded_nodes", kind: Kind::Names },
    Member { option: "--nodelist", old: "nodelist", new: "required_nodes", kind: Kind::Names },
];

/// What `--NAME=VALUE` is called there, with its value; none: there is no such member.
pub(super) fn member(option: &str) -> Option<(Member, &str)> {
    let (name, value) = option.split_once('=')?;
    let member = MEMBERS.iter().find(|member| member.option == name)?;
    (member.kind != Kind::Number || value.parse::<i64>().is_ok()).then_some((*member, value))
}

/// The body of a submission.
///
/// # Errors
/// An option has no member.
pub(super) fn body(version: Version, request: &Request) -> Result<Value, String> {
    let mut job = Map::new();
    let mut set = |name: &str, value: Value| drop(job.insert(name.to_owned(), value));
    set("name", json!(request.name));
    set("comment", json!(request.comment));
    set("current_working_directory", json!("/tmp"));
    for name in ["standard_input", "standard_output", "standard_error"] {
        set(name, json!("/dev/null"));
    }
    set("environment", environment(version));
    let is_old = version == Version::V38;
    // That version takes any `requeue` for true, and the first of two numbers in `nodes` alone.
    set(if is_old { "no_requeue" } else { "requeue" }, json!(is_old));
    set_size(version, request, &mut set);
    let mut of_node = set_gpus(version, request, &mut set);
    for option in &request.options {
        let (member, value) = member(option).ok_or_else(|| {
            format!("slurmrestd has no member for the option {option}: remove it from args, or `rest` from the target")
        })?;
        match member.kind {
            Kind::Gres if !is_old => of_node = value.split(',').map(str::to_owned).collect(),
            Kind::Number => set(member.new, json!(value.parse::<i64>().unwrap_or_default())),
            Kind::Names if !is_old => set(member.new, json!(expand(value))),
            _ if is_old => set(member.old, json!(value)),
            _ => set(member.new, json!(value)),
        }
    }
    if !of_node.is_empty() {
        let all = Vec::from_iter(of_node.iter().map(|text| resource(version, text)));
        set("tres_per_node", json!(all.join(",")));
    }
    Ok(json!({"job": job, "script": request.script}))
}

/// Nodes, processors, memory and time.
fn set_size(version: Version, request: &Request, set: &mut impl FnMut(&str, Value)) {
    let is_old = version == Version::V38;
    let number = |value: u64| if is_old { json!(value) } else { json!({"set": true, "number": value}) };
    let Request { hosts, cpus, megabytes, .. } = *request;
    match request.nodes {
        Nodes::Packed => set("tasks", json!(hosts)),
        Nodes::Spread | Nodes::Exclusive => {
            set("nodes", json!(format!("{hosts}-{hosts}")));
            set("tasks_per_node", json!(1));
        }
    }
    if cpus > 0 && request.nodes != Nodes::Exclusive {
        set("cpus_per_task", json!(cpus));
    }
    match request.nodes {
        Nodes::Exclusive => {
            set(if is_old { "exclusive" } else { "shared" }, if is_old { json!("exclusive") } else { json!(["none"]) });
            // All of a node's.
            set("memory_per_node", number(0));
        }
        Nodes::Packed if megabytes > 0 => set("memory_per_cpu", number(request.megabytes_per_cpu())),
        Nodes::Spread if megabytes > 0 => set("memory_per_node", number(megabytes)),
        Nodes::Packed | Nodes::Spread => {}
    }
    if let Some(minutes) = request.minutes {
        set("time_limit", number(minutes));
    }
}

/// Returns those that belong to a node's other generic resources.
fn set_gpus(version: Version, request: &Request, set: &mut impl FnMut(&str, Value)) -> Vec<String> {
    let (gpus, is_old) = (request.gpus, version == Version::V38);
    match request.nodes {
        Nodes::Exclusive => {}
        Nodes::Packed | Nodes::Spread if gpus == 0 => {}
        Nodes::Packed if is_old => set("gpus_per_task", json!(gpus.to_string())),
        Nodes::Packed => set("tres_per_task", json!(resource(version, &format!("gpu:{gpus}")))),
        Nodes::Spread if is_old => set("gpus_per_node", json!(gpus.to_string())),
        Nodes::Spread => return vec![format!("gpu:{gpus}")],
    }
    Vec::new()
}

/// A generic resource among others.
fn resource(version: Version, text: &str) -> String {
    format!("gres{}{text}", if version < Version::V40 { ":" } else { "/" })
}

/// What is so here and there, too. The user's home is found out by the script.
fn environment(version: Version) -> Value {
    let path = env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    let all =
        [("PATH".to_owned(), path)].into_iter().chain(env::var("LANG").ok().map(|lang| ("LANG".to_owned(), lang)));
    match version {
        Version::V38 => Value::Object(all.map(|(name, value)| (name, json!(value))).collect()),
        _ => all.map(|(name, value)| json!(format!("{name}={value}"))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(nodes: Nodes, options: &[&str]) -> Request {
        Request {
            name: "shoal-a".to_owned(),
            script: "#!/bin/sh\n".to_owned(),
            hosts: 2,
            nodes,
            cpus: 4,
            megabytes: 1000,
            gpus: 1,
            minutes: Some(90),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..Request::default()
        }
    }

    /// The members of a job but those that are always the same.
    fn job(version: Version, nodes: Nodes, options: &[&str]) -> Value {
        let mut body = body(version, &request(nodes, options)).expect("a body");
        assert_eq!(body["script"], "#!/bin/sh\n");
        let job = body["job"].as_object_mut().expect("an object");
        assert!(job.remove("environment").is_some_and(|it| it.to_string().contains("PATH")));
        let always =
            ["name", "comment", "current_working_directory", "standard_input", "standard_output", "standard_error"];
        for name in always {
            assert!(job.remove(name).is_some(), "{name}");
        }
        let is_requeued = (job.remove("requeue"), job.remove("no_requeue"));
        assert!(matches!(is_requeued, (Some(Value::Bool(false)), None) | (None, Some(Value::Bool(true)))));
        body["job"].clone()
    }

    #[test]
    fn v38_has_the_options_of_sbatch() {
        assert_eq!(
            job(Version::V38, Nodes::Spread, &["--partition=a", "--gres=gpu:8", "--exclude=n[1-2]", "--partition=b"]),
            json!({"nodes": "2-2", "tasks_per_node": 1, "cpus_per_task": 4, "memory_per_node": 1000, "time_limit": 90,
                "gpus_per_node": "1", "partition": "b", "gres": "gpu:8", "exclude_nodes": "n[1-2]"})
        );
        assert_eq!(
            job(Version::V38, Nodes::Exclusive, &[]),
            json!({"nodes": "2-2", "tasks_per_node": 1, "exclusive": "exclusive", "memory_per_node": 0, "time_limit": 90})
        );
        assert_eq!(
            job(Version::V38, Nodes::Packed, &["--nice=5"]),
            json!({"tasks": 2, "cpus_per_task": 4, "memory_per_cpu": 250, "time_limit": 90, "gpus_per_task": "1", "nice": 5})
        );
    }

    #[test]
    fn later_versions_have_numbers_with_set_and_lists() {
        assert_eq!(
            job(Version::V40, Nodes::Spread, &["--constraint=a100", "--exclude=n[1-2]"]),
            json!({"nodes": "2-2", "tasks_per_node": 1, "cpus_per_task": 4,
                "memory_per_node": {"set": true, "number": 1000}, "time_limit": {"set": true, "number": 90},
                "tres_per_node": "gres/gpu:1", "constraints": "a100", "excluded_nodes": ["n1", "n2"]})
        );
        assert_eq!(job(Version::V39, Nodes::Spread, &["--gres=gpu:8"])["tres_per_node"], "gres:gpu:8");
        assert_eq!(job(Version::V39, Nodes::Exclusive, &[])["shared"], json!(["none"]));
    }

    #[test]
    fn what_has_no_member_is_refused() {
        let error = body(Version::V38, &request(Nodes::Spread, &["--mem=9G"])).expect_err("there is no such member");
        assert!(error.contains("--mem=9G") && error.contains("remove it from args"), "{error}");
        assert!(member("--nice=low").is_none() && member("--exclusive").is_none() && member("--qos=a").is_some());
        assert!("v0.0.37".parse::<Version>().is_err_and(|error| error.contains("v0.0.38, v0.0.39, v0.0.40")));
    }
}
