//! What a call does: typed inputs to commands and reads, and back. `routes` has the operations.

mod alarms;
mod audit;
pub(crate) mod best_model;
mod checkpoints;
mod compute_targets;
mod costs;
mod filter_logs;
mod hold;
mod identity;
mod keys;
mod listing;
mod log_changes;
mod logs;
mod metrics;
mod named;
mod near;
mod old_jobs;
mod open_to_jobs;
mod own_metrics;
mod permission;
mod profile;
mod quotas;
mod records;
mod resource_types;
mod resources;
mod routes;
mod rule_statuses;
mod search;
mod study;
mod system_metrics;
mod tags;
mod topics;
mod training;
mod trial_metrics;
mod tuning;
mod utilization;
mod visits;

use std::sync::Arc;

use shoal_console::JobChanges;
use shoal_launch::Launcher;
use shoal_plane::{Capacity, Catalog};
use shoal_store::{CreatorRows, DataDir, Rows, Telemetry};
use shoal_wire::{Error, Reply};

use crate::{
    AccessKeys,
    admission::Admission,
    alarms::ChangedMetrics,
    attempts::Attempts,
    audit::AuditLog,
    budgets::Budgets,
    core::{Core, refused},
    error_chain,
    identity::Identity,
    internal::blocking,
    key_ring::{Holder, KeyRing},
    ledger::Ledger,
    machines::Machines,
    profile::Profiles,
    quotas::Quotas,
    sampling::Sampling,
    search::Indexes,
    team::{Member, Team},
    token,
    tuning::Looks,
    visits::Visits,
};

pub(crate) use hold::Holds;
pub(crate) use metrics::read as read_series;
pub(crate) use named::subject;
pub(crate) use records::Records;
pub(crate) use resource_types::{
    EXPERIMENT, Registry, TRIAL, TRIAL_COMPONENT, TRIAL_LINK, component_of, component_series, ends_of_trial_link,
    user_id,
};
pub(crate) use routes::{Answer, read};
pub(crate) use study::spec_kind;
pub(crate) use topics::Topics;

/// Who calls, as far as it matters for the answer.
pub(crate) struct Caller {
    /// The request's `User-Agent`.
    pub(crate) user_agent: String,
    /// Whose keys the request is signed with.
    pub(crate) holder: Holder,
    /// Whose rights bound it; `None` for the owner's.
    pub(crate) member: Option<Arc<Member>>,
}

impl Caller {
    /// The owner of the server.
    #[cfg(test)]
    pub(crate) fn owner() -> Self {
        Self { user_agent: String::new(), holder: Holder::Owner, member: None }
    }

    /// Under which name the caller creates resources; `None` for the owner.
    pub(crate) fn creator(&self) -> Option<String> {
        self.member.as_ref().map(|member| member.name.clone())
    }

    /// Whose resources the caller sees; `None`: all.
    pub(crate) fn sees(&self) -> Option<&str> {
        self.member.as_ref().filter(|member| member.is_user()).map(|member| member.name.as_str())
    }

    /// The rows that the caller sees.
    pub(crate) fn rows(&self, all: &Arc<dyn Rows>) -> Arc<dyn Rows> {
        match self.sees() {
            None => all.clone(),
            Some(creator) => Arc::new(CreatorRows::new(all.clone(), creator)),
        }
    }
}

/// The API over everything it touches.
pub(crate) struct Api {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) profiles: Profiles,
    pub(crate) records: Arc<Records>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) search: Arc<Indexes>,
    pub(crate) plain: Registry,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) changed_metrics: Arc<ChangedMetrics>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) visits: Arc<Visits>,
    pub(crate) machines: Machines,
    pub(crate) job_changes: Arc<JobChanges>,
    pub(crate) keys: AccessKeys,
    pub(crate) team: Arc<Team>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) identity: Identity,
    pub(crate) default_bucket: String,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) capacity: Capacity,
    pub(crate) catalog: Catalog,
    pub(crate) grace_s: u32,
    /// Bytes of metric points that a training job may store.
    pub(crate) log_quota: u64,
    pub(crate) sampling: Sampling,
    pub(crate) holds: Holds,
    /// One deletion at a time: what goes by a job's name must not be a successor's.
    pub(crate) deletion: tokio::sync::Mutex<()>,
}

impl Api {
    /// A text for clients, see [`error_chain::without_paths`].
    pub(crate) fn without_paths(&self, text: &str) -> String {
        error_chain::without_paths(&self.data_dir, text)
    }

    /// Runs what reads budgets.
    async fn budgets(
        &self,
        work: impl FnOnce(&Budgets) -> Result<Reply, Error> + Send + 'static,
    ) -> Result<Reply, Error> {
        let budgets = self.budgets.clone();
        blocking(move || work(&budgets)).await
    }

    /// Answers a call that [`Self::permit`] permits.
    ///
    /// # Errors
    /// With the error code that AWS has for it.
    pub(crate) async fn answer(&self, answer: Answer, caller: &Caller) -> Result<Reply, Error> {
        answer(self, caller).await
    }

    /// The same as [`blocking`] for what writes: the data directory stays locked until that ends.
    async fn writing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let data_dir = self.data_dir.clone();
        blocking(move || {
            let written = work();
            drop(data_dir);
            written
        })
        .await
    }
}

#[cfg(test)]
mod tests;
