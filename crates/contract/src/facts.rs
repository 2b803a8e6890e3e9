//! What the agent knows of an instance and the contract shows to the program.

use std::collections::BTreeMap;

use crate::Paths;

/// One instance of a training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Training job's name.
    pub job_name: String,
    /// Training job's ARN.
    pub job_arn: String,
    /// Region that AWS clients believe in.
    pub region: String,
    /// This instance's number, from 1; its name is `hosts[host - 1]`.
    pub host: u32,
    /// `algo-1` .. `algo-N`, resolvable from every instance.
    pub hosts: Vec<String>,
    /// Addresses of the hosts, where their names do not resolve (plain processes); else empty.
    pub addresses: BTreeMap<String, String>,
    /// As requested (`ml.m5.large`).
    pub instance_type: String,
    /// Instance groups of the whole job; none if the request has none.
    pub groups: Vec<GroupFacts>,
    /// The interface that the instances talk over.
    pub network_interface: String,
    /// The first of the ports that no other job uses, where instances have the network of their
    /// machines. None: a job has all ports of a network of its own.
    pub first_port: Option<u16>,
    /// As requested; every value a string.
    pub hyperparameters: BTreeMap<String, String>,
    /// The request's `Environment`; wins over every variable of ours.
    pub environment: BTreeMap<String, String>,
    /// Inputs.
    pub channels: Vec<ChannelFacts>,
    /// A directory that is mirrored to S3.
    pub checkpoint: Option<CheckpointFacts>,
    /// What a hook in the program is to save.
    pub debug_hook: Option<DebugHookFacts>,
    /// The directory of TensorBoard's event files, as the program sees it.
    pub tensor_board: Option<String>,
    /// `ProfilerConfig`, if the request has one.
    pub profiler: Option<ProfilerFacts>,
    /// Cores that the program may count on: its share of the machine's.
    pub cpus: u32,
    /// GPUs of this instance.
    pub gpus: u32,
    /// Where AWS clients of the program should go, if anywhere.
    pub endpoint: Option<EndpointFacts>,
    /// By which connections to hosts outside go, if any may.
    pub proxy: Option<ProxyFacts>,
    /// The job loses and gains instances while it runs.
    pub elastic: Option<ElasticFacts>,
    /// The program's home directory.
    pub home: String,
    /// Where the tree lies for the program.
    pub paths: Paths,
}

/// Of a job that continues when it loses instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElasticFacts {
    /// Number of instances with which it continues.
    pub min_instances: u32,
    /// This instance joins others that run already.
    pub joins: bool,
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// Its name.
    pub name: String,
    /// As requested (`ml.m5.large`).
    pub instance_type: String,
    /// Names of its instances.
    pub hosts: Vec<String>,
}

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelFacts {
    /// Its directory's name.
    pub name: String,
    /// As requested.
    pub content_type: Option<String>,
    /// `FullyReplicated` or `ShardedByS3Key`.
    pub distribution: String,
    /// `None` or `RecordIO`.
    pub record_wrapper: String,
    /// It comes through pipes, one for each epoch.
    pub is_pipe: bool,
}

/// `CheckpointConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFacts {
    /// Where its files are kept.
    pub uri: String,
    /// The directory, as the program sees it.
    pub local_path: String,
}

/// `DebugHookConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugHookFacts {
    /// `S3OutputPath`.
    pub output_path: String,
    /// The directory of the tensors, as the program sees it.
    pub local_path: String,
    /// `HookParameters`.
    pub parameters: BTreeMap<String, String>,
    /// `CollectionConfigurations`: names and parameters.
    pub collections: Vec<(String, BTreeMap<String, String>)>,
}

/// `ProfilerConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilerFacts {
    /// Milliseconds between two samples of the instance.
    pub interval_ms: u32,
    /// For the program's own profiler.
    pub parameters: BTreeMap<String, String>,
    /// It is off.
    pub is_disabled: bool,
}

/// An HTTP proxy, for `http` and, by CONNECT, for everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyFacts {
    /// `http://127.0.0.1:9778`, as the program reaches it.
    pub url: String,
    /// Names and addresses to which connections go directly.
    pub bypass: Vec<String>,
}

/// An AWS endpoint and temporary keys for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointFacts {
    /// `http://127.0.0.1:9777`, as the program reaches it.
    pub url: String,
    /// Temporary key.
    pub access_key_id: String,
    /// Temporary key.
    pub secret_access_key: String,
    /// Temporary key.
    pub session_token: String,
}

impl Facts {
    /// The hosts as SageMaker sorts them: by name, so that `algo-10` comes before `algo-2`. Ranks
    /// follow from this order.
    pub(crate) fn sorted_hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        hosts.sort_unstable();
        hosts
    }

    /// This instance's name.
    ///
    /// # Panics
    /// If `host` is not in `1..=hosts.len()`.
    pub fn current_host(&self) -> &str {
        &self.hosts[self.host as usize - 1]
    }

    /// How a host is reached: by its name, where that resolves.
    pub(crate) fn address<'a>(&'a self, host: &'a str) -> &'a str {
        self.addresses.get(host).map_or(host, String::as_str)
    }
}
