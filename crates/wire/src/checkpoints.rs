//! Receipts of checkpoints: an operation of ours beside SageMaker's, `Shoal.ListCheckpoints`, as
//! AWS has none that shows them.

use serde::Deserialize;
use serde_json::json;

use crate::{Reply, call::plain_inputs, timestamp};

/// What `X-Amz-Target` says.
pub const LIST_CHECKPOINTS: &str = "Shoal.ListCheckpoints";

/// Which receipts are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListCheckpoints {
    /// Training job's name.
    pub training_job_name: String,
    /// From the page before.
    #[serde(default)]
    pub next_token: Option<String>,
}

/// A file that is durable in S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReceipt {
    /// Below the checkpoint location.
    pub path: String,
    /// `algo-1`
    pub host: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its content, hexadecimal.
    pub sha256: String,
    /// When it was durable, in milliseconds since the epoch.
    pub saved_ms: u64,
}

plain_inputs!(ListCheckpoints);

impl Reply {
    /// `ListCheckpoints`, by path and host.
    pub fn list_checkpoints(receipts: &[CheckpointReceipt], next_token: Option<&str>) -> Self {
        let shown = |it: &CheckpointReceipt| {
            json!({
                "Path": it.path,
                "Host": it.host,
                "Bytes": it.bytes,
                "Sha256": it.sha256,
                "SavedTime": timestamp::seconds(it.saved_ms),
            })
        };
        Self::page("Checkpoints", receipts.iter().map(shown), "NextToken", next_token)
    }
}
