//! What the core decides on of a training job.

use shoal_plane::{Claim, Form, GangSpec};
use shoal_wire::CreateTrainingJob;

/// The core's part of a request for instances of this compute target, for whom the claim has.
pub(crate) fn gang_spec(request: &CreateTrainingJob, target: Option<String>, claim: Claim, grace_s: u32) -> GangSpec {
    let others = request.resources.types().into_iter().skip(1);
    let group =
        |(kind, instances): (&str, u32)| shoal_plane::InstanceGroup { instance_type: kind.to_owned(), instances };
    GangSpec {
        instance_type: request.resources.instance_type.clone(),
        instances: request.resources.instance_count,
        other_groups: others.map(group).collect(),
        form: Form::Ends { max_runtime_s: request.stopping.max_runtime_s },
        max_pending_s: request.stopping.max_pending_s,
        max_wait_s: request.stopping.max_wait_s,
        grace_s,
        retries: request.retries,
        min_instances: request.min_instances,
        target,
        claim,
    }
}
