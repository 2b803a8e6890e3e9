//! What the web console asks of this server.

use std::sync::Arc;

use futures::future::BoxFuture;
use shoal_console::{Console, ImageKind, Sources, Stop, Study};
use shoal_plane::{JobView, TuningView};
use shoal_store::{ResourceRow, StoreError};
use shoal_wire::{CreateTuningJob, Error, NamedTrainingJob, NamedTuningJob, WarmPool};

use crate::{
    Image,
    api::{Api, best_model, spec_kind},
    requests,
    tuning::{self, Design},
    world::World,
};

/// The console of this server.
pub(crate) fn open(world: &Arc<World>, api: &Arc<Api>) -> Console {
    Console::new(Sources {
        rows: world.rows.clone(),
        telemetry: world.telemetry.clone(),
        objects: world.objects.clone(),
        catalog: world.catalog.clone(),
        version: world.core.version(),
        job_changes: world.job_changes.clone(),
        server: Arc::new(Server { world: world.clone(), api: api.clone() }),
        owner: world.keys.credentials(),
        data_id: world.data_id.clone(),
        data_dir: world.data_dir.root().to_owned(),
        grace_s: world.grace_s,
    })
}

struct Server {
    world: Arc<World>,
    api: Arc<Api>,
}

impl shoal_console::Server for Server {
    fn current_view(&self, job: &str) -> BoxFuture<'static, Option<JobView>> {
        let (core, job) = (self.world.core.clone(), job.to_owned());
        Box::pin(async move { core.view(&job).await })
    }

    fn stop(&self, stop: Stop) -> BoxFuture<'static, Result<(), Error>> {
        let api = self.api.clone();
        Box::pin(async move {
            match stop {
                Stop::TrainingJob(training_job_name) => {
                    api.stop_training_job(NamedTrainingJob { training_job_name }).await?
                }
                Stop::TuningJob(hyper_parameter_tuning_job_name) => {
                    api.stop_tuning_job(NamedTuningJob { hyper_parameter_tuning_job_name }).await?
                }
            };
            Ok(())
        })
    }

    fn image(&self, name: &str) -> ImageKind {
        match self.world.images.known(name) {
            Ok(Some(Image::Builtin(algorithm))) => ImageKind::Builtin(algorithm.name),
            Ok(Some(Image::Host | Image::Python(_) | Image::Root(_))) => ImageKind::Environment,
            Ok(None) | Err(_) => ImageKind::Unknown,
        }
    }

    fn study(&self, row: &ResourceRow) -> Result<Study, Error> {
        let images = &*self.world.images;
        let request = requests::tuning_job(row)?;
        // The request may be of a version that allowed what is refused now.
        let designs = tuning::designs(&request, tuning::seed(&request, &row.uid), images).unwrap_or_default();
        let greatest = |design: &Design| design.study.scheduler.levels().last().copied();
        let greatest_resources = designs.iter().map(greatest).collect();
        Ok(Study { strategy: strategy(designs.first(), &request), greatest_resources, request })
    }

    fn best_model_warning(&self, view: &TuningView) -> Result<Option<String>, Error> {
        best_model::warning(&self.world, view)
    }

    fn warm_pool(&self, job: &str) -> Result<Option<WarmPool>, StoreError> {
        self.world.warm_pool(job)
    }
}

/// Searcher and scheduler, as they are composed; without a design the API's name.
fn strategy(design: Option<&Design>, request: &CreateTuningJob) -> String {
    let Some(design) = design else { return request.strategy.as_str().to_owned() };
    let searcher = spec_kind(&design.study.searcher).replace('_', "-");
    match spec_kind(&design.study.scheduler).replace('_', "-") {
        scheduler if scheduler == "none" || scheduler.is_empty() => searcher,
        scheduler => format!("{searcher} + {scheduler}"),
    }
}
