//! Where jobs may run: an operation of ours beside SageMaker's, `Shoal.ListTargets`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Reply, call::plain_inputs};

/// The operation's `X-Amz-Target`.
pub const LIST_TARGETS: &str = "Shoal.ListTargets";

/// Asks for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListTargets {}

/// A compute target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetLine {
    /// As the tag `shoal:target` names it.
    pub name: String,
    /// `local` or the scheduler's.
    pub kind: String,
    /// What keeps it from running jobs; none: nothing that is known.
    pub problem: Option<String>,
    /// Whether jobs are here that choose none.
    pub is_default: bool,
    /// Most instances at once.
    pub instances: u32,
    /// Instances of jobs that have started, or wait in its scheduler's queue.
    pub submitted: u32,
    /// Instance types that are its own; none: any.
    pub types: Vec<String>,
    /// The state of its nodes and its queue.
    pub details: Vec<String>,
}

plain_inputs!(ListTargets);

impl Reply {
    /// `ListTargets`.
    pub fn list_targets(targets: &[TargetLine]) -> Self {
        Self::of(json!({"Targets": targets.iter().map(line).collect::<Vec<_>>()}))
    }
}

fn line(target: &TargetLine) -> Value {
    let mut line = json!({
        "Name": target.name,
        "Kind": target.kind,
        "Status": if target.problem.is_some() { "Unavailable" } else { "Available" },
        "IsDefault": target.is_default,
        "MaxInstances": target.instances,
        "SubmittedInstances": target.submitted,
        "InstanceTypes": target.types,
        "Details": target.details,
    });
    if let Some(problem) = &target.problem {
        line["Problem"] = json!(problem);
    }
    line
}
