//! What an agent is told to run. Everything an instance needs is in here: the agent asks the server
//! nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Delivery, Egress, Input, MirrorKind, Sampling, one_or_many};

/// Where a script's intermediate output is.
const INTERMEDIATE: &str = "/opt/ml/output/intermediate";
/// Where profilers of frameworks write in the instance.
pub const PROFILER: &str = "/opt/ml/output/profiler";

/// The work of one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Training job's name.
    pub job_name: String,
    /// Training job's ARN.
    pub job_arn: String,
    /// Region that clients believe in.
    pub region: String,
    /// This instance's number, from 1; its name is `hosts[host - 1]`.
    pub host: u32,
    /// `algo-1` .. `algo-N`.
    pub hosts: Vec<String>,
    /// As requested, for `resourceconfig.json`.
    pub instance_type: String,
    /// Instance groups of the whole job, as requested; none if the request has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<InstanceGroup>,
    /// For `hyperparameters.json`; every value a string.
    pub hyperparameters: BTreeMap<String, String>,
    /// The request's `Environment`.
    pub environment: BTreeMap<String, String>,
    /// Inputs.
    pub channels: Vec<Channel>,
    /// What to run.
    pub program: Program,
    /// The Python environment in which it runs; without one it sees the machine's own `/usr` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonEnvironment>,
    /// What the instance has as its root, in the place of the machine's own `/usr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Root>,
    /// Applied to every line.
    pub metric_definitions: Vec<MetricDefinition>,
    /// Of a tuning job's trial, on the host whose values count: the metric that is the objective.
    /// Each of its values is said at once ([`crate::ReportBody::Objective`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// What the instance may use.
    pub limits: Limits,
    /// The server as the program sees it, with keys of the job's own scope.
    pub endpoint: Option<Endpoint>,
    /// Hosts outside that the program may connect to; without it none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// A directory that is mirrored to S3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The S3 location to which `/opt/ml/output/intermediate` is mirrored, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<String>,
    /// What a hook in the program is to save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debug_hook: Option<DebugHook>,
    /// Evaluated over what the hook saves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Evaluated over the samples of the instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiler_rules: Vec<Rule>,
    /// Where the program writes TensorBoard's event files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_board: Option<TensorBoard>,
    /// How the artifacts are packed.
    pub output_compression: OutputCompression,
    /// Without a server for so long, the agent stops its program and cleans up.
    pub lease_s: u64,
    /// Grace of a stop that the agent decides by itself (end of lease).
    pub grace_s: u32,
    /// Of a tuning job's trial: how far it is and how far it may go. Told to the program in
    /// `/opt/ml/input/config/shoal_resource.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The attempt loses and gains instances while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elastic: Option<Elastic>,
    /// Attempts like this one will follow: what can be kept of the instance is made so that it can
    /// be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// How the instance is sampled; servers before this existed request no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// For `profilerconfig.json`, where the request has a `ProfilerConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler: Option<ProfilerFile>,
    /// The instances are on several machines and have these machines' network. Servers before this
    /// existed say nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_network: Option<MachineNetwork>,
}

/// What the program finds in `profilerconfig.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilerFile {
    /// `ProfilingIntervalInMilliseconds`.
    pub interval_ms: u32,
    /// `ProfilingParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// `DisableProfiler`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disabled: bool,
    /// Where the program's own events go, for the log; servers before this existed take none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

/// A directory that is mirrored to S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored<'a> {
    /// In the instance: absolute, without `..` and without a `/` at its end.
    pub local_path: &'a str,
    /// Where its files go, for the log.
    pub uri: &'a str,
}

impl Assignment {
    /// Where events with the times of steps go, for the log; none where the program writes none.
    pub fn step_times(&self) -> Option<&String> {
        self.profiler.as_ref().filter(|it| !it.is_disabled).and_then(|it| it.uri.as_ref())
    }

    /// What is mirrored while the program runs.
    pub fn mirrored(&self) -> impl Iterator<Item = (MirrorKind, Mirrored<'_>)> {
        let checkpoints = self.checkpoint.as_ref().map(|it| (MirrorKind::Checkpoints, &*it.local_path, &it.uri));
        let intermediate = self.intermediate.as_ref().map(|uri| (MirrorKind::Intermediate, INTERMEDIATE, uri));
        let tensors = self.debug_hook.as_ref().map(|it| (MirrorKind::Tensors, &*it.local_path, &it.uri));
        let board = self.tensor_board.as_ref().map(|it| (MirrorKind::TensorBoard, &*it.local_path, &it.uri));
        let profiler = self.step_times().map(|uri| (MirrorKind::Profiler, PROFILER, uri));
        let all = [checkpoints, intermediate, tensors, board, profiler].into_iter().flatten();
        all.map(|(kind, local_path, uri)| (kind, Mirrored { local_path, uri }))
    }
}

/// Of an attempt that continues when it loses instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elastic {
    /// Number of instances with which it continues.
    pub min_instances: u32,
    /// This instance joins others that run already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
}

/// Units of a trial's resource (rounds, epochs), counted from the start of its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// For so many of them earlier attempts have said values of the objective.
    pub from: u64,
    /// After so many the trial is to pause; `None`: at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// After so many (`MaxResource`) the trial is complete; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// No other group's of the job.
    pub name: String,
    /// `ml.m5.large`.
    pub instance_type: String,
    /// Names of its instances.
    pub hosts: Vec<String>,
}

/// The network of several machines, in which ports of one job must not be those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNetwork {
    /// The first of the job's ports, the same on all of its instances.
    pub first_port: u16,
    /// The server answers [`crate::ToServer::PartSum`], so the hosts can pass parts of their inputs
    /// on to each other. It is not set by older servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_sums: bool,
}

impl MachineNetwork {
    /// How many they are.
    pub const PORTS: u16 = 40;
}

/// A named input, ready on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its directory's name under `/opt/ml/input/data`.
    pub name: String,
    /// Its files; read-only for everybody but a throw-away layer.
    pub tree: Input,
    /// How it comes; servers before this existed have files alone.
    #[serde(default, skip_serializing_if = "Delivery::is_files")]
    pub delivery: Delivery,
    /// For `inputdataconfig.json`.
    pub content_type: Option<String>,
    /// `FullyReplicated` or `ShardedByS3Key`.
    pub distribution: String,
    /// `None` or `RecordIO`.
    pub record_wrapper: String,
}

/// `CheckpointConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The directory in the instance: absolute, without `..` and without a `/` at its end.
    pub local_path: String,
    /// Where the files are kept, for `checkpointconfig.json` and the log.
    pub uri: String,
    /// What was there before, to be copied into the directory.
    pub tree: Option<Input>,
}

/// `DebugHookConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugHook {
    /// The directory of the tensors in the instance: absolute, without `..` and a `/` at its end.
    pub local_path: String,
    /// Where they are kept, for the log.
    pub uri: String,
    /// `S3OutputPath` as requested, for `debughookconfig.json`.
    pub output_path: String,
    /// `HookParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// `CollectionConfigurations`: names and parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<(String, BTreeMap<String, String>)>,
}

/// A rule that the agent evaluates while the program runs, and reports once
/// ([`crate::ReportBody::RuleEvaluated`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its configuration's name.
    pub name: String,
    /// The rule's own name.
    pub rule: String,
    /// Its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Issues that are found stop the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops: bool,
    /// The source of a user's own rule, whose class `rule` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Input>,
    /// Tensors of other training jobs, with which the rule compares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_runs: Vec<Input>,
}

/// `TensorBoardOutputConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorBoard {
    /// The directory in the instance: absolute, without `..` and without a `/` at its end.
    pub local_path: String,
    /// Where its files are kept, for the log.
    pub uri: String,
}

/// A training program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Program {
    /// One of ours: this binary, started as `shoal algorithm NAME`.
    Builtin {
        /// The algorithm's name.
        name: String,
        /// The image as requested, for messages.
        image: String,
        /// Directories on this machine with the libraries that the program loads, mounted read-only
        /// at the same paths. An agent on another machine gets none and finds its own.
        #[serde(rename = "library_dir", with = "one_or_many")]
        library_dirs: Vec<String>,
        /// Variables that it gets besides the contract's.
        variables: BTreeMap<String, String>,
    },
    /// The user's program on the machine's own `/usr`.
    Host {
        /// `ContainerEntrypoint`, not empty.
        entrypoint: Vec<String>,
        /// `ContainerArguments`.
        arguments: Vec<String>,
    },
    /// What the image starts by itself.
    Image {
        /// Given to it: `train`.
        arguments: Vec<String>,
    },
    /// The user's script, started as SageMaker's framework images do it; hyperparameters and
    /// variables name it.
    Script {
        /// The object that `sagemaker_submit_directory` names, if that is in S3.
        source: Option<Input>,
        /// `ContainerArguments`, behind those that its hyperparameters are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<String>,
    },
}

/// The root of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Root {
    /// The files of an image of the container engine.
    Engine {
        /// The engine's command on this machine.
        program: String,
        /// As the job names it.
        image: String,
    },
    /// A directory of this machine; never changed.
    Directory {
        /// Absolute.
        path: String,
    },
    /// The agent's own: it was started in a container of the image.
    Container {
        /// As the job names it.
        image: String,
    },
}

/// A Python environment as it is wanted; the instance's machine makes it if it has none like it
/// yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonEnvironment {
    /// For people.
    pub name: String,
    /// Versions of Python that it can have (`3.11`), the best first.
    pub pythons: Vec<String>,
    /// The lock file's text: requirements as pip reads them, pinned.
    pub lock: String,
    /// What the job's log is to say of it.
    pub notice: Option<String>,
}

/// A metric definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDefinition {
    /// Metric's name.
    pub name: String,
    /// First group is the value; searched for in every line.
    pub regex: String,
}

/// What one instance may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// A limit.
    pub memory_bytes: u64,
    /// What all instances of the server may use together, where their limits add up to more.
    /// Servers before this existed say nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together_bytes: Option<u64>,
    /// CPU cores that the instance counts on: its share when it starts (threads of its libraries
    /// and of built-ins, SM_NUM_CPUS).
    pub cpus: u32,
    /// Share against other instances, as cgroup v2's `cpu.weight` (1 to 10000).
    pub cpu_weight: u32,
    /// Most processes and threads.
    pub pids: u32,
    /// Bytes that the program may write on the machine's disk. Servers before this existed say
    /// nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// GPUs, by index.
    pub gpus: Vec<u32>,
}

/// The server as a training program sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where the agent's forwarder connects to (`127.0.0.1:9777`); `None`: over the agent's own way
    /// to the server ([`crate::ToServer::Forward`]). The program sees a port of its own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_address: Option<String>,
    /// Temporary keys.
    pub access_key_id: String,
    /// Temporary keys.
    pub secret_access_key: String,
    /// Temporary keys.
    pub session_token: String,
}

/// `OutputDataConfig.CompressionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputCompression {
    /// One `model.tar.gz`.
    Gzip,
    /// Files under `model/`. Parts are then gzip members all the same; the server unpacks them.
    None,
}
