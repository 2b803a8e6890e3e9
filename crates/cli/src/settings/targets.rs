//! The compute targets that `shoal.toml` lists, each as `[target.NAME]`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::Result;
use shoal_launch::{Nodes, SlurmOptions, SlurmType};
use shoal_plane::Node;
use shoal_server::{ComputeTarget, ComputeTargets};

use super::{Typed, sizes::bytes, wrong};
use crate::exit::UsageError;

/// Instances that are submitted to a target at once, where it names no number.
const INSTANCES: u32 = 1000;
/// Between two questions to a scheduler.
const INTERVAL: Duration = Duration::from_secs(1);
/// Options of `sbatch` that have a member of their own.
const SBATCH: [&str; 6] = ["partition", "account", "qos", "constraint", "gres", "reservation"];

/// A compute target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// Most instances that are submitted at once.
    pub(crate) instances: u32,
    /// On its nodes, where agents keep environments and inputs; none: in the user's home.
    pub(crate) cache: Option<PathBuf>,
    /// A directory that all nodes see, where inputs are put once.
    pub(crate) shared: Option<PathBuf>,
    /// Most bytes that are kept there for the next job.
    pub(crate) shared_size: Option<u64>,
    pub(crate) slurm: SlurmOptions,
}

/// In the order of their names.
pub(super) fn targets(typed: &Typed) -> Result<Vec<Target>> {
    let Some((origin, tables)) = typed.targets() else { return Ok(Vec::new()) };
    if typed.value("agents_listen") == "none" {
        return Err(UsageError(format!(
            "[target] ({origin}) is of no use without agents_listen: agents of compute targets connect there. Set it to \
             an address of this machine that their nodes reach, such as agents_listen = \"0.0.0.0:9778\", and \
             agents_address to its name"
        ))
        .into());
    }
    tables.iter().map(|(name, table)| Ok(target(name, table, &format!("[target.{name}] ({origin})"))?)).collect()
}

/// As jobs choose among them.
pub(super) fn choice(typed: &Typed, targets: &[Target]) -> Result<ComputeTargets> {
    let default = Some(typed.value("default_target")).filter(|name| *name != Node::LOCAL);
    if default.is_some_and(|name| targets.iter().all(|target| target.name != name)) {
        let names = std::iter::once(Node::LOCAL).chain(targets.iter().map(|target| target.name.as_str()));
        return Err(wrong(typed, "default_target", &format!("one of {}", Vec::from_iter(names).join(", "))));
    }
    let of_target = |target: &Target| ComputeTarget {
        name: target.name.clone(),
        types: target.slurm.types.keys().cloned().collect(),
    };
    Ok(ComputeTargets { all: targets.iter().map(of_target).collect(), default: default.map(str::to_owned) })
}

fn target(name: &str, table: &toml::Table, place: &str) -> Result<Target, UsageError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !(1..=63).contains(&name.len()) || !name.bytes().all(is_letter) || name == Node::LOCAL {
        return Err(UsageError(format!(
            "{place}: a target's name is 1 to 63 of A-Z, a-z, 0-9, '.', '-' and '_', and not \"local\", which is this \
             machine"
        )));
    }
    known(
        table,
        &["kind", "conf", "instances", "program", "cache", "shared", "shared_size", "nodes", "args", "types"],
        place,
    )?;
    match text(table, "kind", place)?.as_deref() {
        Some("slurm") => {}
        Some(other) => {
            return Err(UsageError(format!("{place}: kind = {other:?} is none that there is: give \"slurm\"")));
        }
        None => return Err(UsageError(format!("{place}: kind is missing: give \"slurm\""))),
    }
    let instances = match table.get("instances") {
        None => INSTANCES,
        Some(value) => value
            .as_integer()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or_else(|| UsageError(format!("{place}: instances = {value} is not a number, at least 1")))?,
    };
    let path = |name: &str, what: &str| match text(table, name, place)?.map(PathBuf::from) {
        Some(path) if path.is_relative() => Err(UsageError(format!("{place}: {name} is {what}: it starts with /"))),
        path => Ok(path),
    };
    let program = path("program", "the path of shoal on the nodes")?;
    let cache = path("cache", "the directory on the nodes for environments and inputs")?;
    let shared = path("shared", "a directory that all nodes see")?;
    let size = |text: String| {
        let wrong = || UsageError(format!("{place}: shared_size = {text:?} is not a size such as \"200GiB\""));
        bytes(&text).ok_or_else(wrong)
    };
    let shared_size = text(table, "shared_size", place)?.map(size).transpose()?;
    let conf = path("conf", "the path of the cluster's slurm.conf on this machine")?;
    let args = arguments(table, place)?;
    let none = toml::Table::new();
    let types = match table.get("types") {
        None => &none,
        Some(value) => value.as_table().ok_or_else(|| {
            UsageError(format!("{place}: types is a table: types.\"ml.g5.xlarge\" = {{ partition = \"gpu\" }}"))
        })?,
    };
    let types = types.iter().map(|(kind, value)| {
        let place = format!("{place}: types.{kind:?}");
        let table = value.as_table().ok_or_else(|| UsageError(format!("{place} is not a table")))?;
        known(table, &["nodes", "args"], &place)?;
        Ok((kind.clone(), SlurmType { args: arguments(table, &place)?, nodes: nodes(table, &place)? }))
    });
    let types = types.collect::<Result<BTreeMap<_, _>, UsageError>>()?;
    let nodes = nodes(table, place)?.unwrap_or_default();
    let slurm = SlurmOptions {
        target: name.to_owned(),
        conf,
        program,
        env: Vec::new(),
        args,
        nodes,
        types,
        interval: INTERVAL,
    };
    Ok(Target { name: name.to_owned(), instances, cache, shared, shared_size, slurm })
}

fn known(table: &toml::Table, members: &[&str], place: &str) -> Result<(), UsageError> {
    let mut members = Vec::from_iter(members.iter().chain(&SBATCH).copied());
    members.sort_unstable();
    match table.keys().find(|name| !members.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let there_are = members.join(", ");
            Err(UsageError(format!("{place}: there is no {unknown:?} here; there are: {there_are}")))
        }
    }
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

fn text(table: &toml::Table, name: &str, place: &str) -> Result<Option<String>, UsageError> {
    match table.get(name) {
        None => Ok(None),
        Some(value) => match value.as_str().filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(UsageError(format!("{place}: {name} = {value} is not a text"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::Settings;

    fn read(file: &str) -> Result<Settings, String> {
        let flags = BTreeMap::from([("data_dir".to_owned(), "/data".to_owned())]);
        let file = format!("agents_listen = \"0.0.0.0:0\"\n{file}");
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.clone()));
        let typed = Typed::gather(&flags, &|_| None, &read).map_err(|error| format!("{error:#}"))?;
        Settings::of(&typed).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_slurm_cluster_and_its_types() {
        let settings = read(
            "default_target = \"lab\"\n[target.lab]\nkind = \"slurm\"\ninstances = 8\npartition = \"main\"\n\
             args = [\"--exclude=n3\"]\nshared = \"/scratch\"\nshared_size = \"1TiB\"\ntypes.\"ml.p4d.24xlarge\" = { gres = \"gpu:8\", nodes = \"exclusive\" }\n",
        )
        .unwrap();
        let [Target { name, instances, slurm, shared, shared_size, .. }] = &settings.targets[..] else {
            panic!("one target")
        };
        assert_eq!((shared.as_deref(), *shared_size), (Some(Path::new("/scratch")), Some(1 << 40)));
        assert_eq!((&**name, *instances), ("lab", 8));
        assert_eq!(slurm.args, ["--partition=main", "--exclude=n3"]);
        let of_type = &slurm.types["ml.p4d.24xlarge"];
        assert_eq!((&of_type.args[..], of_type.nodes), (&["--gres=gpu:8".to_owned()][..], Some(Nodes::Exclusive)));
        assert_eq!(settings.compute_targets.default.as_deref(), Some("lab"));
        assert_eq!(settings.compute_targets.all[0].types, ["ml.p4d.24xlarge"]);
    }

    #[test]
    fn mistakes_are_explained() {
        for (file, expected) in [
            ("[target.a]\n", "[target.a] (file /data/shoal.toml): kind is missing: give \"slurm\""),
            ("[target.a]\nkind = \"pbs\"\n", "kind = \"pbs\" is none that there is: give \"slurm\""),
            ("[target.local]\nkind = \"slurm\"\n", "not \"local\", which is this machine"),
            (
                "[target.a]\nkind = \"slurm\"\npartitoin = \"x\"\n",
                "there is no \"partitoin\" here; there are: account, ",
            ),
            ("[target.a]\nkind = \"slurm\"\ninstances = 0\n", "instances = 0 is not a number, at least 1"),
            ("[target.a]\nkind = \"slurm\"\nshared = \"scratch\"\n", "it starts with /"),
            ("[target.a]\nkind = \"slurm\"\nshared_size = \"big\"\n", "is not a size such as \"200GiB\""),
            ("[target.a]\nkind = \"slurm\"\nargs = \"x\"\n", "args is a list of texts"),
            ("[target.a]\nkind = \"slurm\"\nprogram = \"shoal\"\n", "it starts with /"),
            (
                "[target.a]\nkind = \"slurm\"\ntypes.\"ml.x\" = { nodes = \"some\" }\n",
                "types.\"ml.x\": nodes = \"some\" is none of \"spread\"",
            ),
            ("default_target = \"b\"\n[target.a]\nkind = \"slurm\"\n", "one of local, a"),
            ("target = 1\n", "compute targets are tables: write [target.NAME] above each of them"),
        ] {
            let error = read(file).unwrap_err();
            assert!(error.contains(expected), "{file}: {error}");
        }
        let flags = BTreeMap::from([("data_dir".to_owned(), "/data".to_owned())]);
        let read = |_: &Path| Ok(Some("[target.a]\nkind = \"slurm\"\n".to_owned()));
        let typed = Typed::gather(&flags, &|_| None, &read).unwrap();
        let error = format!("{:#}", Settings::of(&typed).unwrap_err());
        assert!(error.contains("is of no use without agents_listen"), "{error}");
    }
}
