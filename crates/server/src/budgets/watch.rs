//! What happens by itself: notifications, and the stop of jobs whose budget is spent.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use shoal_plane::{Command, StopCause};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, RowChange};
use shoal_wire::{
    Error,
    budgets::{AtLimit, Spending},
    tags,
};

use super::{BUDGET, Budgets, StoredBudget, StoredNotification, notice::Met};
use crate::{
    clock::now_ms,
    core::{Present, refused},
    internal::{blocking, internal},
    ledger::{self, LedgerJob},
};

/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tuning jobs that a pass stops for a budget; the next one stops more.
const MOST_AT_ONCE: usize = 1000;

/// What a pass decided of a budget.
struct Due {
    budget: StoredBudget,
    spending: Spending,
    period_ms: u64,
    /// Places of the notifications that are met for the first time in the period.
    met: Vec<usize>,
    /// Which jobs are stopped.
    stops: Vec<Command>,
    /// For the server's log.
    reason: String,
}

impl Budgets {
    /// Runs passes until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if let Err(error) = self.clone().pass().await {
                tracing::warn!("budgets are not watched, and the next pass tries again: {}", error.message);
            }
        }
    }

    async fn pass(self: Arc<Self>) -> Result<(), Error> {
        let rows = self.rows.clone();
        let old = blocking(move || ledger::forgotten(&*rows, now_ms()).map_err(|error| internal(&error))).await?;
        if !old.is_empty() {
            let changes = old.into_iter().map(|row| RowChange::Delete(row.kind, row.name)).collect();
            let edited = self.core.edit_rows("costs of deleted jobs".to_owned(), move |_| Ok(changes)).await;
            edited.map_err(|refusal| refused(&refusal))?;
        }
        let budgets = self.clone();
        for due in blocking(move || budgets.due(now_ms())).await? {
            for stop in &due.stops {
                tracing::warn!("{}: {stop:?}", due.reason);
                // A job that has ended meanwhile needs no stop.
                let _ = self.core.ask(stop.clone(), None).await;
            }
            if !due.met.is_empty() {
                self.note(due).await?;
            }
        }
        Ok(())
    }

    /// What is to be done now.
    fn due(&self, now_ms: u64) -> Result<Vec<Due>, Error> {
        let budgets = self.all()?;
        if budgets.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = self.jobs()?;
        let mut all = Vec::new();
        for budget in budgets.into_iter().filter(|budget| budget.is_valid(now_ms)) {
            let period = budget.period(now_ms);
            let spending = budget.spending(&jobs, &self.catalog, &period, now_ms);
            let is_new = |(at, one): (usize, &StoredNotification)| {
                let is_new = one.met_in_ms != Some(period.start) && one.notification.notification.is_met(&spending);
                is_new.then_some(at)
            };
            let met: Vec<_> = budget.notifications.iter().enumerate().filter_map(is_new).collect();
            let is_spent = budget.at_limit == AtLimit::Stop && spending.actual >= spending.limit;
            let stops = if is_spent { self.stops(&budget, &jobs)? } else { Vec::new() };
            let reason = budget.spent(&spending);
            if !met.is_empty() || !stops.is_empty() {
                all.push(Due { budget, spending, period_ms: period.start, met, stops, reason });
            }
        }
        Ok(all)
    }

    /// The tuning jobs and other training jobs that count and run.
    fn stops(&self, budget: &StoredBudget, jobs: &[Arc<LedgerJob>]) -> Result<Vec<Command>, Error> {
        let running = ResourceFilter {
            status: Some("InProgress".to_owned()),
            limit: MOST_AT_ONCE,
            ..ResourceFilter::new(ResourceKind::TUNING_JOB)
        };
        let tunings = self.rows.list(&running).map_err(|error| internal(&error))?.rows;
        let tunings = tunings.iter().filter(|row| {
            let tags = tags::from_json(&row.tags).unwrap_or_default();
            roles(row).iter().any(|role| budget.budget.counts(&tags, role))
        });
        let stop_tuning = |row: &ResourceRow| Command::StopTuningJob { name: row.name.clone().into(), ended: None };
        let jobs = budget.counted(jobs).filter(|job| job.is_in_progress());
        let stop_training = |job: &Arc<LedgerJob>| Command::StopTrainingJob {
            name: job.name.clone().into(),
            cause: StopCause::Budget,
            ended: None,
        };
        Ok(tunings.map(stop_tuning).chain(jobs.map(stop_training)).collect())
    }

    /// Notes that notifications are met, together with what their subscribers are sent.
    async fn note(&self, due: Due) -> Result<(), Error> {
        let identity = self.identity.clone();
        let change = move |present: &Present<'_>| {
            let Some(mut row) = present.row(BUDGET, &due.budget.budget.budget_name)? else { return Ok(Vec::new()) };
            let mut stored = StoredBudget::read(&row)?.notifications;
            let changed = format!("{} {}", row.uid, row.modified_ms);
            let mut changes = Vec::new();
            for notification in due.met.iter().filter_map(|at| due.budget.notifications.get(*at)) {
                // One that has changed meanwhile is judged again.
                if let Some(same) = stored.iter_mut().find(|one| *one == notification) {
                    same.met_in_ms = Some(due.period_ms);
                    let (budget, spending, period_ms) = (&due.budget.budget, &due.spending, due.period_ms);
                    let met = Met { budget, notification, spending, period_ms, changed: &changed };
                    changes.extend(met.rows(&identity, now_ms()));
                }
            }
            row.view = serde_json::to_vec(&stored).map_err(|error| internal(&error))?;
            changes.push(RowChange::Put(Box::new(row)));
            Ok(changes)
        };
        self.core.edit_rows("notifications of a budget".to_owned(), change).await.map_err(|refusal| refused(&refusal))
    }
}

/// The roles of a tuning job's definitions.
fn roles(row: &ResourceRow) -> Vec<String> {
    let request: Members = serde_json::from_slice(&row.request).unwrap_or_default();
    let all = request.training_job_definition.into_iter().chain(request.training_job_definitions);
    all.map(|definition| definition.role_arn).collect()
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Members {
    training_job_definition: Option<Definition>,
    training_job_definitions: Vec<Definition>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Definition {
    role_arn: String,
}
