//! What the web console asks of this server, and what of it the holder of a key sees.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use shoal_console::{ImageKind, ObjectsOpen, RunsPage, RunsQuery, Sources, Stop, Study};
use shoal_plane::{JobView, TuningView};
use shoal_store::{ResourceRow, StoreError};
use shoal_wire::{CreateTuningJob, Error, KeyRole, Service, WarmPool, parse, sigv4::Credentials};

use crate::{
    Image,
    api::{Api, Caller, Records, best_model, read, spec_kind},
    auditor::Auditor,
    core::Core,
    internal::internal,
    key_ring::{Holder, KeyRing},
    requests,
    team::Member,
    tuning::{self, Design},
};

/// What the console asks.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) core: Core,
    pub(crate) records: Arc<Records>,
    pub(crate) api: Arc<Api>,
    pub(crate) auditor: Auditor,
    /// Whose key signed in; `None` for the owner's.
    pub(crate) member: Option<Arc<Member>>,
    /// The browser's address.
    pub(crate) source: IpAddr,
}

impl Server {
    fn caller(&self) -> Caller {
        let holder = if self.member.is_some() { Holder::Member } else { Holder::Owner };
        Caller { user_agent: "shoal-console".to_owned(), holder, member: self.member.clone() }
    }

    /// What the API answers a call of this visitor's.
    fn answer(&self, target: &'static str, input: Value) -> BoxFuture<'static, Result<Value, Error>> {
        let (api, auditor, caller, source) = (self.api.clone(), self.auditor.clone(), self.caller(), self.source);
        Box::pin(async move {
            let request = http::Request::post("/").header("x-amz-target", target).body(());
            let (head, ()) = request.map_err(|error| internal(&error))?.into_parts();
            let service = Service::of_target(target).unwrap_or(Service::SageMaker);
            let call = parse(service, &head, input.to_string().as_bytes())?;
            let noted = call.clone();
            let answer = async {
                api.permit(&call, &caller).await?;
                Ok(api.answer(read(call)?, &caller).await?.into_body())
            };
            let answer = answer.await;
            auditor.note_from_console(&noted, &caller, answer.as_ref().err(), source);
            answer
        })
    }
}

/// The keys that open the console.
pub(crate) struct ConsoleKeys {
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) server: Server,
}

impl shoal_console::Keys for ConsoleKeys {
    fn owner(&self) -> Credentials {
        self.ring.owner.credentials()
    }

    fn secret(&self, access_key_id: &str) -> Option<String> {
        if access_key_id == self.ring.owner.access_key_id {
            return Some(self.ring.owner.secret_access_key.clone());
        }
        // Temporary keys open no console.
        self.ring.team.by_key(access_key_id).map(|_| self.ring.team.secret(access_key_id))
    }

    fn seen_by(&self, access_key_id: &str, source: IpAddr, all: &Sources) -> Option<Sources> {
        let is_owner = access_key_id == self.ring.owner.access_key_id;
        let member = if is_owner { None } else { Some(self.ring.team.by_key(access_key_id)?) };
        let server = Server { member: member.clone(), source, ..self.server.clone() };
        let rows = server.caller().rows(&all.rows);
        let role = member.as_ref().map_or(KeyRole::Owner, |member| member.role);
        let objects_open = match member.filter(|member| member.is_user()) {
            None => ObjectsOpen::All,
            Some(member) => ObjectsOpen::Some(Arc::new(move |bucket, key| member.may_read(bucket, key))),
        };
        Some(Sources { rows, objects_open, role, server: Arc::new(server), ..all.clone() })
    }

    fn signed_in(&self, access_key_id: &str, identity: Option<&str>, source: IpAddr, is_in: bool) {
        self.server.auditor.note_sign_in(access_key_id, identity, source, is_in);
    }
}

impl shoal_console::Server for Server {
    fn current_view(&self, job: &str) -> BoxFuture<'static, Option<JobView>> {
        let (core, job) = (self.core.clone(), job.to_owned());
        Box::pin(async move { core.view(&job).await })
    }

    fn stop(&self, stop: Stop) -> BoxFuture<'static, Result<(), Error>> {
        let answer = match stop {
            Stop::TrainingJob(name) => self.answer("SageMaker.StopTrainingJob", json!({"TrainingJobName": name})),
            Stop::TuningJob(name) => {
                let input = json!({"HyperParameterTuningJobName": name});
                self.answer("SageMaker.StopHyperParameterTuningJob", input)
            }
        };
        Box::pin(async move { answer.await.map(|_| ()) })
    }

    fn call(&self, target: &'static str, input: Value) -> BoxFuture<'static, Result<Value, Error>> {
        self.answer(target, input)
    }

    fn runs(&self, query: RunsQuery) -> BoxFuture<'static, Result<RunsPage, Error>> {
        let (api, caller) = (self.api.clone(), self.caller());
        Box::pin(async move { api.runs(move |index| index.table(caller.sees(), query)).await })
    }

    fn runs_of_experiments(&self) -> BoxFuture<'static, Result<BTreeMap<String, usize>, Error>> {
        let (api, caller) = (self.api.clone(), self.caller());
        Box::pin(async move { api.runs(move |index| index.counts(caller.sees(), "Parents.ExperimentName")).await })
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
