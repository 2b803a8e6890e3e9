//! Settings, each declared once (`declared::SETTINGS`). Two stages: what was typed where (`Typed`:
//! flag, `SHOAL_*` variable, `shoal.toml`, default; the first that says something wins), and what
//! it means (`Settings`).

mod declared;
mod doubts;
mod engine;
mod file_systems;
mod flags;
mod kms;
mod lists;
mod machine;
mod nodes;
mod notifications;
mod passthrough;
mod quotas;
mod roles;
mod sizes;
mod sso;
mod targets;
mod times;
mod typed;
mod url;
mod wheels;

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::Result;
use shoal_encryption::KeySource;
use shoal_link::{AllowedHost, NetworkMode};
use shoal_plane::{Node, Packing};
use shoal_server::{
    ComputeTargets, FileSystems, NetworkOptions, NotificationOptions, ObjectsElsewhere, PassthroughOptions,
    QuotaOptions, RemoteAgents, Roles, SsoOptions, TlsOptions,
};
use shoal_wire::client::Scheme;

pub(crate) use engine::EngineChoice;
pub(crate) use flags::ClientFlags;
pub use flags::ServerFlags;
pub(crate) use nodes::size_of;
pub(crate) use sizes::bytes;
pub use sizes::readable;
pub(crate) use targets::{Scheduler, Target};
pub(crate) use times::Silence;
use times::days;
pub(crate) use typed::{Origin, Typed};
pub(crate) use url::ServerUrl;

use crate::exit::UsageError;

/// Less memory than any instance has.
const LEAST_MEMORY: u64 = 64 << 20;

/// What the settings mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where everything is kept.
    pub(crate) data_dir: PathBuf,
    /// It was not given by a flag, so clients find it without one, too.
    pub(crate) data_dir_needs_no_flag: bool,
    /// The store elsewhere for contents of objects.
    pub(crate) objects: Option<ObjectsElsewhere>,
    /// Buckets that show one of another store.
    pub(crate) passthrough: PassthroughOptions,
    /// Where the server listens.
    pub(crate) listen: SocketAddr,
    /// The certificate that it shows there; `None` is plain HTTP.
    pub(crate) tls: Option<TlsOptions>,
    /// Where agents on other machines connect.
    pub(crate) agents: Option<RemoteAgents>,
    /// What starts them; empty: agents run on this machine.
    pub(crate) launch_command: Vec<String>,
    /// Region that clients believe in.
    pub(crate) region: String,
    /// Twelve digits.
    pub(crate) account: String,
    /// Bucket of SDKs and of `train`.
    pub(crate) default_bucket: String,
    /// Below which keys clients write in it: empty, or with a final slash.
    pub(crate) default_prefix: String,
    /// How far clients' clocks may be off, in seconds.
    pub(crate) max_skew_s: u64,
    /// Between SIGTERM and SIGKILL of a stop, in seconds.
    pub(crate) grace_s: u32,
    /// An agent's life without a server in seconds; `None` is the job's remaining time and an hour.
    pub(crate) lease_s: Option<u64>,
    /// An agent's silence after which its instance is given up.
    pub(crate) silence: Silence,
    /// Bytes of log lines, and of metric points, that a training job may store.
    pub(crate) log_quota: u64,
    /// Bytes on disk that logs and metric points take in all.
    pub(crate) telemetry_space: u64,
    /// Days for which they are kept; `None` is as long as there is room.
    pub(crate) telemetry_days: Option<u32>,
    /// Days after their end at which jobs are deleted.
    pub(crate) jobs_days: Option<NonZeroU32>,
    /// Days after their last change at which records of experiments and lineage are deleted.
    pub(crate) experiments_days: Option<NonZeroU32>,
    /// Days after which environments that no job wants are removed.
    pub(crate) environments_days: Option<NonZeroU32>,
    /// Days for which lines of the audit log are kept.
    pub(crate) audit_days: Option<NonZeroU32>,
    /// Milliseconds between two samples of an instance; `None` is no samples.
    pub(crate) metrics_interval_ms: Option<u32>,
    /// Refuse fields that have no effect here.
    pub(crate) strict: bool,
    /// Reads are in the audit log, too.
    pub(crate) audit_reads: bool,
    /// The nodes for instances; one at least.
    pub(crate) nodes: Vec<Node>,
    /// Compute targets with schedulers of their own.
    pub(crate) targets: Vec<Target>,
    /// The same as jobs choose among them.
    pub(crate) compute_targets: ComputeTargets,
    /// What instances hold of the memory.
    pub(crate) packing: Packing,
    /// A directory of wheels, from which alone Python environments are made; `None` is the package
    /// index.
    pub(crate) wheel_house: Option<PathBuf>,
    /// The wheel of Shoal's Python package.
    pub(crate) python_package: Option<PathBuf>,
    /// Where images come from that are in no table.
    pub(crate) engine: EngineChoice,
    /// How far jobs' networks reach.
    pub(crate) network: NetworkOptions,
    /// Directories that jobs may mount.
    pub(crate) file_systems: FileSystems,
    /// Who may use how much.
    pub(crate) quotas: QuotaOptions,
    /// Roles that are declared.
    pub(crate) roles: Roles,
    /// Keys that contents of objects can be encrypted under.
    pub(crate) kms: BTreeMap<String, KeySource>,
    /// How notifications are delivered.
    pub(crate) notifications: NotificationOptions,
    /// Who identifies visitors of the console.
    pub(crate) sso: Option<SsoOptions>,
    /// Least level of the server's own log lines.
    pub(crate) log: tracing::Level,
}

impl Settings {
    /// Understands what was typed.
    ///
    /// # Errors
    /// A value that makes no sense; the message names the setting, where it was typed, and what is
    /// wanted.
    pub(crate) fn of(typed: &Typed) -> Result<Self> {
        let account = typed.value("account");
        if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong(typed, "account", "twelve digits"));
        }
        let default_bucket = typed.value("default_bucket").to_owned();
        let bucket_letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !(3..=63).contains(&default_bucket.len()) || !default_bucket.bytes().all(bucket_letters) {
            return Err(wrong(typed, "default_bucket", "a bucket name: 3 to 63 of a-z, 0-9, '.' and '-'"));
        }
        let lease = typed.value("lease_s");
        let targets = targets::targets(typed)?;
        let file_systems = file_systems::file_systems(typed, &targets)?;
        Ok(Self {
            // Clients that get paths below it may run in another directory.
            data_dir: std::path::absolute(typed.data_dir()).unwrap_or_else(|_| typed.data_dir().to_owned()),
            data_dir_needs_no_flag: *typed.origin("data_dir") != Origin::Flag("--data-dir".to_owned()),
            objects: objects(typed)?,
            passthrough: passthrough::passthrough(typed, listen(typed)?)?,
            listen: listen(typed)?,
            tls: tls(typed)?,
            agents: agents(typed)?,
            launch_command: launch_command(typed)?,
            region: typed.value("region").to_owned(),
            account: account.to_owned(),
            default_bucket,
            default_prefix: folder(typed.value("default_prefix")),
            max_skew_s: parse(typed, "max_skew_s", "a number of seconds")?,
            grace_s: parse(typed, "grace_s", "a number of seconds")?,
            lease_s: if lease == "auto" {
                None
            } else {
                Some(parse(typed, "lease_s", "`auto` or a number of seconds")?)
            },
            silence: Silence::of(typed)?,
            log_quota: size(typed, "log_quota")?,
            telemetry_space: size(typed, "telemetry_space")?,
            telemetry_days: days(typed, "telemetry_days", "`none` or a number of days")?,
            jobs_days: days(typed, "jobs_days", "`none` or a number of days, 1 or more")?,
            experiments_days: days(typed, "experiments_days", "`none` or a number of days, 1 or more")?,
            environments_days: days(typed, "environments_days", "`none` or a number of days, 1 or more")?,
            audit_days: days(typed, "audit_days", "`none` or a number of days, 1 or more")?,
            metrics_interval_ms: metrics_interval(typed)?,
            strict: parse(typed, "strict", "`true` or `false`")?,
            audit_reads: parse(typed, "audit_reads", "`true` or `false`")?,
            nodes: nodes::nodes(typed)?,
            packing: nodes::packing(typed)?,
            compute_targets: targets::choice(typed, &targets)?,
            targets,
            wheel_house: wheels::wheel_house(typed)?,
            python_package: wheels::python_package(typed)?,
            engine: match typed.value("engine") {
                "auto" => EngineChoice::Auto,
                "none" => EngineChoice::None,
                command => EngineChoice::Command(command.to_owned()),
            },
            network: network(typed)?,
            file_systems,
            quotas: quotas::quotas(typed)?,
            roles: roles::roles(typed)?,
            kms: kms::kms(typed)?,
            notifications: notifications::notifications(typed)?,
            sso: sso::sso(typed)?,
            log: parse(typed, "log", "one of error, warn, info, debug, trace")?,
        })
    }

    /// The settings of a server that starts on an empty data directory: these flags, then this
    /// process's variables, then defaults.
    ///
    /// # Errors
    /// A value that makes no sense; the message names the setting, where it was typed, and what is
    /// wanted.
    pub fn of_flags(flags: &[(&str, &str)]) -> Result<Self> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::of(&Typed::gather(&flags, &|name| std::env::var(name).ok(), &|_| Ok(None))?)
    }

    /// The owner's access keys.
    pub(crate) fn keys(&self) -> PathBuf {
        self.data_dir.join("keys")
    }

    /// What clients are given: botocore's plugin and the SDK's defaults.
    pub(crate) fn client_dir(&self) -> PathBuf {
        self.data_dir.join("client")
    }

    /// Where a server that lives says its real address.
    pub fn address_file(&self) -> PathBuf {
        self.data_dir.join("address")
    }

    /// The server of this data directory, if one answers.
    pub(crate) fn running(&self) -> Option<ServerUrl> {
        // A server that was killed has left its address behind.
        ServerUrl::read(&self.address_file()).filter(ServerUrl::answers)
    }

    /// Where the server is that lives on this data directory, or else where one would be.
    pub(crate) fn url(&self) -> ServerUrl {
        ServerUrl::read(&self.address_file()).unwrap_or_else(|| {
            let (scheme, trusted) = match &self.tls {
                None => (Scheme::HTTP, None),
                Some(TlsOptions::SelfMade { .. }) => {
                    (Scheme::HTTPS, Some(self.data_dir.join("tls/authority.pem")).filter(|file| file.exists()))
                }
                Some(TlsOptions::Files { authority, .. }) => (Scheme::HTTPS, authority.clone()),
            };
            ServerUrl::at(scheme, self.listen, trusted)
        })
    }
}

fn parse<T: std::str::FromStr>(typed: &Typed, name: &str, wanted: &str) -> Result<T> {
    typed.value(name).parse().map_err(|_| wrong(typed, name, wanted))
}

fn objects(typed: &Typed) -> Result<Option<ObjectsElsewhere>> {
    let cache_bytes = size(typed, "objects_cache")?;
    match typed.value("objects") {
        "none" => Ok(None),
        address => match ObjectsElsewhere::parse(address, cache_bytes) {
            Ok(objects) => Ok(Some(objects)),
            Err(why) => Err(wrong(typed, "objects", &format!("`none` or a bucket: {why}"))),
        },
    }
}

/// With less of it no job could ever run.
fn at_least(typed: &Typed, name: &str, wanted: &str) -> Result<u32> {
    let wanted = format!("{wanted}, at least 1");
    let number: u32 = parse(typed, name, &wanted)?;
    if number == 0 { Err(wrong(typed, name, &wanted)) } else { Ok(number) }
}

fn memory(typed: &Typed) -> Result<u64> {
    let bytes = size(typed, "memory")?;
    if bytes < LEAST_MEMORY {
        return Err(wrong(
            typed,
            "memory",
            "enough for any instance: at least 64MiB, and a number alone is bytes (4GiB is a size)",
        ));
    }
    Ok(bytes)
}

/// An address, or a name of this machine that only itself reaches: what others reach is given as an
/// address, so that it is meant.
fn listen(typed: &Typed) -> Result<SocketAddr> {
    let text = typed.value("listen");
    let named = || {
        text.to_socket_addrs()
            .into_iter()
            .flatten()
            .filter(|address| address.ip().is_loopback())
            .min_by_key(SocketAddr::is_ipv6)
    };
    let found = text.parse().ok().or_else(named);
    found.ok_or_else(|| wrong(typed, "listen", "an address and port such as 127.0.0.1:9777 (or localhost:9777)"))
}

fn metrics_interval(typed: &Typed) -> Result<Option<u32>> {
    let text = typed.value("metrics_interval");
    if text == "none" {
        return Ok(None);
    }
    let milliseconds = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok(),
        None => text.strip_suffix('s').and_then(|number| number.parse::<u32>().ok()?.checked_mul(1000)),
    };
    match milliseconds.filter(|it| (100..=60_000).contains(it)) {
        Some(milliseconds) => Ok(Some(milliseconds)),
        None => Err(wrong(typed, "metrics_interval", "`none` or a time of 100ms to 60s, such as 500ms or 2s")),
    }
}

fn size(typed: &Typed, name: &str) -> Result<u64> {
    bytes(typed.value(name)).ok_or_else(|| wrong(typed, name, "a size such as 8GiB"))
}

fn tls(typed: &Typed) -> Result<Option<TlsOptions>> {
    let file = |name: &str| -> Result<Option<PathBuf>> {
        match typed.value(name) {
            "none" => Ok(None),
            _ => typed.path(name).map(Some),
        }
    };
    let (certificate, key, authority) = (file("tls_cert")?, file("tls_key")?, file("tls_ca")?);
    let names = typed.list("tls_names");
    let options = match (certificate, key) {
        (Some(certificate), Some(key)) if names.is_empty() => TlsOptions::Files { certificate, key, authority },
        (None, None) if authority.is_none() => TlsOptions::SelfMade { names },
        (Some(_), Some(_)) => {
            return Err(wrong(typed, "tls_names", "of use with tls_cert: a certificate's names are in itself"));
        }
        (None, None) => return Err(wrong(typed, "tls_ca", "of use without tls_cert and tls_key")),
        (Some(_), None) => return Err(wrong(typed, "tls_key", "the file of the key that belongs to tls_cert")),
        (None, Some(_)) => return Err(wrong(typed, "tls_cert", "the file of the certificate that belongs to tls_key")),
    };
    Ok(parse::<bool>(typed, "tls", "`true` or `false`")?.then_some(options))
}

fn agents(typed: &Typed) -> Result<Option<RemoteAgents>> {
    let address = Some(typed.value("agents_address")).filter(|address| *address != "auto").map(str::to_owned);
    match typed.value("agents_listen") {
        "none" if address.is_some() => Err(wrong(typed, "agents_address", "of use without agents_listen")),
        "none" => Ok(None),
        _ => Ok(Some(RemoteAgents {
            listen: parse(typed, "agents_listen", "`none` or an address and port such as 0.0.0.0:9778")?,
            address,
        })),
    }
}

fn launch_command(typed: &Typed) -> Result<Vec<String>> {
    match typed.list("launch_command") {
        command if command == ["none"] => Ok(Vec::new()),
        command if command.is_empty() => Err(wrong(typed, "launch_command", "a command or `none`")),
        _ if typed.value("agents_listen") == "none" => {
            Err(wrong(typed, "launch_command", "of use without agents_listen: agents on other machines connect there"))
        }
        command => Ok(command),
    }
}

fn network(typed: &Typed) -> Result<NetworkOptions> {
    let wanted = format!("one of {}", NetworkMode::NAMES);
    let mode = |name: &str| parse::<NetworkMode>(typed, name, &wanted);
    let (default, max) = (mode("network")?, mode("network_max")?);
    if max < default {
        return Err(wrong(typed, "network_max", &format!("at least network, which is {default}")));
    }
    let allow = typed.list("network_allow");
    if let Some(error) = allow.iter().find_map(|entry| entry.parse::<AllowedHost>().err()) {
        return Err(UsageError(format!("network_allow ({}): {error}", typed.origin("network_allow"))).into());
    }
    Ok(NetworkOptions { default, max, allow })
}

fn wrong(typed: &Typed, name: &str, wanted: &str) -> anyhow::Error {
    UsageError(format!("{name} = {:?} ({}) is not {wanted}", typed.value(name), typed.origin(name))).into()
}

/// The default data directory's parent: `$XDG_DATA_HOME`, else `~/.local/share`.
fn data_home(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    match variable("XDG_DATA_HOME").filter(|path| Path::new(path).is_absolute()) {
        Some(path) => path.into(),
        None => Path::new(&variable("HOME").unwrap_or_else(|| "/".to_owned())).join(".local/share"),
    }
}

/// A prefix of keys, with a final slash unless it is empty.
fn folder(prefix: &str) -> String {
    let prefix = prefix.trim_matches('/');
    if prefix.is_empty() { String::new() } else { format!("{prefix}/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[(&str, &str)]) -> Result<Settings> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::of(&Typed::gather(&flags, &|_| None, &|_| Ok(None)).unwrap())
    }

    #[test]
    fn the_data_directory_is_the_same_from_every_directory() {
        let relative = settings(&[("data_dir", "data")]).unwrap().data_dir;
        assert_eq!(relative, std::env::current_dir().unwrap().join("data"));
    }

    #[test]
    fn values_are_understood() {
        let settings =
            settings(&[("listen", "0.0.0.0:1"), ("memory", "2GiB"), ("lease_s", "5"), ("account", "999999999999")])
                .unwrap();
        assert_eq!(settings.nodes[0].memory_bytes, 2 << 30);
        assert_eq!(settings.lease_s, Some(5));
        assert_eq!(settings.silence, Silence { here_s: 60, targets_s: 3900 });
        assert_eq!(settings.default_bucket, "sagemaker-us-east-1-999999999999");
        assert_eq!(settings.url().to_string(), "http://127.0.0.1:1");
    }

    #[test]
    fn a_name_of_this_machine_is_an_address() {
        assert_eq!(settings(&[("listen", "localhost:9955")]).unwrap().listen, "127.0.0.1:9955".parse().unwrap());
    }

    #[test]
    fn mistakes_name_the_setting_and_its_origin() {
        for (name, value, wanted) in [
            ("listen", "localhost", "an address and port"),
            ("memory", "much", "a size such as 8GiB"),
            ("memory", "4", "enough for any instance: at least 64MiB"),
            ("instances", "0", "a number of instances, at least 1"),
            ("cpus", "0", "a number of cores, at least 1"),
            ("account", "12", "twelve digits"),
            ("lease_s", "-1", "`auto` or a number of seconds"),
            ("silence_s", "x", "`auto` or a number of seconds"),
            ("default_bucket", "My Bucket", "a bucket name"),
            ("wheel_house", "/nowhere", "a directory that is there"),
            ("python_package", "/nowhere", "a file that is there"),
            ("packing", "tight", "`use` or `promise`"),
            ("agents_listen", "here", "`none` or an address and port"),
            ("agents_address", "box", "of use without agents_listen"),
            ("launch_command", "ssh box", "of use without agents_listen"),
            ("network", "all", "one of none, allow-list or host"),
        ] {
            let message = settings(&[(name, value)]).unwrap_err().to_string();
            let flag = name.replace('_', "-");
            assert!(message.starts_with(&format!("{name} = {value:?} (flag --{flag}) is not {wanted}")), "{message}");
        }
    }

    #[test]
    fn the_network_is_closed_until_the_owner_opens_it() {
        assert_eq!(settings(&[]).unwrap().network, NetworkOptions::default());
        let opened = settings(&[("network", "allow-list"), ("network_allow", "pypi.org, *.hf.co:443 10.1.0.0/16:*")])
            .unwrap()
            .network;
        assert_eq!((opened.default, opened.max), (NetworkMode::AllowList, NetworkMode::AllowList));
        assert_eq!(opened.allow, ["pypi.org", "*.hf.co:443", "10.1.0.0/16:*"]);
        for (flags, expected) in [
            (
                [("network", "host"), ("network_max", "none")],
                "network_max = \"none\" (flag --network-max) is not at least network, which is host",
            ),
            (
                [("network", "host"), ("network_allow", "https://pypi.org")],
                "network_allow (flag --network-allow): \"https://pypi.org\" is not",
            ),
        ] {
            let message = settings(&flags).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
