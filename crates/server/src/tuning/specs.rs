//! What the core decides on of a tuning job.

use shoal_plane::{DefinitionSpec, TrainingSpec, TuningSpec};
use shoal_wire::{CreateTrainingJob, CreateTuningJob};

use super::Design;

/// The core's part of a request.
pub(crate) fn tuning_spec(request: &CreateTuningJob, designs: &[Design], grace_s: u32) -> TuningSpec {
    let definition = |(design, definition): (&Design, &shoal_wire::TuningDefinition)| DefinitionSpec {
        objectives: design.objectives.clone(),
        training: training_spec(&definition.training, grace_s),
        checkpoints: design.checkpoints,
        max_resource: design.study.scheduler.max_resource(&design.study.space),
    };
    TuningSpec {
        max_jobs: request.limits.max_jobs,
        max_parallel: request.limits.max_parallel,
        max_runtime_s: request.limits.max_runtime_s,
        target: request.completion.target,
        not_improving: request.completion.not_improving,
        complete_on_convergence: request.completion.convergence,
        definitions: designs.iter().zip(&request.definitions).map(definition).collect(),
    }
}

fn training_spec(request: &CreateTrainingJob, grace_s: u32) -> TrainingSpec {
    TrainingSpec {
        instance_type: request.resources.instance_type.clone(),
        instances: request.resources.instance_count,
        max_runtime_s: request.stopping.max_runtime_s,
        max_pending_s: request.stopping.max_pending_s,
        max_wait_s: request.stopping.max_wait_s,
        grace_s,
        retries: request.retries,
    }
}
