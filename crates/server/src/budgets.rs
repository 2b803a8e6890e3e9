//! Budgets: what is spent of each, who is notified, which jobs are refused and stopped.
//!
//! A budget is a row. Its view has the notifications, each with the period in which it was met
//! last, which is noted together with what its subscribers are sent.

mod notice;
mod operations;
mod watch;

use std::{ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};
use shoal_plane::{Catalog, Time};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, ResourceSort, Rows};
use shoal_wire::{
    Error, ErrorCode, Tag,
    budgets::{AtLimit, Budget, BudgetType, NotificationWithSubscribers, Period, Spending, at_limit},
    tags,
};

use crate::{
    clock::now_ms,
    core::Core,
    identity::Identity,
    internal::internal,
    ledger::{Ledger, LedgerJob},
};

/// The kind of its rows.
const BUDGET: ResourceKind = ResourceKind::new("budget");
/// Budgets of an account, and the most that a request may change.
const MOST_BUDGETS: usize = 1000;

/// All budgets.
pub(crate) struct Budgets {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) catalog: Catalog,
    pub(crate) identity: Identity,
    /// There is a mail server.
    pub(crate) sends_mails: bool,
}

/// A budget as it is stored.
struct StoredBudget {
    budget: Budget,
    notifications: Vec<StoredNotification>,
    at_limit: AtLimit,
    updated_ms: u64,
}

/// A notification, and the start of the period in which it was met last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredNotification {
    #[serde(flatten)]
    notification: NotificationWithSubscribers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    met_in_ms: Option<u64>,
}

impl StoredBudget {
    fn read(row: &ResourceRow) -> Result<Self, Error> {
        Ok(Self {
            budget: serde_json::from_slice(&row.request).map_err(|error| internal(&error))?,
            notifications: serde_json::from_slice(&row.view).map_err(|error| internal(&error))?,
            at_limit: at_limit(&tags::from_json(&row.tags).map_err(|error| internal(&error))?)?,
            updated_ms: row.modified_ms,
        })
    }

    /// The period in which a time is, as far as the budget counts.
    fn period(&self, at_ms: u64) -> Period {
        self.budget.time_unit.period(at_ms)
    }

    /// What is spent of the period.
    fn spending(&self, jobs: &[Arc<LedgerJob>], catalog: &Catalog, period: &Period, now_ms: u64) -> Spending {
        let limits = &self.budget.time_period;
        let ms = |seconds: f64| (seconds * 1000.0).max(0.0) as u64;
        let within = Time(period.start.max(ms(limits.start)))..Time(period.end.min(ms(limits.end)));
        let amounts = self.counted(jobs).filter_map(|job| self.amount(job, catalog, now_ms, &within));
        // The sum of nothing is -0.0.
        let actual = amounts.fold(0.0, |sum, amount| sum + amount);
        Spending::of(self.budget.limit(), actual, period, now_ms)
    }

    fn amount(&self, job: &LedgerJob, catalog: &Catalog, now_ms: u64, within: &Range<Time>) -> Option<f64> {
        let cost = job.cost(catalog, Time(now_ms), within)?;
        Some(match self.budget.budget_type {
            BudgetType::Cost => cost.usd,
            BudgetType::Usage => cost.instance_s / 3600.0,
        })
    }

    /// The jobs that count.
    fn counted<'a>(&'a self, jobs: &'a [Arc<LedgerJob>]) -> impl Iterator<Item = &'a Arc<LedgerJob>> {
        jobs.iter().filter(|job| self.budget.counts(&job.tags, &job.role))
    }

    /// Whether the budget counts at all at this time.
    fn is_valid(&self, now_ms: u64) -> bool {
        let (now, valid) = (now_ms as f64 / 1000.0, &self.budget.time_period);
        (valid.start..valid.end).contains(&now)
    }

    /// `budget a of 10 USD per month is spent (10.40 USD)`.
    fn spent(&self, spending: &Spending) -> String {
        let Budget { budget_name, budget_limit, time_unit, .. } = &self.budget;
        let digits = if spending.actual.abs() < 0.1 { 6 } else { 2 };
        format!(
            "budget \"{budget_name}\" of {} {} per {} is spent ({:.digits$} {} so far)",
            budget_limit.amount,
            budget_limit.unit,
            time_unit.noun(),
            spending.actual,
            budget_limit.unit
        )
    }
}

impl Budgets {
    /// Refuses a job that a spent budget counts, if the budget refuses jobs.
    ///
    /// # Errors
    /// `ResourceLimitExceeded`.
    pub(crate) fn check(&self, tags: &[Tag], role: &str) -> Result<(), Error> {
        let now_ms = now_ms();
        let is_limit = |one: &StoredBudget| one.at_limit != AtLimit::Notify && one.is_valid(now_ms);
        let limits: Vec<_> = self.all()?.into_iter().filter(is_limit).collect();
        let counted = limits.iter().filter(|one| one.budget.counts(tags, role));
        for one in counted {
            let spending = self.spending(one, now_ms)?;
            if spending.actual >= spending.limit {
                let next = shoal_wire::timestamp::iso8601(one.period(now_ms).end);
                return Err(Error::new(
                    ErrorCode::ResourceLimitExceeded,
                    format!(
                        "The job is refused: {}. The next {} begins at {next}; until then raise the limit (UpdateBudget, \
                         or shoal budget set).",
                        one.spent(&spending),
                        one.budget.time_unit.noun(),
                    ),
                ));
            }
        }
        Ok(())
    }

    fn spending(&self, budget: &StoredBudget, now_ms: u64) -> Result<Spending, Error> {
        let jobs = self.jobs()?;
        Ok(budget.spending(&jobs, &self.catalog, &budget.period(now_ms), now_ms))
    }

    fn jobs(&self) -> Result<Vec<Arc<LedgerJob>>, Error> {
        self.ledger.jobs(&*self.rows).map_err(|error| internal(&error))
    }

    /// All, by name.
    fn all(&self) -> Result<Vec<StoredBudget>, Error> {
        Self::all_of(&*self.rows)
    }

    fn all_of(rows: &dyn Rows) -> Result<Vec<StoredBudget>, Error> {
        let filter = ResourceFilter { sort: ResourceSort::Name, limit: MOST_BUDGETS, ..ResourceFilter::new(BUDGET) };
        let rows = rows.list(&filter).map_err(|error| internal(&error))?.rows;
        rows.iter().map(StoredBudget::read).collect()
    }
}
