//! What each training job costs, in memory, with what costs are grouped and limited by. The first
//! use reads all rows, later ones those that the journal changed. What a deleted job cost is a row
//! of its own: no budget is refilled by a deletion.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use serde::{Deserialize, Serialize};
use shoal_plane::{Billed, Catalog, Cost, JobStatus, JobView, Time};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, ResourceSort, Rows, StoreError};
use shoal_wire::{Tag, stored_description, tags};

use crate::stale::Stale;

/// What is kept of deleted training jobs; named `<job>/<uid>`.
pub(crate) const DELETED_JOB: ResourceKind = ResourceKind::new("deleted-training-job");
/// How long after their creation.
const KEPT_MS: u64 = 2 * 366 * 24 * 3600 * 1000;

/// Rows that are read at once when all are.
const READ: usize = 1000;

/// All training jobs as far as their costs depend on them.
pub(crate) struct Ledger {
    stale: Mutex<Stale>,
    jobs: RwLock<BTreeMap<String, Arc<LedgerJob>>>,
}

/// A training job.
pub(crate) struct LedgerJob {
    pub(crate) name: String,
    /// The tuning job whose trial it is.
    pub(crate) tuning: Option<String>,
    pub(crate) role: String,
    /// Of its `ExperimentConfig`; empty without one.
    pub(crate) experiment: String,
    pub(crate) tags: Vec<Tag>,
    /// Numbers of instances by type.
    pub(crate) types: Vec<(String, u32)>,
    /// Without its texts and lists.
    view: JobView,
}

impl LedgerJob {
    /// What it cost `within` a time on all its instances; `None` if nothing.
    pub(crate) fn cost(&self, catalog: &Catalog, now: Time, within: &Range<Time>) -> Option<Cost> {
        self.billed(catalog, now)?.within(within)
    }

    /// What it cost by now on all its instances.
    pub(crate) fn billed(&self, catalog: &Catalog, now: Time) -> Option<Billed> {
        let types: Vec<_> = self.types.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        self.view.billed(&types, catalog, now)
    }

    /// The same on some of them.
    pub(crate) fn cost_of(
        &self,
        types: &[(&str, u32)],
        catalog: &Catalog,
        now: Time,
        within: &Range<Time>,
    ) -> Option<Cost> {
        self.view.billed(types, catalog, now)?.within(within)
    }

    /// It neither ends nor has ended.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.view.status == JobStatus::InProgress
    }

    /// None if an earlier version's row cannot be read.
    fn read(row: &ResourceRow) -> Option<Self> {
        let view = billed_part(row)?;
        let Members { role_arn, experiment_config } = serde_json::from_slice(&row.request).unwrap_or_default();
        let resources = stored_description(&row.spec).ok()?.resources;
        Some(Self {
            // A deleted job's row has its id, too.
            name: row.name.split('/').next().unwrap_or_default().to_owned(),
            tuning: row.parent.clone(),
            role: role_arn,
            experiment: experiment_config.experiment_name,
            tags: tags::from_json(&row.tags).unwrap_or_default(),
            types: resources.types().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
            view,
        })
    }
}

/// The view without its texts and lists.
fn billed_part(row: &ResourceRow) -> Option<JobView> {
    let mut view: JobView = serde_json::from_slice(&row.view).ok()?;
    (view.transitions, view.final_metrics, view.rules) = Default::default();
    (view.failure_reason, view.pending, view.trial) = Default::default();
    Some(view)
}

/// What is kept of a training job that is deleted; none if it cost nothing.
pub(crate) fn deleted(row: &ResourceRow, now_ms: u64) -> Option<ResourceRow> {
    let view = billed_part(row).filter(|view| view.training_start.is_some())?;
    let members: Members = serde_json::from_slice(&row.request).unwrap_or_default();
    Some(ResourceRow {
        created_ms: row.created_ms,
        modified_ms: now_ms,
        ended: true,
        parent: row.parent.clone(),
        request: serde_json::to_vec(&members).ok()?,
        spec: row.spec.clone(),
        view: serde_json::to_vec(&view).ok()?,
        tags: row.tags.clone(),
        creator: row.creator.clone(),
        ..ResourceRow::new(DELETED_JOB, &format!("{}/{}", row.name, row.uid))
    })
}

/// Deleted jobs whose costs are forgotten now.
pub(crate) fn forgotten(rows: &dyn Rows, now_ms: u64) -> Result<Vec<ResourceRow>, StoreError> {
    let created_before_ms = Some(now_ms.saturating_sub(KEPT_MS));
    Ok(rows.list(&ResourceFilter { created_before_ms, limit: READ, ..ResourceFilter::new(DELETED_JOB) })?.rows)
}

/// The members of a request that costs are grouped by.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Members {
    role_arn: String,
    experiment_config: ExperimentConfig,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ExperimentConfig {
    experiment_name: String,
}

impl Ledger {
    /// Knows nothing yet.
    pub(crate) fn new() -> Self {
        Self { stale: Mutex::new(Stale::All), jobs: RwLock::default() }
    }

    /// Notes that a job's row has changed.
    pub(crate) fn note(&self, job: &str) {
        self.stale().note(job);
    }

    fn stale(&self) -> MutexGuard<'_, Stale> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All jobs as they are now, by name.
    ///
    /// # Errors
    /// The rows cannot be read; the next call reads all.
    pub(crate) fn jobs(&self, rows: &dyn Rows) -> Result<Vec<Arc<LedgerJob>>, StoreError> {
        let mut jobs = self.jobs.write().unwrap_or_else(PoisonError::into_inner);
        let stale = self.stale().take();
        let read = match stale {
            Stale::All => read_all(&mut jobs, rows),
            Stale::Some(names) => names.into_iter().try_for_each(|name| {
                let kind = if name.contains('/') { DELETED_JOB } else { ResourceKind::TRAINING_JOB };
                let job = rows.resource(kind, &name)?.and_then(|row| LedgerJob::read(&row));
                match job {
                    Some(job) => drop(jobs.insert(name, Arc::new(job))),
                    None => drop(jobs.remove(&name)),
                }
                Ok(())
            }),
        };
        if let Err(error) = read {
            *self.stale() = Stale::All;
            return Err(error);
        }
        Ok(jobs.values().cloned().collect())
    }
}

fn read_all(jobs: &mut BTreeMap<String, Arc<LedgerJob>>, rows: &dyn Rows) -> Result<(), StoreError> {
    jobs.clear();
    for kind in [ResourceKind::TRAINING_JOB, DELETED_JOB] {
        let mut filter = ResourceFilter { sort: ResourceSort::Name, limit: READ, ..ResourceFilter::new(kind) };
        loop {
            let page = rows.list(&filter)?;
            let read = page.rows.iter().filter_map(|row| Some((row.name.clone(), Arc::new(LedgerJob::read(row)?))));
            jobs.extend(read);
            match page.next {
                None => break,
                next => filter.after = next,
            }
        }
    }
    Ok(())
}
