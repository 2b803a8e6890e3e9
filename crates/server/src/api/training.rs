//! Training jobs: create, describe, list, update, stop, delete.

use std::{num::NonZeroU32, time::Duration};

use serde_json::{Map, Value};
use shoal_link::PythonEnvironment;
use shoal_plane::{Command, JobView, Rejection, SecondaryStatus, StopCause};
use shoal_runtime::warm_pool;
use shoal_store::{ResourceKind, ResourceRow, ResourceSort, RowChange, SortOrder};
use shoal_wire::{
    Call, CreateTrainingJob, Debugger, Error, ErrorCode, FinalMetric, InterruptTrainingJob, MetricDefinition,
    NamedTrainingJob, Output, OutputCompression, Reply, StatusTransition, Stored as _, TrainingJobDescription,
    TrainingJobSummary, UpdateTrainingJob, WarmPool, arn, search_record, stored_description, tags,
};
use tokio::time::Instant;

use super::{
    Api, Caller, Records, blocking,
    listing::{DefaultOrder, Listing, members},
    resource_types::{NewJob, with_job},
    resources::{found, missing},
    rule_statuses,
};
use crate::{
    Images, admission, artifacts,
    channels::may_read,
    clock::now_ms,
    core::{Opaque, Present, Refusal, refused, secondary_status},
    gang_spec::gang_spec,
    hex::random_hex,
    internal::internal,
    ledger, requests,
    warm_status::{AVAILABLE, IN_USE, WarmPools},
};

/// The newest first; in an order that is given, ascending.
pub(super) const DEFAULT_ORDER: DefaultOrder = DefaultOrder {
    sort: ResourceSort::CreationTime,
    order: SortOrder::Descending,
    order_of_sort: SortOrder::Ascending,
};
/// How long a deletion waits until an ended job's instances are released.
const RELEASE: Duration = Duration::from_secs(20);

impl Api {
    pub(super) async fn create_training_job(
        &self,
        request: CreateTrainingJob,
        caller: &Caller,
    ) -> Result<Reply, Error> {
        self.holds.created(&request.name, &caller.user_agent);
        let (rows, admission) = (self.rows.clone(), self.admission.clone());
        let may_read = may_read(caller.member.clone(), &self.admission.objects, &self.identity.account);
        let creator = caller.creator();
        let (request, name_taken) = blocking(move || {
            // A name that is taken is the first complaint, whatever else the request has become
            // unfit for by now.
            let is_taken = || found(&*rows, ResourceKind::TRAINING_JOB, &request.name).map(|row| row.is_some());
            if is_taken()? {
                return Err(refused(&Refusal::Rejected(Rejection::NameTaken(request.name.clone()))));
            }
            admission.check(&request, creator.as_deref(), &may_read)?;
            // The checks may take seconds, in which another job of this name may have come and
            // ended.
            let name_taken = is_taken()?;
            Ok((request, name_taken))
        })
        .await?;
        let arn = arn::training_job(&self.identity.region, &self.identity.account, &request.name);
        let uid = random_hex(6).map_err(|error| internal(&error))?;
        let target = self.admission.targets.of(&request.tags, &request.resources)?;
        let claim = self.quotas.claim(&request.tags, caller.member.as_deref())?;
        let spec = gang_spec(&request, target, claim, self.grace_s);
        let opaque = Opaque::new(uid.clone(), arn.clone(), &request, caller.creator());
        let job = NewJob { name: request.name.clone(), arn: arn.clone(), uid: uid.clone(), creator: caller.creator() };
        let command = Command::CreateTrainingJob { name: request.name.into(), uid, spec, name_taken };
        let created = match request.experiment {
            None => self.core.ask(command, Some(opaque)).await,
            Some(config) => {
                let beside = move |present: &Present<'_>| with_job(present, &config, &job);
                self.core.ask_beside(command, opaque, beside).await
            }
        };
        created.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::training_job_arn(&arn))
    }

    pub(crate) async fn stop_training_job(&self, request: NamedTrainingJob) -> Result<Reply, Error> {
        let name = request.training_job_name;
        let row = self.row(&name).await?;
        let known = view(&row)?;
        let ended = row.ended.then_some(known.status);
        self.core
            .ask(Command::StopTrainingJob { name: name.into(), cause: StopCause::User, ended }, None)
            .await
            .map_err(|refusal| refused(&refusal))?;
        let runs = known.secondary == SecondaryStatus::Training;
        Ok(Reply::done().with_notice(runs.then(|| grace_text(self.grace_s, now_ms()))))
    }

    pub(super) async fn interrupt_training_job(&self, request: InterruptTrainingJob) -> Result<Reply, Error> {
        let name = request.training_job_name;
        let row = self.row(&name).await?;
        let ended = if row.ended { Some(view(&row)?.status) } else { None };
        let instances = request.instance_count.map(NonZeroU32::get);
        let command = Command::InterruptTrainingJob { name: name.into(), instances, ended };
        self.core.ask(command, None).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(super) async fn describe_training_job(
        &self,
        request: NamedTrainingJob,
        caller: &Caller,
    ) -> Result<Reply, Error> {
        let name = request.training_job_name.as_str();
        let row = self.held(ResourceKind::TRAINING_JOB, name, caller).await?;
        let stored = view(&row)?;
        // Only the core knows the place of a job that waits: it changes when others come and go.
        let view = match &stored.pending {
            Some(_) => self.core.view(name).await.unwrap_or(stored),
            None => stored,
        };
        let (request, mut description) = describe(&row, &view)?;
        add_image(&*self.records.images, &request, &mut description);
        description.warm_pool = self.warm_pool(name).await?;
        Ok(Reply::describe_training_job(request, &description))
    }

    pub(super) async fn list_training_jobs(&self, call: Call, caller: &Caller) -> Result<Reply, Error> {
        let members = members(&call)?;
        let mut listing = Listing::read(
            ResourceKind::TRAINING_JOB,
            DEFAULT_ORDER,
            members,
            &["TrainingPlanArnEquals", "WarmPoolStatusEquals"],
        )?;
        if members.contains_key("TrainingPlanArnEquals") {
            // No job has a training plan.
            listing.filter.names = Some(Vec::new());
        } else if let Some(status) = members.get("WarmPoolStatusEquals").and_then(Value::as_str).map(str::to_owned) {
            let telemetry = self.telemetry.clone();
            let pools = blocking(move || telemetry.warm_pools(&status).map_err(|error| internal(&error))).await?;
            listing.filter.names = Some(pools.into_iter().map(|pool| pool.job).collect());
        }
        let pools = self.records.pools.clone();
        let (summaries, next_token) =
            listing.page(caller.rows(&self.rows), move |rows| summaries(&pools, rows)).await?;
        Ok(Reply::list_training_jobs(&summaries, next_token.as_deref()))
    }

    pub(super) async fn update_training_job(&self, update: UpdateTrainingJob) -> Result<Reply, Error> {
        let name = update.name.clone();
        let arn = arn::training_job(&self.identity.region, &self.identity.account, &name);
        let pool = self.warm_pool(&name).await?;
        // One that is still in use at the end of its job is about to be kept.
        let is_kept = pool.is_some_and(|pool| matches!(&*pool.status, AVAILABLE | IN_USE));
        let keep_for = update.of_warm_pool_alone();
        let is_profiler = update.profiler.is_some() || update.profiler_rules.is_some();
        let edit = move |row: Option<ResourceRow>| {
            let mut row = row.ok_or_else(|| missing(ResourceKind::TRAINING_JOB, &update.name))?;
            if row.status != "InProgress" && !(is_kept && keep_for.is_some()) {
                return Err(Error::validation(format!(
                    "The request was rejected because the training job is in status {}.",
                    row.status
                )));
            }
            if update.remote_debug.is_some() && !matches!(secondary_status(&row.keys), "Downloading" | "Training") {
                return Err(Error::validation(format!(
                    "remoteDebugConfig can be updated while the secondary status is Downloading or Training, and it is \
                     {}.",
                    secondary_status(&row.keys)
                )));
            }
            let mut request = requests::training_job(&row)?;
            let rules = update.apply(&mut request)?;
            admission::debugger::profiler_rules(&rules)?;
            row.request = serde_json::to_vec(&request.raw).map_err(|error| internal(&error))?;
            row.spec = request.to_stored();
            Ok(Some(row))
        };
        self.core.edit(ResourceKind::TRAINING_JOB, &name, edit).await.map_err(|refusal| refused(&refusal))?;
        if is_profiler {
            let (sampling, attempts, job) = (self.sampling.clone(), self.attempts.clone(), name.clone());
            blocking(move || {
                sampling.changed(&attempts, &job);
                Ok(())
            })
            .await?;
        }
        if let Some(seconds) = keep_for {
            self.machines.send_and_wait(warm_pool::Event::KeepAlive { job: name.into(), seconds }).await;
        }
        Ok(Reply::training_job_arn(&arn))
    }

    /// Removes an ended job's row, logs and metrics; its objects in S3 stay, as at AWS.
    pub(super) async fn delete_training_job(&self, request: NamedTrainingJob) -> Result<Reply, Error> {
        self.delete_training(request.training_job_name, None).await
    }

    /// The same, of the job with this id.
    pub(super) async fn delete_training(&self, name: String, uid: Option<&str>) -> Result<Reply, Error> {
        let row = self.row(&name).await?;
        deletable(&row, uid)?;
        // Until its instances are released they may still have something to say, and the name is
        // not free.
        let mut version = self.core.version();
        let until = Instant::now() + RELEASE;
        while self.core.view(&name).await.is_some() {
            if !matches!(tokio::time::timeout_at(until, version.changed()).await, Ok(Ok(()))) {
                return Err(Error::new(
                    ErrorCode::ResourceInUse,
                    format!("The instances of the training job {name} are still being released; try again."),
                ));
            }
        }
        if self.warm_pool(&name).await?.is_some_and(|pool| pool.status == AVAILABLE) {
            return Err(Error::new(
                ErrorCode::ResourceInUse,
                format!(
                    "The warm pool of the training job {name} is Available; UpdateTrainingJob with \
                     KeepAlivePeriodInSeconds 0 ends it, then the \
                     training job can be deleted."
                ),
            ));
        }
        let _alone = self.deletion.lock().await;
        let row = self.row(&name).await?;
        deletable(&row, uid)?;
        self.keep_component(&name).await?;
        // The row goes last: a deletion that a crash cut short can be asked for again.
        let (telemetry, job) = (self.telemetry.clone(), name.clone());
        self.writing(move || {
            telemetry.delete_streams(&format!("{job}/")).map_err(|error| internal(&error))?;
            telemetry.delete_warm_pool(&job).map_err(|error| internal(&error))?;
            telemetry.delete_series(&job).map_err(|error| internal(&error))?;
            telemetry.delete_system(&job).map_err(|error| internal(&error))
        })
        .await?;
        let gone = missing(ResourceKind::TRAINING_JOB, &name);
        let uid = uid.map(str::to_owned);
        let edit = move |present: &Present<'_>| {
            let row = present.row(ResourceKind::TRAINING_JOB, &name)?.ok_or(gone)?;
            deletable(&row, uid.as_deref())?;
            let cost = ledger::deleted(&row, now_ms()).map(|row| RowChange::Put(Box::new(row)));
            Ok(cost.into_iter().chain([RowChange::Delete(ResourceKind::TRAINING_JOB, name)]).collect())
        };
        self.core.edit_rows("a deleted training job".to_owned(), edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    async fn warm_pool(&self, name: &str) -> Result<Option<WarmPool>, Error> {
        let (pools, name) = (self.records.pools.clone(), name.to_owned());
        blocking(move || pools.of(&name).map_err(|error| internal(&error))).await
    }

    pub(super) async fn row(&self, name: &str) -> Result<ResourceRow, Error> {
        self.resource(ResourceKind::TRAINING_JOB, name).await
    }
}

/// A job as Search shows it.
pub(super) fn record(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    let (request, mut description) = describe(row, &view(row)?)?;
    add_image(&*records.images, &request, &mut description);
    description.warm_pool = records.pools.of(&row.name).map_err(|error| internal(&error))?;
    let tags = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
    Ok(search_record(request, &description, &tags))
}

/// A job as Search compares it: without what the platform supplies.
pub(super) fn searched(_: &Records, row: &ResourceRow) -> Result<Value, Error> {
    let (request, description) = describe(row, &view(row)?)?;
    let tags = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
    Ok(search_record(request, &description, &tags))
}

/// Only what is over can be deleted.
fn deletable(row: &ResourceRow, uid: Option<&str>) -> Result<(), Error> {
    if uid.is_some_and(|uid| uid != row.uid) {
        return Err(missing(row.kind, &row.name));
    }
    if row.ended {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::ResourceInUse,
        format!(
            "The training job {} is in status {}; only training jobs in a terminal state (Completed, Failed, Stopped) \
             can be deleted.",
            row.name, row.status
        ),
    ))
}

/// What a job's image adds to its description: metric definitions, and which version of a framework
/// its own program has.
fn add_image(images: &dyn Images, request: &Map<String, Value>, description: &mut TrainingJobDescription) {
    let member = |name: &str| request.get(name).unwrap_or(&Value::Null);
    let algorithm = member("AlgorithmSpecification");
    description.metric_definitions = built_in_metrics(images, algorithm);
    let own = [
        &member("HyperParameters")["sagemaker_program"],
        &member("Environment")["SAGEMAKER_PROGRAM"],
        &algorithm["ContainerEntrypoint"],
    ];
    if own.into_iter().all(Value::is_null) {
        return;
    }
    let environment = images.framework(algorithm["TrainingImage"].as_str().unwrap_or_default());
    if let Ok(Some(PythonEnvironment { notice: Some(notice), .. })) = environment
        && let Some(step) = description.transitions.iter_mut().find(|step| step.status == "Downloading")
    {
        step.message = format!("{}; {notice}", step.message);
    }
}

/// The metric definitions that the platform supplies for the image of an `AlgorithmSpecification`.
pub(super) fn built_in_metrics(images: &dyn Images, algorithm: &Value) -> Vec<MetricDefinition> {
    let image = algorithm["TrainingImage"].as_str().unwrap_or_default();
    images.metric_definitions(image).into_iter().map(|(name, regex)| MetricDefinition { name, regex }).collect()
}

/// What a program that runs has left after a stop.
fn grace_text(grace_s: u32, now_ms: u64) -> String {
    let until = now_ms / 1000 + u64::from(grace_s);
    let (hour, minute, second) = (until / 3600 % 24, until / 60 % 60, until % 60);
    format!("its program has {grace_s} s, until {hour:02}:{minute:02}:{second:02}Z, to end by itself; then SIGKILL")
}

pub(crate) fn view(row: &ResourceRow) -> Result<JobView, Error> {
    serde_json::from_slice(&row.view).map_err(|error| internal(&error))
}

/// Where the artifacts of a request go that cannot be read as a whole.
fn output_of(raw: &Map<String, Value>) -> Option<Output> {
    let config = raw.get("OutputDataConfig")?;
    let compression =
        if config["CompressionType"] == "NONE" { OutputCompression::None } else { OutputCompression::Gzip };
    Some(Output { s3_output_path: config["S3OutputPath"].as_str()?.parse().ok()?, kms_key_id: None, compression })
}

/// The request as it is kept, and what became of it.
pub(super) fn describe(
    row: &ResourceRow,
    view: &JobView,
) -> Result<(Map<String, Value>, TrainingJobDescription), Error> {
    let request: Map<String, Value> = serde_json::from_slice(&row.request).map_err(|error| internal(&error))?;
    // One of an earlier version that this one refuses is echoed all the same.
    let (output, debugger) = match stored_description(&row.spec) {
        Ok(stored) => (Some(stored.output), stored.debugger),
        Err(_) => (output_of(&request), Debugger::default()),
    };
    let description = TrainingJobDescription {
        arn: row.arn.clone(),
        model_artifacts: output.map_or_else(String::new, |output| artifacts::model_uri(&output, &row.name)),
        status: view.status.name().to_owned(),
        secondary_status: view.secondary.name().to_owned(),
        transitions: view
            .transitions
            .iter()
            .map(|it| StatusTransition {
                status: it.status.name().to_owned(),
                start_ms: it.start.0,
                end_ms: it.end.map(|end| end.0),
                message: it.message.clone(),
            })
            .collect(),
        failure_reason: view.failure_reason.clone(),
        created_ms: view.created.0,
        modified_ms: view.modified.0,
        training_start_ms: view.training_start.map(|time| time.0),
        training_end_ms: view.training_end.map(|time| time.0),
        training_s: view.training_s,
        billable_s: view.billable_s,
        tuning_job_arn: view.trial.as_ref().and_then(|trial| {
            let own = arn::resource(&row.arn)?;
            Some(arn::tuning_job(own.region, own.account, &trial.tuning))
        }),
        final_metrics: view
            .final_metrics
            .iter()
            .map(|it| FinalMetric { name: it.name.clone(), value: it.value, at_ms: it.at.0 })
            .collect(),
        debug_rules: rule_statuses::statuses(&debugger.rules, view, &row.arn),
        profiler_rules: rule_statuses::of_profiler(&debugger.profiler_rules, view, &row.arn, &request),
        ..TrainingJobDescription::default()
    };
    Ok((request, description))
}

fn summaries(pools: &WarmPools, rows: Vec<ResourceRow>) -> Result<Vec<TrainingJobSummary>, Error> {
    let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
    let pools = pools.of_all(&names).map_err(|error| internal(&error))?;
    let summary = |(row, warm_pool): (ResourceRow, _)| TrainingJobSummary {
        warm_pool,
        secondary_status: secondary_status(&row.keys).to_owned(),
        name: row.name,
        arn: row.arn,
        created_ms: row.created_ms,
        training_end_ms: row.ended_ms,
        modified_ms: row.modified_ms,
        status: row.status,
    };
    Ok(rows.into_iter().zip(pools).map(summary).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_tells_until_when() {
        assert_eq!(
            grace_text(120, 86_350_999),
            "its program has 120 s, until 00:01:10Z, to end by itself; then SIGKILL"
        );
    }

    #[test]
    fn a_refusal_has_the_code_by_which_clients_decide() {
        let rejected = |rejection| refused(&Refusal::Rejected(rejection));
        let name = || "a".to_owned();
        for (error, code) in [
            (rejected(Rejection::NameTaken(name())), ErrorCode::ResourceInUse),
            (rejected(Rejection::TuningNameTaken(name())), ErrorCode::ResourceInUse),
            (rejected(Rejection::TuningNotFound(name())), ErrorCode::ResourceNotFound),
            (rejected(Rejection::NeverFits(name())), ErrorCode::ResourceLimitExceeded),
            (rejected(Rejection::NotFound), ErrorCode::ValidationException),
            (rejected(Rejection::AlreadyEnded("Stopped")), ErrorCode::ValidationException),
            (rejected(Rejection::UnknownInstanceType(name())), ErrorCode::ValidationException),
            // What may succeed when it is tried again.
            (refused(&Refusal::Journal("full".to_owned())), ErrorCode::ServiceUnavailable),
            (refused(&Refusal::Stopping), ErrorCode::ServiceUnavailable),
        ] {
            assert_eq!(error.code, code, "{}", error.message);
            assert!(!error.message.is_empty());
        }
        let own = Error::new(ErrorCode::AccessDenied, "as it was".to_owned());
        assert_eq!(refused(&Refusal::Edit(own.clone())), own);
    }

    #[test]
    fn a_request_that_this_version_refuses_is_described_all_the_same() {
        let raw = |output: Value| {
            let request = serde_json::json!({"TrainingJobName": "a", "OutputDataConfig": output, "From": "the future"});
            ResourceRow {
                request: request.to_string().into_bytes(),
                arn: "arn:aws:sagemaker:us-east-1:123456789012:training-job/a".to_owned(),
                ..ResourceRow::new(ResourceKind::TRAINING_JOB, "a")
            }
        };
        let view = JobView {
            status: shoal_plane::JobStatus::Completed,
            secondary: SecondaryStatus::Completed,
            transitions: Vec::new(),
            failure_reason: None,
            created: shoal_plane::Time(1),
            modified: shoal_plane::Time(2),
            training_start: None,
            training_end: None,
            training_s: None,
            billable_s: None,
            ran_ms: None,
            final_metrics: Vec::new(),
            pending: None,
            attempt: None,
            ended: true,
            trial: None,
            stop: None,
            rules: Vec::new(),
        };
        for (output, artifacts) in [
            (serde_json::json!({"S3OutputPath": "s3://bkt/out/"}), "s3://bkt/out/a/output/model.tar.gz"),
            (
                serde_json::json!({"S3OutputPath": "s3://bkt/out", "CompressionType": "NONE"}),
                "s3://bkt/out/a/output/model/",
            ),
            (serde_json::json!({"S3OutputPath": "bkt/out"}), ""),
            (serde_json::json!({"S3OutputPath": 7}), ""),
            (Value::Null, ""),
        ] {
            let (request, description) = describe(&raw(output.clone()), &view).unwrap();
            assert_eq!(description.model_artifacts, artifacts, "{output}");
            assert_eq!(request["From"], "the future");
        }
        let damaged = ResourceRow { request: b"[".to_vec(), ..raw(Value::Null) };
        assert!(describe(&damaged, &view).unwrap_err().code.is_server_fault());
    }
}
