//! What a server is told at its start. Whoever starts it (the binary, a test) has already decided;
//! nothing is read from the environment here.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
};

use shoal_encryption::KeySource;
use shoal_launch::Launcher;
use shoal_link::{PythonEnvironment, Root};
use shoal_plane::{Capacity, Catalog};
use shoal_wire::{CreateTrainingJob, Objective, ParameterRange};

use crate::{
    ComputeTargets, FileSystems, NetworkOptions, NotificationOptions, ObjectsElsewhere, PassthroughOptions,
    QuotaOptions, Roles, SsoOptions, TlsOptions,
};

/// Settings of one server, all decided.
#[derive(Clone)]
pub struct Options {
    /// The data directory; created if absent, locked while the server lives.
    pub data_dir: PathBuf,
    /// The store elsewhere for contents of objects; `None`: they are in the data directory.
    pub objects: Option<ObjectsElsewhere>,
    /// Buckets that show one of another store.
    pub passthrough: PassthroughOptions,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The certificate of that port; `None` is plain HTTP.
    pub tls: Option<TlsOptions>,
    /// The port for agents on other machines; `None` is none.
    pub agents: Option<RemoteAgents>,
    /// Region in ARNs and in `GetBucketLocation`.
    pub region: String,
    /// Twelve digits.
    pub account: String,
    /// S3 bucket that exists from the first start on: the one that SDKs use when none is named.
    pub default_bucket: String,
    /// How far a client's clock may be off, in seconds.
    pub max_skew_s: u64,
    /// Refuse requests with fields that have no effect here, instead of noting them.
    pub strict: bool,
    /// Reads are in the audit log, too.
    pub audit_reads: bool,
    /// What this machine gives to instances.
    pub capacity: Capacity,
    /// Instance types.
    pub catalog: Catalog,
    /// Starts the agents.
    pub launcher: Arc<dyn Launcher>,
    /// The `shoal` executable that agents are started from.
    pub program: PathBuf,
    /// Variables that agents get: what was found out once at the start, for instance what this
    /// machine allows.
    pub agent_env: Vec<(String, String)>,
    /// The same for agents on other machines.
    pub remote_agent_env: Vec<(String, String)>,
    /// Grace of a stop in seconds: between SIGTERM and SIGKILL.
    pub grace_s: u32,
    /// How long an agent may be silent, in seconds, before its instance is given up.
    pub silence_s: u64,
    /// The same on a compute target whose scheduler finds lost machines by itself.
    pub target_silence_s: u64,
    /// How much of log lines and metric points is kept.
    pub telemetry: TelemetryLimits,
    /// Days after their end at which jobs are deleted; `None`: clients delete them.
    pub jobs_days: Option<NonZeroU32>,
    /// Days after their last change at which records of experiments and lineage are deleted;
    /// `None`: clients delete them.
    pub experiments_days: Option<NonZeroU32>,
    /// For how many days lines of the audit log are kept; `None`: for ever.
    pub audit_days: Option<NonZeroU32>,
    /// Milliseconds between two samples of each instance; `None` is no samples.
    pub metrics_interval_ms: Option<u32>,
    /// Overrides the agents' lease (remaining MaxRuntime plus an hour), for servers that are not
    /// meant to come back.
    pub lease_s: Option<u64>,
    /// How far the networks of jobs reach.
    pub network: NetworkOptions,
    /// Directories that jobs may mount.
    pub file_systems: FileSystems,
    /// Where jobs may run beside this machine.
    pub targets: ComputeTargets,
    /// Who may use how much; of what runs, the capacity has them.
    pub quotas: QuotaOptions,
    /// Roles that may be assumed and given to jobs; none declared: every one.
    pub roles: Roles,
    /// The owner's keys, under which contents of objects can be encrypted.
    pub kms: BTreeMap<String, KeySource>,
    /// How notifications are delivered.
    pub notifications: NotificationOptions,
    /// Who identifies visitors of the console without keys, if there is one.
    pub sso: Option<SsoOptions>,
    /// Resolves image names.
    pub images: Arc<dyn Images>,
    /// Removes what dead instances left on this machine, by prefixes of their sandbox ids; says
    /// what it removed.
    pub sweep: Sweep,
    /// Removes a directory that programs have written in, however deep.
    pub remove_tree: RemoveTree,
}

/// Where agents on other machines connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAgents {
    /// Where to listen; port 0 takes a free one, and the same one at the next start.
    pub listen: SocketAddr,
    /// The host that agents connect to, with or without a port; `None` is `listen`.
    pub address: Option<String>,
}

/// How agents on other machines connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// `HOST:PORT`
    pub(crate) address: String,
    /// SHA-256 of the certificate, hexadecimal.
    pub(crate) fingerprint: String,
}

/// How much of log lines and metric points is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetryLimits {
    /// Bytes of lines, and of points, that a training job may store; what comes after is dropped.
    pub job_bytes: u64,
    /// Bytes on disk of all of them; the oldest are removed.
    pub total_bytes: u64,
    /// Days that they are kept; `None`: as long as there is room.
    pub days: Option<u32>,
}

/// See [`Options::sweep`].
pub type Sweep = Arc<dyn Fn(&[String]) -> Vec<String> + Send + Sync>;

/// See [`Options::remove_tree`].
pub type RemoveTree = fn(&Path) -> std::io::Result<()>;

/// What an image name stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Image {
    /// A built-in algorithm.
    Builtin(Builtin),
    /// A framework: the request's ContainerEntrypoint, or the script that it brings, in a Python
    /// environment, which the instance's machine makes if it must.
    Python(PythonEnvironment),
    /// A tree of files that is the instance's root: the request's ContainerEntrypoint in it, or
    /// what the image starts by itself; in a directory the script that the request brings.
    Root(Root),
    /// `shoal/host`: the request's ContainerEntrypoint, or the script that it brings, on the
    /// machine's own `/usr`.
    Host,
}

/// A built-in algorithm, as far as the server's decisions depend on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Builtin {
    /// What messages call it, and the argument of `shoal algorithm`.
    pub name: String,
    /// Names of the hyperparameters that it takes.
    pub hyperparameters: Vec<String>,
    /// Metrics that tuning jobs can optimise.
    pub objectives: Vec<BuiltinObjective>,
    /// Ranges that Autotune takes for its hyperparameters.
    pub tunable: Vec<ParameterRange>,
    /// The hyperparameter that says how long a training is, as `epochs` does elsewhere.
    pub resource: Option<String>,
    /// It writes checkpoints and resumes from them, though no request says where.
    pub resumes: bool,
    /// Directories of the libraries that it loads.
    pub library_dirs: Vec<String>,
    /// Variables that it gets besides the contract's.
    pub variables: BTreeMap<String, String>,
}

/// A metric that tuning jobs can optimise.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinObjective {
    /// Its name, and which way is better.
    pub objective: Objective,
    /// The channel that it is measured on, if a training job may lack it.
    pub channel: Option<String>,
    /// The hyperparameter with which no such channel is needed.
    pub unless: Option<String>,
}

/// What the image of a request stands for: a built-in algorithm whose image runs scripts, too, is a
/// framework to a request that brings one.
///
/// # Errors
/// As [`Images::resolve`].
pub(crate) fn image_of(images: &dyn Images, request: &CreateTrainingJob) -> Result<Image, ImageError> {
    match framework_of(images, request)? {
        Some(framework) => Ok(framework),
        None => images.resolve(name_of(request)),
    }
}

/// The same on a compute target whose instances are containers: what no table has is an image of
/// the cluster's registries.
///
/// # Errors
/// What it stands for cannot be had there, or the tables cannot be read.
pub(crate) fn image_in_container(images: &dyn Images, request: &CreateTrainingJob) -> Result<Image, ImageError> {
    let known = match framework_of(images, request)? {
        Some(framework) => Some(framework),
        None => images.known(name_of(request))?,
    };
    match known {
        None => Ok(Image::Root(Root::Container { image: name_of(request).to_owned() })),
        Some(Image::Root(Root::Directory { path })) => Err(ImageError(format!(
            "it is the tree of files {path} on the server's machine, which a container has not: choose the target local, \
             or push an image"
        ))),
        Some(image) => Ok(image),
    }
}

/// The same as far as tables say: `None` for what only a container engine may know, and for what
/// cannot be used.
pub(crate) fn known_image_of(images: &dyn Images, request: &CreateTrainingJob) -> Option<Image> {
    match framework_of(images, request).ok()? {
        Some(framework) => Some(framework),
        None => images.known(name_of(request)).ok()?,
    }
}

fn framework_of(images: &dyn Images, request: &CreateTrainingJob) -> Result<Option<Image>, ImageError> {
    let brings_its_own = request.script.is_some() || !request.algorithm.entrypoint.is_empty();
    if brings_its_own { Ok(images.framework(name_of(request))?.map(Image::Python)) } else { Ok(None) }
}

fn name_of(request: &CreateTrainingJob) -> &str {
    request.algorithm.training_image.as_deref().unwrap_or_default()
}

/// Why an image name cannot be used. The text is for the user and says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(pub String);

/// Resolves image names: a table of the one who starts the server, so that the server knows no
/// algorithm.
pub trait Images: Send + Sync {
    /// What `image` stands for by the tables alone; `None` if no row fits it. Cheap: asked whenever
    /// a job is described.
    ///
    /// # Errors
    /// What it stands for cannot be had on this machine, or the tables cannot be read.
    fn known(&self, image: &str) -> Result<Option<Image>, ImageError>;

    /// What `image` stands for. May ask a container engine and take seconds.
    ///
    /// # Errors
    /// The name is unknown, or what it stands for cannot be had on this machine.
    fn resolve(&self, image: &str) -> Result<Image, ImageError>;

    /// The environment in which a program runs that a request for `image` brings; `None` if there
    /// is none for it.
    ///
    /// # Errors
    /// The table cannot be read.
    fn framework(&self, image: &str) -> Result<Option<PythonEnvironment>, ImageError>;

    /// Names and regexes that hold where a request for `image` brings no metric definitions; of a
    /// built-in algorithm's image also where it runs the request's own program. None for most
    /// images.
    fn metric_definitions(&self, image: &str) -> Vec<(String, String)>;

    /// All hyperparameters by which built-in algorithms are told how long a training is. Scripts
    /// use these names, too.
    fn resources(&self) -> Vec<String>;
}
