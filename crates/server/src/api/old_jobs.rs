//! Jobs that ended longer ago than the owner's `jobs_days`: the server deletes them as a client
//! would, a tuning job behind its trials. What they stored in S3 stays. In the same pass records of
//! experiments and lineage are deleted (`resource_types::old_records`).

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, Rows, StoreError, TrialFilter};
use shoal_wire::{Error, OWNER_NAME, Service};

use super::{Api, Caller, resource_types::Deleted};
use crate::{
    audit::{Outcome, Record},
    clock::now_ms,
    internal::{blocking, internal},
    key_ring::Holder,
};

/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Rows that are read at once.
const PAGE: usize = 500;

/// What is deleted together, in this order.
struct OldJob {
    tuning: Option<Old>,
    /// Of a tuning job its trials, else one job.
    training: Vec<Old>,
}

/// A job, which is another one than a later one of its name.
struct Old {
    name: String,
    uid: String,
    arn: String,
}

impl Old {
    fn of(row: ResourceRow) -> Self {
        Self { name: row.name, uid: row.uid, arn: row.arn }
    }
}

impl Api {
    /// Runs passes until it is aborted: jobs first, which their components stay for.
    pub(crate) async fn delete_what_is_old(
        self: Arc<Self>,
        jobs_days: Option<NonZeroU32>,
        experiments_days: Option<NonZeroU32>,
    ) {
        let before = |days: NonZeroU32| now_ms().saturating_sub(u64::from(days.get()) * DAY_MS);
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if let Some(days) = jobs_days {
                match self.delete_ended_before(before(days)).await {
                    Ok(0) => {}
                    Ok(count) => {
                        tracing::info!("deleted {count} jobs that ended more than {days} days ago (jobs_days)");
                    }
                    Err(error) => {
                        tracing::warn!("old jobs are not deleted, the next pass tries again: {}", error.message);
                    }
                }
            }
            if let Some(days) = experiments_days {
                match self.delete_records_before(before(days)).await {
                    Ok(0) => {}
                    Ok(count) => tracing::info!(
                        "deleted {count} records of experiments and lineage that were changed last more than {days} days \
                         ago (experiments_days)"
                    ),
                    Err(error) => tracing::warn!("old records stay, the next pass tries again: {}", error.message),
                }
            }
        }
    }

    /// How many records of experiments and lineage were deleted.
    async fn delete_records_before(&self, before_ms: u64) -> Result<usize, Error> {
        let count = AtomicUsize::new(0);
        let note = |deleted: Deleted| {
            self.note_deletion("experiments_days", &deleted.operation, deleted.arn);
            count.fetch_add(1, Ordering::Relaxed);
        };
        self.plain.delete_before(before_ms, &note).await?;
        Ok(count.into_inner())
    }

    /// How many jobs were deleted. What cannot be deleted yet stays for the next pass.
    pub(super) async fn delete_ended_before(&self, before_ms: u64) -> Result<usize, Error> {
        let rows = self.rows.clone();
        let mut deleted = 0;
        for job in blocking(move || old_jobs(&*rows, before_ms).map_err(|error| internal(&error))).await? {
            match self.delete_old(job, &mut deleted).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::info!("an old job is not deleted yet, the next pass tries again: {}", error.message);
                }
            }
        }
        Ok(deleted)
    }

    async fn delete_old(&self, job: OldJob, deleted: &mut usize) -> Result<(), Error> {
        for old in job.training {
            self.delete_training(old.name, Some(&old.uid)).await?;
            self.note_deletion("jobs_days", "DeleteTrainingJob", old.arn);
            *deleted += 1;
        }
        if let Some(old) = job.tuning {
            self.delete_tuning(&old.name, Some(old.uid)).await?;
            self.note_deletion("jobs_days", "DeleteHyperParameterTuningJob", old.arn);
            *deleted += 1;
        }
        Ok(())
    }

    /// As the owner's, whose setting it follows.
    fn note_deletion(&self, setting: &str, operation: &str, arn: String) {
        let caller = Caller { user_agent: String::new(), holder: Holder::Owner, member: None };
        let record = Record {
            user: OWNER_NAME.to_owned(),
            arn: caller.arn(&self.identity),
            agent: setting.to_owned(),
            service: Service::SageMaker.scope().to_owned(),
            operation: operation.to_owned(),
            resources: vec![arn],
            ..Record::default()
        };
        self.audit.note(record.complete(&Outcome::Done, now_ms()));
    }
}

/// A trial is as old as its tuning job and the youngest of its trials.
fn old_jobs(rows: &dyn Rows, before_ms: u64) -> Result<Vec<OldJob>, StoreError> {
    let is_old = |row: &ResourceRow| row.ended_ms.is_some_and(|ended| ended < before_ms);
    let mut old = Vec::new();
    for tuning in ended(rows, ResourceKind::TUNING_JOB, &is_old, before_ms)? {
        if let Some(training) = trials(rows, &tuning.name, &is_old)? {
            old.push(OldJob { tuning: Some(tuning), training });
        }
    }
    for training in ended(rows, ResourceKind::TRAINING_JOB, &is_old, before_ms)? {
        let tuning = match rows.trial(&training.name)? {
            None => None,
            Some(trial) => rows.resource(ResourceKind::TUNING_JOB, &trial.tuning)?,
        };
        if tuning.is_none() {
            old.push(OldJob { tuning: None, training: vec![training] });
        }
    }
    Ok(old)
}

fn ended(
    rows: &dyn Rows,
    kind: ResourceKind,
    is_old: &dyn Fn(&ResourceRow) -> bool,
    before_ms: u64,
) -> Result<Vec<Old>, StoreError> {
    let mut filter = ResourceFilter { modified_before_ms: Some(before_ms), limit: PAGE, ..ResourceFilter::new(kind) };
    let mut jobs = Vec::new();
    loop {
        let page = rows.list(&filter)?;
        jobs.extend(page.rows.into_iter().filter(is_old).map(Old::of));
        match page.next {
            None => return Ok(jobs),
            next => filter.after = next,
        }
    }
}

/// All trials of a tuning job, if all are old.
fn trials(
    rows: &dyn Rows,
    tuning: &str,
    is_old: &dyn Fn(&ResourceRow) -> bool,
) -> Result<Option<Vec<Old>>, StoreError> {
    let mut filter = TrialFilter { tuning: tuning.to_owned(), limit: PAGE, ..TrialFilter::default() };
    let mut jobs = Vec::new();
    loop {
        let page = rows.list_trials(&filter)?;
        if !page.rows.iter().all(|(_, row)| is_old(row)) {
            return Ok(None);
        }
        jobs.extend(page.rows.into_iter().map(|(_, row)| Old::of(row)));
        match page.next {
            None => return Ok(Some(jobs)),
            next => filter.after = next,
        }
    }
}
