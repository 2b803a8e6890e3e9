//! System metrics of an instance: what is measured, and how often.

use serde::{Deserialize, Serialize};

/// Names of metrics: AWS's where it has one.
pub mod metric {
    /// Percent of one core, summed: 100 for each core that is busy.
    pub const CPU: &str = "CPUUtilization";
    /// Cores that the instance counts on: its share of the machine when it started.
    pub const CORES: &str = "Cores";
    /// Percent of the memory that the instance may use.
    pub const MEMORY: &str = "MemoryUtilization";
    /// Percent of the volume that the instance may use.
    pub const DISK: &str = "DiskUtilization";
    /// Percent of the time in which the GPU was busy.
    pub const GPU: &str = "GPUUtilization";
    /// Percent of the GPU's memory.
    pub const GPU_MEMORY: &str = "GPUMemoryUtilization";
    /// Bytes of memory.
    pub const MEMORY_BYTES: &str = "MemoryBytes";
    /// Bytes that were read from disks.
    pub const DISK_READ: &str = "DiskReadBytesPerSecond";
    /// Bytes that were written to disks.
    pub const DISK_WRITE: &str = "DiskWriteBytesPerSecond";
    /// Bytes that the instance's network interfaces received.
    pub const NETWORK_RECEIVE: &str = "NetworkReceiveBytesPerSecond";
    /// Bytes that they sent.
    pub const NETWORK_SEND: &str = "NetworkSendBytesPerSecond";
}

/// How an instance is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Milliseconds between two samples; `None`: there are none but the profiler's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u32>,
    /// Milliseconds between two samples for the profiler's files (`ProfilerConfig`); `None`: there
    /// are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_ms: Option<u32>,
}

impl Sampling {
    /// Milliseconds between two samples of either purpose.
    #[must_use]
    pub fn shortest_ms(self) -> Option<u32> {
        [self.interval_ms, self.profile_ms].into_iter().flatten().min()
    }
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampleColumn {
    /// One of [`metric`], or one of a newer agent.
    pub metric: String,
    /// Of one GPU, by its index on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Of the processes of one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

impl SampleColumn {
    /// Of the whole instance.
    #[must_use]
    pub fn of_instance(metric: &str) -> Self {
        Self { metric: metric.to_owned(), gpu: None, rank: None }
    }
}

/// Samples that have the same columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleTable {
    /// Each once.
    pub columns: Vec<SampleColumn>,
    /// In order of time.
    pub rows: Vec<SampleRow>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleRow {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// It belongs into the profiler's files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_profiled: bool,
    /// By column; finite and not negative.
    pub values: Vec<f64>,
}
