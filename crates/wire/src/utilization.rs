//! What the instances of a training job use: an operation of ours beside SageMaker's,
//! `Shoal.DescribeUtilization`, as AWS has series of it alone.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Reply, call::plain_inputs, timestamp};

/// Value of `X-Amz-Target`.
pub const DESCRIBE_UTILIZATION: &str = "Shoal.DescribeUtilization";

/// Whose utilization is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DescribeUtilization {
    /// Training job's name.
    pub training_job_name: String,
    /// Only what was measured in this number of last seconds.
    #[serde(default)]
    pub last_seconds: Option<u32>,
}

/// What an instance used.
#[derive(Debug, Clone, PartialEq)]
pub struct HostUtilization {
    /// `algo-1`
    pub host: String,
    /// When it was last measured, in milliseconds since the epoch.
    pub at_ms: u64,
    /// Each metric of the instance, its GPUs and its ranks.
    pub metrics: Vec<MetricUtilization>,
}

/// A metric of an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricUtilization {
    /// `CPUUtilization` and the like.
    pub name: String,
    /// Of one GPU, by its number on the machine.
    pub gpu: Option<u32>,
    /// Of one rank.
    pub rank: Option<u32>,
    /// The last value.
    pub latest: f64,
    /// Mean of all samples.
    pub average: f64,
    /// The greatest value.
    pub maximum: f64,
    /// Number of samples.
    pub samples: u64,
}

plain_inputs!(DescribeUtilization);

impl Reply {
    /// `DescribeUtilization`, by host.
    pub fn describe_utilization(hosts: &[HostUtilization]) -> Self {
        let metric = |it: &MetricUtilization| {
            let mut entry = json!({
                "Name": it.name,
                "Latest": it.latest,
                "Average": it.average,
                "Maximum": it.maximum,
                "Samples": it.samples,
            });
            for (name, number) in [("GPU", it.gpu), ("Rank", it.rank)] {
                if let Some(number) = number {
                    entry[name] = json!(number);
                }
            }
            entry
        };
        let host = |it: &HostUtilization| {
            json!({
                "Host": it.host,
                "Time": timestamp::seconds(it.at_ms),
                "Metrics": it.metrics.iter().map(metric).collect::<Value>(),
            })
        };
        Self::of(json!({"Hosts": hosts.iter().map(host).collect::<Value>()}))
    }
}
