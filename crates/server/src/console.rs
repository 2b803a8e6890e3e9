//! What the web console asks of this server.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;
use shoal_console::{ImageKind, RunsPage, RunsQuery, Stop, Study};
use shoal_plane::{JobView, TuningView};
use shoal_store::{ResourceRow, StoreError};
use shoal_wire::{CreateTuningJob, Error, NamedTrainingJob, NamedTuningJob, Service, WarmPool, parse};

use crate::{
    Image,
    api::{Api, Caller, Records, best_model, read, spec_kind},
    core::Core,
    internal::internal,
    key_ring::Holder,
    requests,
    tuning::{self, Design},
};

/// What the console asks.
pub(crate) struct Server {
    pub(crate) core: Core,
    pub(crate) records: Arc<Records>,
    pub(crate) api: Arc<Api>,
}

impl shoal_console::Server for Server {
    fn current_view(&self, job: &str) -> BoxFuture<'static, Option<JobView>> {
        let (core, job) = (self.core.clone(), job.to_owned());
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

    fn call(&self, target: &'static str, input: Value) -> BoxFuture<'static, Result<Value, Error>> {
        let api = self.api.clone();
        Box::pin(async move {
            let request = http::Request::post("/").header("x-amz-target", target).body(());
            let (head, ()) = request.map_err(|error| internal(&error))?.into_parts();
            let service = Service::of_target(target).unwrap_or(Service::SageMaker);
            let call = parse(service, &head, input.to_string().as_bytes())?;
            let caller = Caller { user_agent: "shoal-console".to_owned(), holder: Holder::Owner };
            Ok(api.answer(read(call)?, &caller).await?.into_body())
        })
    }

    fn runs(&self, query: RunsQuery) -> BoxFuture<'static, Result<RunsPage, Error>> {
        let api = self.api.clone();
        Box::pin(async move { api.runs(move |index| index.table(query)).await })
    }

    fn runs_of_experiments(&self) -> BoxFuture<'static, Result<BTreeMap<String, usize>, Error>> {
        let api = self.api.clone();
        Box::pin(async move { api.runs(|index| index.counts("Parents.ExperimentName")).await })
    }

    fn image(&self, name: &str) -> ImageKind {
        match self.records.images.known(name) {
            Ok(Some(Image::Builtin(algorithm))) => ImageKind::Builtin(algorithm.name),
            Ok(Some(Image::Host | Image::Python(_) | Image::Root(_))) => ImageKind::Environment,
            Ok(None) | Err(_) => ImageKind::Unknown,
        }
    }

    fn study(&self, row: &ResourceRow) -> Result<Study, Error> {
        let images = &*self.records.images;
        let request = requests::tuning_job(row)?;
        // The request may be of a version that allowed what is refused now.
        let designs = tuning::designs(&request, tuning::seed(&request, &row.uid), images).unwrap_or_default();
        let greatest = |design: &Design| design.study.scheduler.levels().last().copied();
        let greatest_resources = designs.iter().map(greatest).collect();
        Ok(Study { strategy: strategy(designs.first(), &request), greatest_resources, request })
    }

    fn best_model_warning(&self, view: &TuningView) -> Result<Option<String>, Error> {
        best_model::warning(&*self.records.rows, &self.records.objects, view)
    }

    fn warm_pool(&self, job: &str) -> Result<Option<WarmPool>, StoreError> {
        self.records.pools.of(job)
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
