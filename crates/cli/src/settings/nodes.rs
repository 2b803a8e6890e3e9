//! The nodes for instances: those that `shoal.toml` lists, each as `[[node]]`, or this machine as
//! the only one.

use anyhow::Result;
use shoal_plane::{Node, Packing};

use super::{LEAST_MEMORY, Origin, Typed, at_least, memory, parse, readable, sizes::bytes, wrong};
use crate::exit::UsageError;

/// Settings of this machine as a node; a listed one has its own.
const OF_THIS_MACHINE: [&str; 4] = ["cpus", "memory", "gpus", "instances"];

pub(super) fn nodes(typed: &Typed) -> Result<Vec<Node>> {
    let local = Node {
        cpus: at_least(typed, "cpus", "a number of cores")?,
        memory_bytes: memory(typed)?,
        gpus: parse(typed, "gpus", "a number of GPUs")?,
        instances: at_least(typed, "instances", "a number of instances")?,
        ..Node::local()
    };
    let Some((origin, tables)) = typed.nodes() else { return Ok(vec![local]) };
    if typed.value("launch_command") == "none" {
        return Err(UsageError(format!(
            "[[node]] ({origin}) has no effect without launch_command, which starts agents on the nodes: set it, or \
             remove [[node]] to have all instances on this machine"
        ))
        .into());
    }
    if let Some(name) = OF_THIS_MACHINE.into_iter().find(|name| *typed.origin(name) != Origin::Default) {
        return Err(wrong(typed, name, "allowed beside [[node]]: remove it, as each node has its own"));
    }
    let mut nodes: Vec<Node> = Vec::new();
    for (number, table) in (1..).zip(tables) {
        let place = format!("[[node]] {number} ({origin})");
        let node = node(table, local.instances, &place)?;
        if node.name == Node::LOCAL {
            let message = "name = \"local\" is what a server without [[node]] calls its machine: choose another name";
            return Err(UsageError(format!("{place}: {message}")).into());
        }
        if nodes.iter().any(|other| other.name == node.name) {
            return Err(UsageError(format!("{place}: another node has the name {:?}, too", node.name)).into());
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// What instances use on other machines is not measured here.
pub(super) fn packing(typed: &Typed) -> Result<Packing> {
    let is_default = *typed.origin("packing") == Origin::Default;
    match typed.value("packing") {
        "use" if typed.nodes().is_none() => Ok(Packing::Use),
        "use" if is_default => Ok(Packing::Promise),
        "use" => Err(wrong(
            typed,
            "packing",
            "allowed beside [[node]]: remove it, as what instances use there is not measured",
        )),
        "promise" => Ok(Packing::Promise),
        _ => Err(wrong(typed, "packing", "`use` or `promise`")),
    }
}

fn node(table: &toml::Table, most_instances: u32, place: &str) -> Result<Node> {
    const MEMBERS: [&str; 5] = ["name", "cpus", "memory", "gpus", "instances"];
    if let Some(unknown) = table.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        let there_are = MEMBERS.join(", ");
        return Err(UsageError(format!("{place}: a node has no {unknown:?}; it has: {there_are}")).into());
    }
    let not = |name: &str, wanted: &str| match table.get(name) {
        None => UsageError(format!("{place}: {name} is missing: give {wanted}")),
        Some(value) => UsageError(format!("{place}: {name} = {value} is not {wanted}")),
    };
    let number = |name: &str, default: Option<u32>, least: u32, wanted: &str| match (table.get(name), default) {
        (None, Some(default)) => Ok(default),
        (value, _) => {
            let number = value.and_then(toml::Value::as_integer).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| *number >= least).ok_or_else(|| not(name, wanted))
        }
    };
    let is_name = |name: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        (1..=63).contains(&name.len()) && name.bytes().all(is_letter)
    };
    let name = table.get("name").and_then(toml::Value::as_str).filter(is_name);
    let memory = table.get("memory").and_then(toml::Value::as_str).and_then(bytes);
    let cpus = number("cpus", None, 1, "a number of cores, at least 1")?;
    Ok(Node {
        name: name.ok_or_else(|| not("name", "a name: 1 to 63 of A-Z, a-z, 0-9, '.', '-' and '_'"))?.to_owned(),
        cpus,
        memory_bytes: memory
            .filter(|bytes| *bytes >= LEAST_MEMORY)
            .ok_or_else(|| not("memory", "a size such as \"8GiB\", at least 64MiB"))?,
        gpus: number("gpus", Some(0), 0, "a number of GPUs")?,
        instances: number("instances", Some(most_instances), 1, "a number of instances, at least 1")?,
        has_scheduler: false,
    })
}

/// For people: `up to 4 instances at once, 16.0 GiB of memory, 8 cores`.
pub(crate) fn size_of(nodes: &[Node]) -> String {
    let sum = |of: fn(&Node) -> u64| nodes.iter().map(of).fold(0, u64::saturating_add);
    let gpus = match sum(|node| node.gpus.into()) {
        _ if nodes.len() == 1 && nodes[0].name == Node::LOCAL => String::new(),
        0 => String::new(),
        1 => ", 1 GPU".to_owned(),
        gpus => format!(", {gpus} GPUs"),
    };
    format!(
        "up to {} at once, {} of memory, {} cores{gpus}",
        sum(|node| node.instances.into()),
        readable(sum(|node| node.memory_bytes)),
        sum(|node| node.cpus.into())
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::Settings;

    const REMOTE: &str = "agents = { listen = \"0.0.0.0:9778\" }\nlaunch = { command = [\"run\"] }\n";
    const NODE: &str = "[[node]]\nname = \"a\"\ncpus = 4\nmemory = \"16GiB\"\n";

    fn settings(flags: &[(&str, &str)], file: &str) -> Result<Settings> {
        let flags = flags.iter().copied().chain([("data_dir", "/data")]);
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        Settings::of(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn nodes_are_listed_in_the_file() {
        let more = "[[node]]\nname = \"b\"\ncpus = 8\nmemory = \"1.5GiB\"\ngpus = 2\ninstances = 3\n";
        let settings = settings(&[], &format!("{REMOTE}{NODE}{more}")).unwrap();
        let of = |node: &Node| (node.name.clone(), node.cpus, node.memory_bytes, node.gpus, node.instances);
        assert_eq!(
            Vec::from_iter(settings.nodes.iter().map(of)),
            [("a".to_owned(), 4, 16 << 30, 0, 64), ("b".to_owned(), 8, 3 << 29, 2, 3)]
        );
        assert_eq!(settings.packing, Packing::Promise);
        assert_eq!(size_of(&settings.nodes), "up to 67 at once, 17.5 GiB of memory, 12 cores, 2 GPUs");
    }

    #[test]
    fn this_machine_is_the_only_one_without_a_list() {
        let settings = settings(&[("cpus", "3"), ("memory", "2GiB"), ("gpus", "1"), ("instances", "5")], "").unwrap();
        let node = Node { cpus: 3, memory_bytes: 2 << 30, gpus: 1, instances: 5, ..Node::local() };
        assert_eq!((settings.nodes, settings.packing), (vec![node], Packing::Use));
    }

    #[test]
    fn mistakes_name_the_node_and_say_what_to_write() {
        let of_two = format!("{REMOTE}{NODE}{NODE}");
        let with = |line: &str| format!("{REMOTE}{NODE}{line}\n");
        let instead = |from: &str, to: &str| format!("{REMOTE}{}", NODE.replace(from, to));
        for (file, expected) in [
            (NODE.to_owned(), "[[node]] (file /data/shoal.toml) has no effect without launch_command"),
            (of_two, "[[node]] 2 (file /data/shoal.toml): another node has the name \"a\", too"),
            (with("size = 1"), "[[node]] 1 (file /data/shoal.toml): a node has no \"size\"; it has: name, cpus, "),
            (with("gpus = -1"), "[[node]] 1 (file /data/shoal.toml): gpus = -1 is not a number of GPUs"),
            (instead("16GiB", "16"), "[[node]] 1 (file /data/shoal.toml): memory = \"16\" is not a size such as"),
            (instead("cpus = 4\n", ""), "[[node]] 1 (file /data/shoal.toml): cpus is missing: give a number of cores"),
            (instead("\"a\"", "\"a b\""), "[[node]] 1 (file /data/shoal.toml): name = \"a b\" is not a name"),
            (format!("memory = \"1GiB\"\n{REMOTE}{NODE}"), "memory = \"1GiB\" (file /data/shoal.toml) is not allowed"),
            (format!("packing = \"use\"\n{REMOTE}{NODE}"), "packing = \"use\" (file /data/shoal.toml) is not allowed"),
            ("[node]\nname = \"a\"\n".to_owned(), "/data/shoal.toml: nodes are a list: write [[node]] above each"),
        ] {
            let error = format!("{:#}", settings(&[], &file).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
