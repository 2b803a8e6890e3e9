//! How pods are created on a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::AllocationSpec;

/// Where pods have a cache that is no node's.
const CACHE: &str = "/var/cache/shoal";

/// Where pods have file systems, those that are mounted read-only apart.
const VOLUMES: [&str; 2] = ["/mnt/shoal/ro", "/mnt/shoal/rw"];

/// Where a pod has a file system.
#[must_use]
pub fn volume_path(file_system: &str, is_writable: bool) -> PathBuf {
    Path::new(VOLUMES[usize::from(is_writable)]).join(file_system)
}

/// How pods are created on a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubernetesOptions {
    /// The compute target's name, for messages.
    pub target: String,
    /// The file with the cluster's address and credentials; none: the one that kubectl uses, or
    /// those of the pod that the server runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Of that file; none: the current one.
    pub context: Option<String>,
    /// All objects are in it; none: the context's.
    pub namespace: Option<String>,
    /// The image of pods whose job has no image of its own.
    pub image: String,
    /// The image whose `shoal` is put into pods with another image; none: `image`.
    pub init_image: Option<String>,
    /// The program in these two; none: at the path of the allocation's.
    pub program: Option<PathBuf>,
    /// Variables that agents get there, besides those of the allocation.
    pub env: Vec<(String, String)>,
    /// What keeps environments and inputs for the next job.
    pub cache: CacheVolume,
    /// Registries, by host and port, that speak HTTP without TLS; those of this machine may always.
    pub insecure_registries: Vec<String>,
    /// Docker's configuration file of this machine, with logins; it need not be there.
    pub docker_config: Option<PathBuf>,
    /// By file system: pods that want one mount it at [`volume_path`].
    pub file_systems: BTreeMap<String, Claim>,
    /// Of all pods.
    pub pods: PodOptions,
    /// What differs by instance type.
    pub types: BTreeMap<String, PodOptions>,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its name in the namespace.
    pub name: String,
    /// No pod writes into it.
    pub is_read_only: bool,
}

/// What keeps environments and inputs for the next job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CacheVolume {
    /// Nothing: a directory that goes with the pod.
    #[default]
    Pod,
    /// A PersistentVolumeClaim of this name, which all nodes must be able to write.
    Claim(String),
    /// A directory of each node, at the same path in pods.
    Node(PathBuf),
}

/// What pods have; what is absent is decided elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodOptions {
    /// Processors, instead of the instance type's.
    pub cpus: Option<u32>,
    /// Memory as Kubernetes writes it, instead of the instance type's.
    pub memory: Option<String>,
    /// GPUs, instead of the instance type's.
    pub gpus: Option<u32>,
    /// The name of GPUs among the node's resources; none: `nvidia.com/gpu`.
    pub gpu_resource: Option<String>,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// As in a pod's specification.
    pub tolerations: Vec<Value>,
    /// The name of a PriorityClass.
    pub priority_class: Option<String>,
    /// The name of a ServiceAccount; its token is not mounted.
    pub service_account: Option<String>,
    /// A LocalQueue of Kueue's.
    pub queue: Option<String>,
    /// More labels.
    pub labels: BTreeMap<String, String>,
    /// Names of Secrets with the registry's credentials.
    pub image_pull_secrets: Vec<String>,
}

impl PodOptions {
    /// These where they say something, else the others. Lists are joined.
    #[must_use]
    pub fn over(&self, others: &PodOptions) -> PodOptions {
        let joined = |own: &BTreeMap<String, String>, others: &BTreeMap<String, String>| {
            others.iter().chain(own).map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let text = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
        PodOptions {
            cpus: self.cpus.or(others.cpus),
            memory: text(&self.memory, &others.memory),
            gpus: self.gpus.or(others.gpus),
            gpu_resource: text(&self.gpu_resource, &others.gpu_resource),
            node_selector: joined(&self.node_selector, &others.node_selector),
            tolerations: [&others.tolerations[..], &self.tolerations].concat(),
            priority_class: text(&self.priority_class, &others.priority_class),
            service_account: text(&self.service_account, &others.service_account),
            queue: text(&self.queue, &others.queue),
            labels: joined(&self.labels, &others.labels),
            image_pull_secrets: [&others.image_pull_secrets[..], &self.image_pull_secrets].concat(),
        }
    }
}

impl KubernetesOptions {
    /// Of pods of an instance type.
    pub(super) fn of_type(&self, kind: &str) -> PodOptions {
        self.types.get(kind).map_or_else(|| self.pods.clone(), |own| own.over(&self.pods))
    }

    /// Where pods have their cache.
    pub(super) fn cache_path(&self) -> &Path {
        match &self.cache {
            CacheVolume::Node(path) => path,
            CacheVolume::Pod | CacheVolume::Claim(_) => Path::new(CACHE),
        }
    }

    /// The program in our own images.
    pub(super) fn program(&self, spec: &AllocationSpec) -> String {
        self.program.as_ref().unwrap_or(&spec.program).to_string_lossy().into_owned()
    }

    /// The image with the program that other images lack.
    pub(super) fn init_image(&self) -> &str {
        self.init_image.as_ref().unwrap_or(&self.image)
    }
}
