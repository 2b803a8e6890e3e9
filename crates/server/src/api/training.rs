//! Training jobs: create, describe, list, stop.

use std::time::Duration;

use shoal_plane::{Command, JobView, Rejection, TrainingSpec};
use shoal_store::{Cursor, JobFilter, JobRow, JobSort};
use shoal_wire::{
    CreateTrainingJob, Error, ErrorCode, FinalMetric, ListTrainingJobs, MetricDefinition, Reply, SortOrder, StatusTransition,
    TrainingJobDescription, TrainingJobSortBy, TrainingJobSummary, arn,
};
use tokio::time::Instant;

use super::{Api, Caller, blocking};
use crate::{
    Image,
    admission::{self, internal},
    artifacts,
    core::{Opaque, Refusal, now_ms},
    effects::World,
    keys::random_hex,
};

/// How long Describe waits for the end of a young job when a SageMaker SDK asks, which else would look again after 30 s.
const HOLD: Duration = Duration::from_secs(3);
/// Until what age a job is young, in milliseconds.
const YOUNG_MS: u64 = 60_000;

impl Api {
    pub(super) async fn create_training_job(&self, request: CreateTrainingJob) -> Result<Reply, Error> {
        let world = self.world.clone();
        let (request, name_taken) = blocking(move || {
            admission::check(&world, &request)?;
            let taken = world.rows.job(&request.name).map_err(|error| internal(&error))?.is_some();
            Ok((request, taken))
        })
        .await?;
        let arn = arn::training_job(&self.identity.region, &self.identity.account, &request.name);
        let uid = random_hex(6).map_err(|error| internal(&error))?;
        let spec = TrainingSpec {
            instance_type: request.resources.instance_type.clone(),
            instances: request.resources.instance_count,
            max_runtime_s: request.stopping.max_runtime_s,
            max_pending_s: request.stopping.max_pending_s,
            grace_s: self.world.grace_s,
        };
        let opaque = Opaque {
            uid: uid.clone(),
            arn: arn.clone(),
            request: serde_json::to_vec(&request.raw).map_err(|error| internal(&error))?,
            tags: serde_json::to_vec(&request.raw.get("Tags")).map_err(|error| internal(&error))?,
        };
        let command = Command::CreateTrainingJob { name: request.name, uid, spec, name_taken };
        self.world.core.ask(command, Some(opaque)).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::CreateTrainingJob { arn })
    }

    pub(super) async fn stop_training_job(&self, name: String) -> Result<Reply, Error> {
        let row = self.row(&name).await?;
        let ended = if row.ended { Some(view(&row)?.status) } else { None };
        self.world.core.ask(Command::StopTrainingJob { name, ended }, None).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::StopTrainingJob)
    }

    pub(super) async fn describe_training_job(&self, name: &str, caller: &Caller) -> Result<Reply, Error> {
        let mut version = self.world.core.version();
        let mut row = self.row(name).await?;
        if caller.user_agent.contains("SageMaker-Python-SDK") {
            let until = Instant::now() + HOLD;
            while !row.ended && now_ms().saturating_sub(row.created_ms) < YOUNG_MS {
                match tokio::time::timeout_at(until, version.changed()).await {
                    Ok(Ok(())) => row = self.row(name).await?,
                    Ok(Err(_)) | Err(_) => break,
                }
            }
        }
        let stored = view(&row)?;
        // Only the core knows the place of a job that waits: it changes when others come and go.
        let view = match &stored.pending {
            Some(_) => self.world.core.view(name).await.unwrap_or(stored),
            None => stored,
        };
        let request = shoal_wire::restore(&row.request).map_err(|error| internal(&error))?;
        let definitions = built_in_metrics(&self.world, &request);
        let description = describe(&request, row.arn, &view, definitions);
        Ok(Reply::DescribeTrainingJob { request: request.raw, description: Box::new(description) })
    }

    pub(super) async fn list_training_jobs(&self, request: ListTrainingJobs) -> Result<Reply, Error> {
        let after = match &request.next_token {
            None => None,
            Some(token) => Some(token.parse::<Cursor>().map_err(|_| Error::validation("Invalid pagination token (nextToken)."))?),
        };
        let filter = JobFilter {
            name_contains: request.name_contains,
            status: request.status_equals,
            created_after_ms: request.created_after_ms,
            created_before_ms: request.created_before_ms,
            modified_after_ms: request.modified_after_ms,
            modified_before_ms: request.modified_before_ms,
            sort: match request.sort_by {
                TrainingJobSortBy::Name => JobSort::Name,
                TrainingJobSortBy::CreationTime => JobSort::CreationTime,
                TrainingJobSortBy::Status => JobSort::Status,
            },
            order: match request.sort_order {
                SortOrder::Ascending => shoal_store::SortOrder::Ascending,
                SortOrder::Descending => shoal_store::SortOrder::Descending,
            },
            after,
            limit: request.max_results as usize,
        };
        let world = self.world.clone();
        let page = blocking(move || world.rows.list(&filter).map_err(|error| internal(&error))).await?;
        let summaries = page.rows.into_iter().map(summary).collect();
        Ok(Reply::ListTrainingJobs { summaries, next_token: page.next.map(|cursor| cursor.to_string()) })
    }

    async fn row(&self, name: &str) -> Result<JobRow, Error> {
        let (world, name) = (self.world.clone(), name.to_owned());
        blocking(move || match world.rows.job(&name) {
            Ok(Some(row)) => Ok(row),
            Ok(None) => Err(Error::validation("Requested resource not found.")),
            Err(error) => Err(internal(&error)),
        })
        .await
    }
}

/// The metric definitions that the platform supplies for a built-in algorithm.
fn built_in_metrics(world: &World, request: &CreateTrainingJob) -> Vec<MetricDefinition> {
    match request.algorithm.training_image.as_deref().map(|image| world.images.resolve(image)) {
        Some(Ok(Image::Builtin { metric_definitions, .. })) => {
            metric_definitions.into_iter().map(|(name, regex)| MetricDefinition { name, regex }).collect()
        }
        Some(Ok(Image::Host) | Err(_)) | None => Vec::new(),
    }
}

fn refused(refusal: &Refusal) -> Error {
    let message = refusal.to_string();
    let code = match refusal {
        Refusal::Rejected(Rejection::NameTaken(_)) => ErrorCode::ResourceInUse,
        Refusal::Rejected(Rejection::NeverFits(_)) => ErrorCode::ResourceLimitExceeded,
        Refusal::Rejected(Rejection::NotFound | Rejection::AlreadyEnded(_) | Rejection::UnknownInstanceType(_)) => {
            ErrorCode::ValidationException
        }
        Refusal::Journal(_) | Refusal::Stopping => ErrorCode::ServiceUnavailable,
    };
    Error::new(code, message)
}

fn view(row: &JobRow) -> Result<JobView, Error> {
    serde_json::from_slice(&row.view).map_err(|error| internal(&error))
}

fn describe(request: &CreateTrainingJob, arn: String, view: &JobView, metric_definitions: Vec<MetricDefinition>) -> TrainingJobDescription {
    TrainingJobDescription {
        arn,
        model_artifacts: artifacts::model_uri(&request.output, &request.name),
        status: format!("{:?}", view.status),
        secondary_status: format!("{:?}", view.secondary),
        transitions: view
            .transitions
            .iter()
            .map(|it| StatusTransition {
                status: format!("{:?}", it.status),
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
        final_metrics: view.final_metrics.iter().map(|it| FinalMetric { name: it.name.clone(), value: it.value, at_ms: it.at.0 }).collect(),
        metric_definitions,
        ..TrainingJobDescription::default()
    }
}

fn summary(row: JobRow) -> TrainingJobSummary {
    TrainingJobSummary {
        name: row.name,
        arn: row.arn,
        created_ms: row.created_ms,
        training_end_ms: row.ended_ms,
        modified_ms: row.modified_ms,
        status: row.status,
        secondary_status: row.secondary,
        warm_pool: None,
    }
}
