//! CloudWatch alarms: which state the data of their metrics put them into. What is read and how it
//! is judged is pure ([`shoal_runtime::alarm`]); a change of state is an edit of the alarm's row
//! through the core loop, in which its history and what it notifies become durable, too. So a
//! change is decided once, whenever the server is killed.

mod evaluation;
mod row;
mod transition;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use shoal_runtime::alarm::Window;
use shoal_store::{OwnMetric, ResourceFilter, ResourceRow, ResourceSort, RowChange, Rows, Telemetry};
use shoal_wire::Error;

use self::evaluation::Judged;
pub(crate) use self::{
    row::{ALARM, Alarm, HISTORY, View, description, history_item, key_of},
    transition::{Change, change, configured},
};
use crate::{clock::now_ms, core::Core, identity::Identity, internal::internal, statistics::ReadSeries};

/// Between two looks at which alarms are due.
const LOOK: Duration = Duration::from_secs(1);
/// Between two removals of old history.
const TIDY: Duration = Duration::from_secs(600);
/// What happened longer ago is forgotten, as at AWS.
const HISTORY_MS: u64 = 30 * 24 * 3600 * 1000;
/// More alarms than a server can have.
const MAX_READ: usize = 100_000;
/// Items that one edit removes.
const REMOVED_TOGETHER: usize = 500;

/// Evaluates all alarms.
pub(crate) struct Alarms {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) identity: Identity,
    pub(crate) changed: Arc<ChangedMetrics>,
    /// Of any metric that CloudWatch has.
    pub(crate) read_series: ReadSeries,
}

/// Users' metrics that have got values since alarms were evaluated: values may be late, and belong
/// to a period that was judged already.
#[derive(Default)]
pub(crate) struct ChangedMetrics(Mutex<BTreeSet<String>>);

impl ChangedMetrics {
    pub(crate) fn note<'a>(&self, metrics: impl Iterator<Item = &'a OwnMetric>) {
        let keys = metrics.map(|metric| key_of(&metric.namespace, &metric.name));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Of an alarm: when it was configured, and the window that was judged last.
type Seen = BTreeMap<String, (u64, Window)>;

impl Alarms {
    /// Evaluates alarms until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut version, mut alarms, mut seen) = (self.core.version(), Vec::new(), Seen::new());
        let (mut is_read, mut tidied) = (false, tokio::time::Instant::now());
        loop {
            look.tick().await;
            if !is_read || version.has_changed().unwrap_or(false) {
                version.mark_unchanged();
                match self.blocking(|it| it.read()).await {
                    Some(read) => (alarms, is_read) = (read, true),
                    None => continue,
                }
            }
            let (now_ms, changed) = (now_ms(), self.changed.take());
            let is_due = |alarm: &Alarm| {
                let now = (alarm.view.configured_ms, alarm.rule.window(now_ms));
                seen.get(&alarm.spec.name) != Some(&now) || changed.contains(&alarm.key())
            };
            let due: Vec<Alarm> = alarms.iter().filter(|alarm| is_due(alarm)).cloned().collect();
            if !due.is_empty() {
                let judged =
                    due.iter().map(|it| (it.spec.name.clone(), (it.view.configured_ms, it.rule.window(now_ms))));
                seen.extend(judged);
                seen.retain(|name, _| alarms.iter().any(|alarm| alarm.spec.name == *name));
                for name in self.evaluate(due, now_ms).await {
                    seen.remove(&name);
                }
            }
            if tidied.elapsed() > TIDY {
                tidied = tokio::time::Instant::now();
                self.forget_old(now_ms).await;
            }
        }
    }

    /// Runs what reads on a thread that may wait for the disk.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Option<T> {
        let alarms = self.clone();
        match tokio::task::spawn_blocking(move || work(&alarms)).await {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(error)) => tracing::warn!("alarms are not evaluated: {}", error.message),
            Err(error) => tracing::error!("the evaluation of alarms panicked: {error}"),
        }
        None
    }

    fn read(&self) -> Result<Vec<Alarm>, Error> {
        let filter = ResourceFilter { sort: ResourceSort::Name, limit: MAX_READ, ..ResourceFilter::new(ALARM) };
        let rows = self.rows.list(&filter).map_err(|error| internal(&error))?.rows;
        let alarm = |row: &ResourceRow| {
            Alarm::read(row).map_err(|why| tracing::error!("the alarm {} is not evaluated: {why}", row.name)).ok()
        };
        Ok(rows.iter().filter_map(alarm).collect())
    }

    /// Returns the alarms whose state could not be changed.
    async fn evaluate(self: &Arc<Self>, due: Vec<Alarm>, now_ms: u64) -> Vec<String> {
        let mut failed = Vec::new();
        let names: Vec<String> = due.iter().map(|alarm| alarm.spec.name.clone()).collect();
        let judge = move |alarms: &Self| {
            let judged =
                due.into_iter().map(|alarm| evaluation::judge(&alarms.telemetry, alarms.read_series, alarm, now_ms));
            judged.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()
        };
        let Some(all) = self.blocking(judge).await else { return names };
        for judged in all {
            let (name, identity) = (judged.alarm.spec.name.clone(), self.identity.clone());
            let edited = self.core.edit_rows(format!("alarm {name}"), move |present| {
                let Some(row) = present.row(ALARM, &judged.alarm.spec.name)? else { return Ok(Vec::new()) };
                changes(&row, judged, &identity, now_ms, |topic| {
                    Ok(present.row(crate::notifications::TOPIC, topic)?.is_some())
                })
            });
            if let Err(refusal) = edited.await {
                tracing::warn!("the state of alarm {name} is not changed, and judged again: {refusal}");
                failed.push(name);
            }
        }
        failed
    }

    async fn forget_old(self: &Arc<Self>, now_ms: u64) {
        let old = move |alarms: &Self| {
            let filter = ResourceFilter {
                created_before_ms: Some(now_ms.saturating_sub(HISTORY_MS)),
                limit: REMOVED_TOGETHER,
                ..ResourceFilter::new(HISTORY)
            };
            Ok(alarms.rows.list(&filter).map_err(|error| internal(&error))?.rows)
        };
        loop {
            let rows = self.blocking(old).await.unwrap_or_default();
            let is_last = rows.len() < REMOVED_TOGETHER;
            let changes: Vec<_> = rows.into_iter().map(|row| RowChange::Delete(row.kind, row.name)).collect();
            if changes.is_empty() {
                return;
            }
            if let Err(refusal) = self.core.edit_rows("alarms' old history".to_owned(), move |_| Ok(changes)).await {
                return tracing::warn!("old history of alarms is not removed: {refusal}");
            }
            if is_last {
                return;
            }
        }
    }
}

/// What a judgement changes in an alarm's row as it is now: nothing if the alarm was put or set
/// by hand since the data were read.
fn changes(
    row: &ResourceRow,
    judged: Judged,
    identity: &Identity,
    now_ms: u64,
    has_topic: impl Fn(&str) -> Result<bool, Error>,
) -> Result<Vec<RowChange>, Error> {
    let present = Alarm::read(row).map_err(Error::validation)?;
    if present.view != judged.alarm.view {
        return Ok(Vec::new());
    }
    let Judged { state, reason, data, .. } = judged;
    change(row, &present, Change { state, reason, data: Some(data) }, identity, now_ms, has_topic)
}

#[cfg(test)]
mod tests;
