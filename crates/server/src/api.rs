//! What a parsed call does: the wire's values to commands and reads, and back.

pub(crate) mod best_model;
mod checkpoints;
pub(crate) mod ending;
mod filter_logs;
mod hold;
mod identity;
mod log_changes;
mod logs;
mod metrics;
mod near;
mod resources;
mod search;
mod study;
mod tags;
mod token;
mod training;
mod trial_metrics;
mod tuning;
mod visits;

use std::sync::Arc;

use shoal_wire::{Call, Error, ErrorCode, Reply};

use crate::{admission::internal, effects::World, keys::Holder, search::Indexes};

/// Who calls, as far as it matters for the answer.
pub(crate) struct Caller {
    /// The request's `User-Agent`.
    pub(crate) user_agent: String,
    /// Whose keys the request is signed with.
    pub(crate) holder: Holder,
}

/// Settings that answers show.
pub(crate) struct Identity {
    pub(crate) region: String,
    pub(crate) account: String,
}

/// The API over everything it touches.
pub(crate) struct Api {
    world: Arc<World>,
    search: Arc<Indexes>,
    identity: Identity,
    holds: hold::Holds,
    /// One deletion at a time: what goes by a job's name must not be a successor's.
    deletion: tokio::sync::Mutex<()>,
}

impl Api {
    /// A text for clients: see [`World::without_paths`].
    pub(crate) fn without_paths(&self, text: &str) -> String {
        self.world.without_paths(text)
    }

    /// The API over this world.
    pub(crate) fn new(world: Arc<World>, search: Arc<Indexes>, identity: Identity) -> Self {
        Self { world, search, identity, holds: hold::Holds::default(), deletion: tokio::sync::Mutex::default() }
    }

    /// Answers one call.
    ///
    /// # Errors
    /// With the error code that AWS has for it.
    pub(crate) async fn call(&self, call: Call, caller: &Caller) -> Result<Reply, Error> {
        match call {
            Call::GetCallerIdentity => Ok(self.caller_identity(caller)),
            // A program may tell its own metrics.
            Call::BatchPutMetrics(request) => self.put_metrics(request, &caller.holder).await,
            _ if matches!(caller.holder, Holder::Attempt { .. }) => {
                Err(Error::new(ErrorCode::AccessDenied, "a training job's keys open its channels and outputs only"))
            }
            Call::BatchGetMetrics(queries) => self.get_metrics(queries).await,
            Call::AssumeRole(request) => self.assume_role(request),
            Call::ListRoles { path_prefix, paging } => self.list_roles(&path_prefix, &paging),
            Call::SimulatePrincipalPolicy(request) => self.simulate_policy(&request),
            Call::CreateTrainingJob(request) => {
                self.holds.created(&request.name, &caller.user_agent);
                self.create_training_job(*request).await
            }
            Call::DescribeTrainingJob { training_job_name } => self.describe_training_job(&training_job_name, caller).await,
            Call::ListTrainingJobs(request) => self.list_training_jobs(request).await,
            Call::ListCheckpoints(request) => self.list_checkpoints(request).await,
            Call::InterruptTrainingJob { training_job_name } => self.interrupt_training_job(training_job_name).await,
            Call::StartVisit(request) => self.start_visit(request, caller).await,
            Call::FeedVisit(request) => self.feed_visit(request).await,
            Call::ReadVisit(request) => self.read_visit(request).await,
            Call::StopTrainingJob { training_job_name } => self.stop_training_job(training_job_name).await,
            Call::UpdateTrainingJob(update) => self.update_training_job(update).await,
            Call::DeleteTrainingJob { training_job_name } => self.delete_training_job(training_job_name).await,
            Call::CreateTuningJob(request) => {
                self.holds.created(&request.name, &caller.user_agent);
                self.create_tuning_job(*request).await
            }
            Call::DescribeTuningJob { name } => self.describe_tuning_job(&name, caller).await,
            Call::ListTuningJobs(request) => self.list_tuning_jobs(request).await,
            Call::StopTuningJob { name } => self.stop_tuning_job(name).await,
            Call::DeleteTuningJob { name } => self.delete_tuning_job(&name).await,
            Call::ListTrials(request) => self.list_trials(request).await,
            Call::DescribeStudy(request) => self.describe_study(request).await,
            Call::UpdateTuningJob(update) => self.update_tuning_job(update).await,
            Call::Search(search) => self.search(*search).await,
            Call::AddTags { resource_arn, tags } => self.add_tags(&resource_arn, tags).await,
            Call::ListTags { resource_arn, next_token } => self.list_tags(&resource_arn, next_token.as_deref()).await,
            Call::DeleteTags { resource_arn, tag_keys } => self.delete_tags(&resource_arn, tag_keys).await,
            Call::GetRole { role_name } => Ok(self.get_role(role_name)),
            Call::DescribeLogStreams(request) => self.log_streams(request).await,
            Call::GetLogEvents(request) => self.log_events(request).await,
            Call::FilterLogEvents(request) => self.filter_log_events(request).await,
            Call::ChangeLogs(change) => self.change_logs(change).await,
            Call::DescribeLogGroups(request) => self.log_groups(request).await,
            Call::GetMetricStatistics(request) => self.metric_statistics(request).await,
            Call::GetMetricData(request) => self.metric_data(request).await,
            Call::ListMetrics(request) => self.list_metrics(request).await,
        }
    }
}

/// Runs what may wait for the disk off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(internal(&error)))
}
