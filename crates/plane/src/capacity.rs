//! What this machine has, and what an instance gets of it.

use serde::{Deserialize, Serialize};

/// What there is to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// CPU cores; over-committed by weight, so a size and not a limit on the number of instances.
    pub cpus: u32,
    /// Memory for instances in all; a hard limit.
    pub memory_bytes: u64,
    /// GPUs in all; a hard limit.
    pub gpus: u32,
    /// Most instances at once.
    pub instances: u32,
}

/// What each instance of a job gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Cores that it believes in: the type's, capped to the machine's.
    pub cpus: u32,
    /// cgroup v2 weight (100 per core).
    pub cpu_weight: u32,
    /// Limit: the type's memory, capped.
    pub memory_bytes: u64,
    /// GPU indexes of each instance, by host number - 1.
    pub gpus: Vec<Vec<u32>>,
    /// What was capped, as a sentence for the status message and the log.
    pub capped: Option<String>,
}
