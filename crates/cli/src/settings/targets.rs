//! The compute targets that `shoal.toml` lists, each as `[target.NAME]`.

mod kubernetes;
mod slurm;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;
use shoal_launch::{KubernetesOptions, SlurmOptions};
use shoal_plane::Node;
use shoal_server::{ComputeTarget, ComputeTargets};

use super::{Typed, wrong};
use crate::exit::UsageError;

/// Instances that are submitted to a target at once, where it names no number.
const INSTANCES: u32 = 1000;
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
    pub(crate) file_systems: OnNodes,
    pub(crate) scheduler: Scheduler,
}

/// File systems that a target's nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OnNodes {
    /// At the paths of `[file_systems]`.
    SamePaths(Vec<String>),
    /// Pods mount them, by id: whether read-only.
    Volumes(BTreeMap<String, bool>),
}

/// What places a target's instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scheduler {
    Slurm(Box<SlurmOptions>),
    Kubernetes(Box<KubernetesOptions>),
}

impl Scheduler {
    fn types(&self) -> Vec<String> {
        match self {
            Scheduler::Slurm(options) => options.types.keys().cloned().collect(),
            Scheduler::Kubernetes(options) => options.types.keys().cloned().collect(),
        }
    }
}

/// In the order of their names.
pub(super) fn targets(typed: &Typed) -> Result<Vec<Target>> {
    let Some((origin, tables)) = typed.named("target") else { return Ok(Vec::new()) };
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
        types: target.scheduler.types(),
        has_containers: matches!(target.scheduler, Scheduler::Kubernetes(_)),
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
    match text(table, "kind", place)?.as_deref() {
        Some("slurm") => slurm::target(name, table, place),
        Some("kubernetes") => kubernetes::target(name, table, place),
        Some(other) => Err(UsageError(format!(
            "{place}: kind = {other:?} is none that there is: give \"slurm\" or \"kubernetes\""
        ))),
        None => Err(UsageError(format!("{place}: kind is missing: give \"slurm\" or \"kubernetes\""))),
    }
}

fn known(table: &toml::Table, members: &[&[&str]], place: &str) -> Result<(), UsageError> {
    let mut members = members.concat();
    members.sort_unstable();
    match table.keys().find(|name| !members.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let there_are = members.join(", ");
            Err(UsageError(format!("{place}: there is no {unknown:?} here; there are: {there_are}")))
        }
    }
}

/// Most instances that are submitted at once.
fn instances(table: &toml::Table, place: &str) -> Result<u32, UsageError> {
    Ok(number(table, "instances", place)?.unwrap_or(INSTANCES))
}

fn number(table: &toml::Table, name: &str, place: &str) -> Result<Option<u32>, UsageError> {
    let Some(value) = table.get(name) else { return Ok(None) };
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    match number {
        None => Err(UsageError(format!("{place}: {name} = {value} is not a number, at least 1"))),
        number => Ok(number),
    }
}

fn path(table: &toml::Table, name: &str, place: &str, what: &str) -> Result<Option<PathBuf>, UsageError> {
    match text(table, name, place)?.map(PathBuf::from) {
        Some(path) if path.is_relative() => Err(UsageError(format!("{place}: {name} is {what}: it starts with /"))),
        path => Ok(path),
    }
}

/// What differs by instance type, read by `of_type`; `example` is what a type may have.
fn types<T>(
    table: &toml::Table,
    place: &str,
    example: &str,
    of_type: impl Fn(&toml::Table, &str) -> Result<T, UsageError>,
) -> Result<BTreeMap<String, T>, UsageError> {
    let Some(value) = table.get("types") else { return Ok(BTreeMap::new()) };
    let types = value
        .as_table()
        .ok_or_else(|| UsageError(format!("{place}: types is a table: types.\"ml.g5.xlarge\" = {{ {example} }}")))?;
    let read = types.iter().map(|(kind, value)| {
        let place = format!("{place}: types.{kind:?}");
        let table = value.as_table().ok_or_else(|| UsageError(format!("{place} is not a table")))?;
        Ok((kind.clone(), of_type(table, &place)?))
    });
    read.collect()
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

    use shoal_launch::{CacheVolume, Nodes, RestToken};

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
        let [Target { name, instances, scheduler, shared, shared_size, .. }] = &settings.targets[..] else {
            panic!("one target")
        };
        assert_eq!((shared.as_deref(), *shared_size), (Some(Path::new("/scratch")), Some(1 << 40)));
        let Scheduler::Slurm(slurm) = scheduler else { panic!("{scheduler:?}") };
        assert_eq!((&**name, *instances), ("lab", 8));
        assert_eq!(slurm.args, ["--partition=main", "--exclude=n3"]);
        let of_type = &slurm.types["ml.p4d.24xlarge"];
        assert_eq!((&of_type.args[..], of_type.nodes), (&["--gres=gpu:8".to_owned()][..], Some(Nodes::Exclusive)));
        assert_eq!(settings.compute_targets.default.as_deref(), Some("lab"));
        assert_eq!(settings.compute_targets.all[0].types, ["ml.p4d.24xlarge"]);
    }

    fn slurm(more: &str) -> Result<SlurmOptions, String> {
        let settings = read(&format!("[target.lab]\nkind = \"slurm\"\n{more}"))?;
        let Scheduler::Slurm(options) = &settings.targets[0].scheduler else { panic!("Slurm") };
        Ok((**options).clone())
    }

    #[test]
    fn slurmrestd_has_an_address_and_a_token() {
        let rest = |more: &str| slurm(more).map(|options| options.rest);
        assert_eq!(rest(""), Ok(None));
        let options = rest(
            "rest = \"http://login1:6821\"\napi_version = \"v0.0.39\"\nuser = \"alice\"\n\
             token_command = [\"scontrol\", \"token\"]\npartition = \"main\"\nargs = [\"--exclude=n3\"]\n",
        );
        let options = options.unwrap().unwrap();
        assert_eq!(
            (options.address.to_string(), options.version.to_string()),
            ("http://login1:6821".into(), "v0.0.39".into())
        );
        assert_eq!(options.user.as_deref(), Some("alice"));
        assert_eq!(options.token, Some(RestToken::Command(vec!["scontrol".into(), "token".into()])));
        let options = rest("rest = \"unix:/run/slurmrestd.sock\"\n").unwrap().unwrap();
        assert_eq!((options.token, options.version.to_string()), (None, "v0.0.38".into()));
        for (more, expected) in [
            ("rest = \"login1\"\n", "rest = \"login1\" is none of \"http://HOST:PORT\""),
            (
                "rest = \"http://login1\"\n",
                "rest = \"http://login1:6820\" needs a token: give token_file, or token_command",
            ),
            ("token_file = \"/token\"\n", "token_file is of no use without rest"),
            ("rest = \"unix:/s\"\napi_version = \"v0.0.37\"\n", "api_version = \"v0.0.37\" is none of v0.0.38, "),
            ("rest = \"unix:/s\"\ntoken_command = []\n", "token_command is a list of texts"),
            ("rest = \"unix:/s\"\ntoken_command = [\"a\"]\ntoken_file = \"/b\"\n", "give one of them"),
            ("rest = \"unix:/s\"\nargs = [\"--mem=9G\"]\n", "slurmrestd has no member for \"--mem=9G\""),
        ] {
            let error = rest(more).unwrap_err();
            assert!(error.contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn jobs_are_submitted_as_users_of_the_cluster() {
        let users = |more: &str| slurm(more).map(|options| options.users);
        assert_eq!(users(""), Ok(None));
        let sudo = "submit_as = [\"sudo\", \"-n\", \"-u\", \"{user}\", \"--\"]\n";
        let found = users(&format!("{sudo}users = {{ anna = \"asmith\" }}\nshared = \"/scratch/{{user}}\"\n"));
        let found = found.unwrap().unwrap();
        assert_eq!((&*found.submit_as[3], &*found.names["anna"]), ("{user}", "asmith"));
        let rest = "rest = \"unix:/s\"\n";
        let tokens = format!("{rest}token_command = [\"scontrol\", \"token\", \"username={{user}}\"]\n");
        let found = users(&format!("{tokens}user = \"shoal\"\n")).unwrap().unwrap();
        assert_eq!(found.submit_as, [""; 0]);
        for (more, expected) in [
            ("submit_as = [\"sudo\"]\n".to_owned(), "submit_as has no {user} in it"),
            ("submit_as = \"sudo {user}\"\n".to_owned(), "submit_as is a list of texts, such as [\"sudo\", "),
            ("users = { anna = \"a\" }\n".to_owned(), "users is of no use without submit_as"),
            (format!("{sudo}users = [\"anna\"]\n"), "users is a table: users = { anna = "),
            (format!("{sudo}users = {{ anna = \"-u\" }}\n"), "users.anna = \"-u\" is not the name of a user"),
            (format!("{sudo}cache = \"/local\"\n"), "put {user} into it, such as cache = \"/scratch/{user}\""),
            (format!("{sudo}shared = \"/scratch\"\n"), "shared is one directory for all users"),
            (format!("{sudo}{rest}"), "jobs are those of the token's user: give token_command = [\"scontrol\", "),
            (tokens, "give user, too, whose token is used for the owner's own jobs"),
        ] {
            let error = users(&more).unwrap_err();
            assert!(error.contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn a_kubernetes_cluster_and_its_types() {
        let settings = read(
            "[target.k8s]\nkind = \"kubernetes\"\nkubeconfig = \"/etc/kube\"\nnamespace = \"ml\"\n\
             image = \"registry/shoal:1\"\ncache = { claim = \"cache\" }\nqueue = \"team\"\n\
             insecure_registries = [\"registry.local:5000\"]\n\
             tolerations = [{ key = \"gpu\", operator = \"Exists\" }]\nlabels = { team = \"a\" }\n\
             types.\"ml.g5.xlarge\" = { gpus = 1, memory = \"14Gi\", node_selector = { gpu = \"a10g\" } }\n",
        )
        .unwrap();
        let [Target { scheduler: Scheduler::Kubernetes(options), instances, .. }] = &settings.targets[..] else {
            panic!("one target")
        };
        assert_eq!((&*options.target, *instances, options.namespace.as_deref()), ("k8s", INSTANCES, Some("ml")));
        assert_eq!(options.cache, CacheVolume::Claim("cache".into()));
        assert_eq!(options.insecure_registries, ["registry.local:5000"]);
        assert_eq!((options.pods.queue.as_deref(), &*options.pods.labels["team"]), (Some("team"), "a"));
        assert_eq!(options.pods.tolerations[0]["operator"], "Exists");
        let of_type = &options.types["ml.g5.xlarge"];
        assert_eq!(
            (of_type.gpus, of_type.memory.as_deref(), &*of_type.node_selector["gpu"]),
            (Some(1), Some("14Gi"), "a10g")
        );
        assert!(settings.compute_targets.all[0].has_containers);
        for (more, expected) in [
            ("", "image is missing: the image with shoal"),
            ("image = \"a\"\ncache = { disk = \"x\" }\n", "cache is one of { claim = \"NAME\" }, "),
            (
                "image = \"a\"\ntolerations = [{ keys = \"x\" }]\n",
                "tolerations: there is no \"keys\" here; there are: effect, ",
            ),
            ("image = \"a\"\nimage_pull_secrets = \"x\"\n", "image_pull_secrets is a list of names of Secrets"),
            (
                "image = \"a\"\ninsecure_registries = [\"http://x\"]\n",
                "insecure_registries is a list of hosts without https://",
            ),
            ("image = \"a\"\nlabels = { a = 1 }\n", "labels is a table of texts"),
            ("image = \"a\"\nmemory = \"14 GB\"\n", "memory = \"14 GB\" is not a quantity such as \"14Gi\""),
            ("image = \"a\"\npartition = \"x\"\n", "there is no \"partition\" here; there are: cache, "),
        ] {
            let error = read(&format!("[target.a]\nkind = \"kubernetes\"\n{more}")).unwrap_err();
            assert!(error.contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (file, expected) in [
            ("[target.a]\n", "[target.a] (file /data/shoal.toml): kind is missing: give \"slurm\" or "),
            ("[target.a]\nkind = \"pbs\"\n", "kind = \"pbs\" is none that there is: give \"slurm\" or "),
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
