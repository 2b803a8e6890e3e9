//! `WarmPoolStatus`: what became of a training job's warm instances.
//!
//! A row is written before the instance is offered, and after it is assigned or ended, each by the
//! step that has the instance: no two writers meet.

use std::{sync::Arc, time::Duration};

use shoal_plane::JobName;
use shoal_runtime::warm_pool::ReusePolicy;
use shoal_store::{StoreError, Telemetry, WarmPoolRow};
use shoal_wire::WarmPool;

use crate::{attempts::Plan, clock::now_ms};

pub(crate) const IN_USE: &str = "InUse";
pub(crate) const AVAILABLE: &str = "Available";
const REUSED: &str = "Reused";
const TERMINATED: &str = "Terminated";

fn row(job: &str, status: &str) -> WarmPoolRow {
    WarmPoolRow { job: job.to_owned(), status: status.to_owned(), since_ms: None, retained_s: None, reused_by: None }
}

/// Trials' instances are their tuning job's, and nobody's warm pool.
fn has_status(policy: Option<&ReusePolicy>) -> bool {
    policy.is_some_and(|policy| policy.owner.is_empty())
}

/// The status of each job's warm instances.
#[derive(Clone)]
pub(crate) struct WarmPools {
    pub(crate) telemetry: Arc<Telemetry>,
}

impl WarmPools {
    /// A job with a keep-alive period runs. `from`: the job whose warm instances it got, and how
    /// long they had been idle.
    pub(crate) fn is_used(&self, plan: &Plan, from: Option<(&JobName, Duration)>) {
        if !has_status(plan.reuse.as_ref()) {
            return;
        }
        let reused = from.filter(|(job, _)| **job != plan.job).map(|(job, kept)| WarmPoolRow {
            retained_s: Some(kept.as_secs()),
            reused_by: Some(plan.job.to_string()),
            ..row(job, REUSED)
        });
        self.put(&[row(&plan.job, IN_USE)].into_iter().chain(reused).collect::<Vec<_>>());
    }

    /// Its instances are about to be offered to others.
    pub(crate) fn is_kept(&self, policy: &ReusePolicy, job: &str) {
        if has_status(Some(policy)) {
            self.put(&[WarmPoolRow { since_ms: Some(now_ms()), ..row(job, AVAILABLE) }]);
        }
    }

    /// A job's warm instances end, or it leaves none. `kept`: how long they were idle.
    pub(crate) fn ends(&self, policy: Option<&ReusePolicy>, job: &str, kept: Duration) {
        if has_status(policy) {
            self.put(&[WarmPoolRow { retained_s: Some(kept.as_secs()), ..row(job, TERMINATED) }]);
        }
    }

    /// What an earlier server has offered ended with it.
    pub(crate) fn end_those_of_before(&self) -> Result<(), StoreError> {
        let ended = |it: WarmPoolRow| WarmPoolRow { retained_s: retained(&it), ..row(&it.job, TERMINATED) };
        let rows: Vec<_> = self.telemetry.warm_pools(AVAILABLE)?.into_iter().map(ended).collect();
        if rows.is_empty() { Ok(()) } else { self.telemetry.put_warm_pools(&rows) }
    }

    fn put(&self, rows: &[WarmPoolRow]) {
        // A status is for people and for what they pay elsewhere: it fails no job.
        if let Err(error) = self.telemetry.put_warm_pools(rows) {
            tracing::error!(
                "the warm pool of {}: {error}",
                rows.iter().map(|row| row.job.as_str()).collect::<Vec<_>>().join(", ")
            );
        }
    }

    /// As Describe and List show it.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn of(&self, job: &str) -> Result<Option<WarmPool>, StoreError> {
        Ok(self.telemetry.warm_pool(job)?.map(shown))
    }

    /// The same of several jobs, each in its place.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn of_all(&self, jobs: &[&str]) -> Result<Vec<Option<WarmPool>>, StoreError> {
        Ok(self.telemetry.warm_pools_of(jobs)?.into_iter().map(|row| row.map(shown)).collect())
    }
}

fn shown(row: WarmPoolRow) -> WarmPool {
    WarmPool { retained_s: retained(&row), status: row.status, reused_by: row.reused_by }
}

/// Seconds that instances have been kept, of those that still are until now.
fn retained(row: &WarmPoolRow) -> Option<u64> {
    row.since_ms.map(|since| now_ms().saturating_sub(since) / 1000).or(row.retained_s)
}
