//! Tuning jobs: create, describe, list, stop, delete; a tuning job's training jobs.

use serde_json::{Map, Value};
use shoal_plane::{Command, Rejection, TuningStatus, TuningView, parallel_notice};
use shoal_store::{ResourceKind, ResourceRow, ResourceSort, Rows, TrialFilter, TrialRow, TrialSort};
use shoal_wire::{
    Call, CreateTuningJob, Error, Goal, ListTrials, NamedTuningJob, Objective, ObjectiveCounters, Reply,
    ResourceLimits, SortOrder, TrainingJobCounters, TrialSortBy, TrialSummary, TuningJobDescription, TuningJobSummary,
    arn, tags, tuning_search_record,
};

use super::{
    Api, Caller, Records, blocking,
    listing::{DefaultOrder, Listing, members},
    near, refused,
    resources::{found, missing, place},
    token,
    training::{built_in_metrics, view as job_view},
};
use crate::{
    admission,
    channels::may_read,
    clock::now_ms,
    core::{Opaque, Refusal},
    hex::random_hex,
    internal::internal,
    requests, tuning,
};

/// By name.
pub(super) const DEFAULT_ORDER: DefaultOrder = DefaultOrder {
    sort: ResourceSort::Name,
    order: shoal_store::SortOrder::Ascending,
    order_of_sort: shoal_store::SortOrder::Ascending,
};

impl Api {
    pub(super) async fn create_tuning_job(&self, request: CreateTuningJob, caller: &Caller) -> Result<Reply, Error> {
        self.holds.created(&request.name, &caller.user_agent);
        let (rows, images) = (self.rows.clone(), self.records.images.clone());
        let (admission, grace_s) = (self.admission.clone(), self.grace_s);
        let may_read = may_read(caller.member.clone(), &self.admission.objects, &self.identity.account);
        let creator = caller.creator();
        let claim = self.quotas.claim(&request.tags, caller.member.as_deref())?;
        let uid = random_hex(6).map_err(|error| internal(&error))?;
        let (request, uid, spec, name_taken) = blocking(move || {
            let mut request = request;
            let is_taken = |name: &str| found(&*rows, ResourceKind::TUNING_JOB, name).map(|row| row.is_some());
            // As for training jobs: the first complaint.
            if is_taken(&request.name)? {
                return Err(refused(&Refusal::Rejected(Rejection::TuningNameTaken(request.name))));
            }
            requests::resolve_auto_ranges(&mut request, &*images);
            admission.check_tuning(&request, creator.as_deref(), &may_read)?;
            let designs = tuning::designs(&request, tuning::seed(&request, &uid), &*images)?;
            admission::check_objectives(&*images, &request, &designs)?;
            admission::check_end(&request, &designs)?;
            let spec = tuning::tuning_spec(&request, &designs, &admission.targets, &claim, grace_s)?;
            let taken = is_taken(&request.name)?;
            Ok((request, uid, spec, taken))
        })
        .await?;
        let arn = arn::tuning_job(&self.identity.region, &self.identity.account, &request.name);
        let opaque = Opaque::new(uid.clone(), arn.clone(), &request, caller.creator());
        let notice = parallel_notice(&spec.definitions, spec.max_parallel, &self.capacity, &self.catalog);
        let command = Command::CreateTuningJob { name: request.name.into(), uid, spec: Box::new(spec), name_taken };
        self.core.ask(command, Some(opaque)).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::create_tuning_job(&arn).with_notice(notice))
    }

    pub(crate) async fn stop_tuning_job(&self, request: NamedTuningJob) -> Result<Reply, Error> {
        let name = request.hyper_parameter_tuning_job_name;
        let row = self.tuning_row(&name).await?;
        let ended = ended(&row)?;
        self.core
            .ask(Command::StopTuningJob { name: name.into(), ended }, None)
            .await
            .map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(super) async fn describe_tuning_job(&self, request: NamedTuningJob, caller: &Caller) -> Result<Reply, Error> {
        let name = request.hyper_parameter_tuning_job_name.as_str();
        let row = self.held(ResourceKind::TUNING_JOB, name, caller).await?;
        let records = self.records.clone();
        let (request, description) = blocking(move || describe(&records, &row)).await?;
        Ok(Reply::describe_tuning_job(&request, &description))
    }

    pub(super) async fn list_tuning_jobs(&self, call: Call, caller: &Caller) -> Result<Reply, Error> {
        let listing = Listing::read(ResourceKind::TUNING_JOB, DEFAULT_ORDER, members(&call)?, &[])?;
        let summaries = |rows: Vec<_>| rows.into_iter().map(summary).collect();
        let (summaries, next_token) = listing.page(caller.rows(&self.rows), summaries).await?;
        Ok(Reply::list_tuning_jobs(&summaries, next_token.as_deref()))
    }

    pub(super) async fn list_trials(&self, request: ListTrials) -> Result<Reply, Error> {
        let question =
            token::question(&(&request.tuning_job, &request.status_equals, request.sort_by, request.sort_order))?;
        let row = self.tuning_row(&request.tuning_job).await?;
        let filter = TrialFilter {
            tuning: request.tuning_job,
            status: request.status_equals,
            sort: match request.sort_by {
                TrialSortBy::Name => TrialSort::Name,
                TrialSortBy::CreationTime => TrialSort::CreationTime,
                TrialSortBy::Status => TrialSort::Status,
                TrialSortBy::FinalObjectiveMetricValue => TrialSort::Value,
            },
            order: match request.sort_order {
                SortOrder::Ascending => shoal_store::SortOrder::Ascending,
                SortOrder::Descending => shoal_store::SortOrder::Descending,
            },
            after: place(&question, request.next_token.as_deref())?,
            limit: request.max_results as usize,
        };
        let rows = self.rows.clone();
        let (summaries, next) = blocking(move || {
            let page = rows.list_trials(&filter).map_err(|error| internal(&error))?;
            let definitions = Definitions::of(&row)?;
            let summaries =
                page.rows.iter().map(|(trial, job)| definitions.trial(trial, job)).collect::<Result<Vec<_>, _>>()?;
            Ok((summaries, page.next))
        })
        .await?;
        let next_token = next.map(|cursor| token::seal(&question, &cursor.to_string()));
        Ok(Reply::list_trials(&summaries, next_token.as_deref()))
    }

    /// Removes an ended tuning job's row and its study; its training jobs stay, as at AWS.
    pub(super) async fn delete_tuning_job(&self, request: NamedTuningJob) -> Result<Reply, Error> {
        self.delete_tuning(&request.hyper_parameter_tuning_job_name, None).await
    }

    /// The same, of the job with this id.
    pub(super) async fn delete_tuning(&self, name: &str, uid: Option<String>) -> Result<Reply, Error> {
        let _alone = self.deletion.lock().await;
        self.tuning_row(name).await?;
        let gone = missing(ResourceKind::TUNING_JOB, name);
        let edit = move |row: Option<ResourceRow>| match row {
            None => Err(gone),
            Some(row) if uid.is_some_and(|uid| uid != row.uid) => Err(gone),
            Some(row) if row.ended => Ok(None),
            Some(row) => Err(Error::validation(format!(
                "The hyperparameter tuning job {} is in status {}; only tuning jobs in a terminal state (Completed, \
                 Failed, Stopped) can be \
                 deleted; stop it first.",
                row.name, row.status
            ))),
        };
        self.core.edit(ResourceKind::TUNING_JOB, name, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(super) async fn tuning_row(&self, name: &str) -> Result<ResourceRow, Error> {
        self.resource(ResourceKind::TUNING_JOB, name).await
    }
}

/// The status that a tuning job ended with.
pub(super) fn ended(row: &ResourceRow) -> Result<Option<TuningStatus>, Error> {
    if row.ended { Ok(Some(view(row)?.status)) } else { Ok(None) }
}

fn view(row: &ResourceRow) -> Result<TuningView, Error> {
    serde_json::from_slice(&row.view).map_err(|error| internal(&error))
}

/// What of a tuning job's definitions its training jobs' summaries show.
struct Definitions(Vec<(Option<String>, Objective)>);

impl Definitions {
    fn of(row: &ResourceRow) -> Result<Self, Error> {
        let request = requests::tuning_job(row)?;
        Ok(Self(request.definitions.into_iter().map(|definition| (definition.name, definition.objective)).collect()))
    }

    fn trial(&self, trial: &TrialRow, row: &ResourceRow) -> Result<TrialSummary, Error> {
        let known: shoal_plane::TrialView = serde_json::from_slice(&trial.view).map_err(|error| internal(&error))?;
        let (definition, objective) = self.0.get(known.definition as usize).cloned().unwrap_or_else(|| {
            let none = Objective { goal: Goal::Minimize, metric: String::new() };
            (None, none)
        });
        let job = job_view(row)?;
        let value = trial.value.filter(|_| row.ended && row.status != "Failed");
        let status = match (row.ended, value) {
            (false, _) => "Pending",
            (true, Some(_)) => "Succeeded",
            (true, None) => "Failed",
        };
        Ok(TrialSummary {
            name: row.name.clone(),
            arn: row.arn.clone(),
            definition,
            tuning_job: None,
            created_ms: row.created_ms,
            training_start_ms: job.training_start.map(|time| time.0),
            training_end_ms: job.training_end.map(|time| time.0),
            status: row.status.clone(),
            tuned: serde_json::from_slice(&trial.tuned).map_err(|error| internal(&error))?,
            failure_reason: job.failure_reason,
            objective: value.map(|value| (objective, value)),
            objective_status: status.to_owned(),
        })
    }
}

/// The best training job of a tuning job, and its value as it is minimised. One that was deleted is
/// not shown.
fn best(rows: &dyn Rows, row: &ResourceRow, view: &TuningView) -> Result<Option<(TrialSummary, f64)>, Error> {
    let Some(best) = &view.best else { return Ok(None) };
    let trial = rows.trial(&best.job).map_err(|error| internal(&error))?;
    let job = found(rows, ResourceKind::TRAINING_JOB, &best.job)?;
    let (Some(trial), Some(job)) = (trial, job) else { return Ok(None) };
    let definitions = Definitions::of(row)?;
    let mut summary = definitions.trial(&trial, &job)?;
    let objective = definitions.0.get(best.definition as usize).map(|(_, objective)| objective.clone());
    let minimised = match &objective {
        Some(Objective { goal: Goal::Maximize, .. }) => -best.value,
        _ => best.value,
    };
    "Succeeded".clone_into(&mut summary.objective_status);
    summary.objective = objective.map(|objective| (objective, best.value));
    Ok(Some((summary, minimised)))
}

/// The best of a tuning job over identical data and algorithm and of its parents.
fn overall_best(
    rows: &dyn Rows,
    row: &ResourceRow,
    own: Option<&(TrialSummary, f64)>,
) -> Result<Option<TrialSummary>, Error> {
    let request = requests::tuning_job(row)?;
    let Some(warm_start) = request.warm_start.filter(|it| it.identical) else { return Ok(None) };
    let mut all: Vec<(TrialSummary, f64)> = Vec::new();
    let named = |name: &str, (summary, value): &(TrialSummary, f64)| {
        (TrialSummary { tuning_job: Some(name.to_owned()), ..summary.clone() }, *value)
    };
    all.extend(own.map(|it| named(&row.name, it)));
    for parent in &warm_start.parents {
        if let Some(parent) = found(rows, ResourceKind::TUNING_JOB, parent)?
            && let Some(theirs) = best(rows, &parent, &view(&parent)?)?
        {
            all.push(named(&parent.name, &theirs));
        }
    }
    // Of equal ones the first: this tuning job's own.
    let first = all.into_iter().reduce(|one, other| if other.1 < one.1 { other } else { one });
    Ok(first.map(|(summary, _)| summary))
}

fn counters(view: &TuningView) -> (TrainingJobCounters, ObjectiveCounters) {
    let (jobs, objectives) = (&view.training, &view.objective);
    (
        TrainingJobCounters {
            completed: jobs.completed.into(),
            in_progress: jobs.in_progress.into(),
            retryable_error: jobs.retryable_error.into(),
            non_retryable_error: jobs.non_retryable_error.into(),
            stopped: jobs.stopped.into(),
        },
        ObjectiveCounters {
            succeeded: objectives.succeeded.into(),
            pending: objectives.pending.into(),
            failed: objectives.failed.into(),
        },
    )
}

/// The request as it is kept, and what became of it.
fn describe(records: &Records, row: &ResourceRow) -> Result<(Map<String, Value>, TuningJobDescription), Error> {
    let request: Map<String, Value> = serde_json::from_slice(&row.request).map_err(|error| internal(&error))?;
    let view = view(row)?;
    let (jobs, objectives) = counters(&view);
    let best = best(&*records.rows, row, &view)?;
    let overall_best = overall_best(&*records.rows, row, best.as_ref())?;
    let listed = request.get("TrainingJobDefinitions").and_then(Value::as_array).into_iter().flatten();
    let definitions = request.get("TrainingJobDefinition").into_iter().chain(listed);
    let description = TuningJobDescription {
        arn: row.arn.clone(),
        status: view.status.name().to_owned(),
        created_ms: view.created.0,
        modified_ms: view.modified.0,
        ended_ms: view.ended.map(|time| time.0),
        jobs,
        objectives,
        best: best.map(|(summary, _)| summary),
        overall_best,
        failure_reason: near::failure_reason(records, row, &view)?,
        not_improving: Some(view.not_improving),
        converged_ms: view.converged.map(|time| time.0),
        runtime_s: Some(view.ended.map_or_else(now_ms, |time| time.0).saturating_sub(view.created.0).div_ceil(1000)),
        metric_definitions: definitions
            .map(|definition| built_in_metrics(&*records.images, &definition["AlgorithmSpecification"]))
            .collect(),
    };
    Ok((request, description))
}

/// A tuning job as Search looks at it and shows it.
pub(super) fn record(records: &Records, row: &ResourceRow) -> Result<Value, Error> {
    let (request, description) = describe(records, row)?;
    let tags = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
    Ok(tuning_search_record(&request, &description, &tags))
}

fn summary(row: ResourceRow) -> Result<TuningJobSummary, Error> {
    let request = requests::tuning_job(&row)?;
    let view = view(&row)?;
    let (jobs, objectives) = counters(&view);
    Ok(TuningJobSummary {
        name: row.name,
        arn: row.arn,
        status: row.status,
        strategy: request.strategy,
        created_ms: row.created_ms,
        modified_ms: row.modified_ms,
        ended_ms: row.ended_ms,
        jobs,
        objectives,
        limits: ResourceLimits { max_parallel: view.max_parallel, ..request.limits },
    })
}
