//! What the core decides on of a tuning job.

use shoal_plane::{Claim, DefinitionSpec, TuningSpec};
use shoal_wire::{CreateTuningJob, Error};

use super::Design;
use crate::{ComputeTargets, gang_spec::gang_spec};

/// The core's part of a request.
///
/// # Errors
/// `ValidationException`: there is no such compute target.
pub(crate) fn tuning_spec(
    request: &CreateTuningJob,
    designs: &[Design],
    targets: &ComputeTargets,
    claim: &Claim,
    grace_s: u32,
) -> Result<TuningSpec, Error> {
    let definition = |(design, definition): (&Design, &shoal_wire::TuningDefinition)| {
        // Trials have the tags of their tuning job.
        let target = targets.of(&request.tags, &definition.training.resources)?;
        Ok(DefinitionSpec {
            objectives: design.objectives.clone(),
            training: gang_spec(&definition.training, target, claim.clone(), grace_s),
            checkpoints: design.checkpoints,
            pause: design.pause,
            max_resource: design.study.scheduler.max_resource(&design.study.space),
        })
    };
    Ok(TuningSpec {
        max_jobs: request.limits.max_jobs,
        max_parallel: request.limits.max_parallel,
        max_runtime_s: request.limits.max_runtime_s,
        target: request.completion.target,
        not_improving: request.completion.not_improving,
        complete_on_convergence: request.completion.convergence,
        definitions: designs.iter().zip(&request.definitions).map(definition).collect::<Result<_, Error>>()?,
    })
}
