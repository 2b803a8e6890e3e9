//! What of an attempt must survive a restart: one file in its run directory, written before the
//! first agent starts.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};
use shoal_link::Assignment;
use shoal_plane::{AttemptId, Host, JobName, Node};
use shoal_runtime::{
    steps::FoundPlan,
    warm_pool::{AllocationId, ReusePolicy},
};

/// What is kept of an attempt on disk (`attempt.json`, version 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) version: u32,
    pub(crate) job: JobName,
    pub(crate) attempt: AttemptId,
    /// Log streams, by host number - 1.
    pub(crate) streams: Vec<String>,
    /// S3 buckets and prefixes that the program may read.
    pub(crate) reads: Vec<(String, String)>,
    /// S3 buckets and prefixes that the program may write.
    pub(crate) writes: Vec<(String, String)>,
    /// `EnableNetworkIsolation`: the program gets no endpoint.
    pub(crate) isolated: bool,
    /// S3 bucket and prefix of the checkpoints; the prefix is empty or ends in `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoints: Option<(String, String)>,
    /// The same of the intermediate output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intermediate: Option<(String, String)>,
    /// The same of the hook's tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tensors: Option<(String, String)>,
    /// The same of TensorBoard's event files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tensor_board: Option<(String, String)>,
    /// The same of the events of frameworks, for the profiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profiler: Option<(String, String)>,
    /// By host number - 1; without the endpoint, which is derived.
    pub(crate) assignments: Vec<Assignment>,
    /// Names of the nodes on which the instances are, by host number - 1, where nodes are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<String>,
    /// The longest time that it runs, with a margin, in seconds; older plans have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) longest_s: Option<u64>,
    /// Name of the key that its training job was created with; `None` for the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) creator: Option<String>,
    /// Which attempts may have its instance afterwards.
    #[serde(rename = "keep", default, skip_serializing_if = "Option::is_none")]
    pub(crate) reuse: Option<ReusePolicy>,
    /// Its allocation, if that was started for another attempt.
    #[serde(rename = "origin", default, skip_serializing_if = "Option::is_none")]
    pub(crate) allocation_id: Option<AttemptId>,
}

impl Plan {
    /// The node or the compute target that has an instance.
    pub(crate) fn node(&self, host: Host) -> &str {
        let name = host.index().and_then(|index| self.nodes.get(index));
        name.map_or(Node::LOCAL, String::as_str)
    }

    /// Whether the instances have the network of their machines.
    pub(crate) fn has_machine_network(&self) -> bool {
        self.assignments.iter().any(|assignment| assignment.machine_network.is_some())
    }

    /// The first of its ports in that network.
    pub(crate) fn first_port(&self) -> Option<u16> {
        self.assignments.first()?.machine_network.map(|network| network.first_port)
    }

    /// Version of the file's form.
    pub(crate) const VERSION: u32 = 1;
    /// Its name.
    pub(crate) const FILE: &str = "attempt.json";

    /// Its allocation: the attempt that this was started for.
    pub(crate) fn allocation_id(&self) -> &AttemptId {
        self.allocation_id.as_ref().unwrap_or(&self.attempt)
    }

    /// What machines need of it.
    pub(crate) fn found(&self) -> FoundPlan {
        FoundPlan {
            allocation: AllocationId(self.allocation_id().clone()),
            hosts: u32::try_from(self.assignments.len()).unwrap_or(u32::MAX),
            key: self.reuse.as_ref().map(|policy| policy.key.clone()),
            is_elastic: self.assignments.iter().any(|it| it.elastic.is_some()),
        }
    }

    /// Writes the plan. It survives the end of the server; that of the machine only after
    /// [`super::Attempt::sync_plan`], before which nothing that agents report is durable.
    pub(crate) fn write(&self, run_dir: &Path) -> io::Result<()> {
        let (path, temporary) = (run_dir.join(Self::FILE), run_dir.join("attempt.json.new"));
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(&temporary, &path)
    }

    /// Reads the plan, if there is one. One that was only partly on disk when the machine ended
    /// counts as none.
    pub(crate) fn read(run_dir: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(run_dir.join(Self::FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let plan: Self = match serde_json::from_slice(&bytes) {
            // Its end is missing, or blocks that were never written read as zeros.
            Err(error) if error.is_eof() || bytes.contains(&0) => return Ok(None),
            read => read?,
        };
        if plan.version != Self::VERSION {
            return Err(io::Error::other(format!("{}: version {} is not known here", run_dir.display(), plan.version)));
        }
        Ok(Some(plan))
    }
}
