//! Drives deliveries: messages become deliveries, [`Outbox`] decides which is attempted when, and
//! what became of each is written into its row.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use shoal_runtime::{
    Outbox,
    outbox::{Event, Io, Outcome, Progress},
};
use shoal_store::{Cursor, Page, ResourceFilter, ResourceKind, ResourceRow, RowChange, Rows, SortOrder};
use tokio::sync::{Notify, mpsc};

use super::{
    Transport,
    fan_out::fan_out,
    rows::{
        Attempts, DELIVERED, DELIVERY, Delivery, FAILED, MESSAGE, PENDING, SUBSCRIPTION, TOPIC, UNCONFIRMED, restored,
        stored,
    },
};
use crate::{
    clock::{now, now_ms, until},
    core::{Core, Present},
    exporter::Counts,
    identity::Identity,
};

/// Rows that are read together.
const PAGE: usize = 200;
/// Before what could not be written is written again.
const RETRY: Duration = Duration::from_secs(1);
/// Deliveries at their end that are kept, to be seen, and for how long.
const MAX_ENDED: usize = 1000;
const KEPT_MS: u64 = 14 * 24 * 3600 * 1000;
/// How long a subscription waits to be confirmed, as at AWS.
const CONFIRMABLE_MS: u64 = 3 * 24 * 3600 * 1000;
/// Between two removals of those.
const TIDY: Duration = Duration::from_secs(60);

/// Delivers what is published.
pub(crate) struct Deliverer {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) identity: Identity,
    /// Wakes it when there are new messages or deliveries.
    pub(crate) wake: Arc<Notify>,
    pub(crate) counts: Arc<Counts>,
}

impl Deliverer {
    /// Delivers until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        let (events, mut inbox) = mpsc::unbounded_channel();
        let (mut outbox, mut tidy) = (Outbox::default(), tokio::time::interval(TIDY));
        self.wake.notify_one();
        loop {
            let deadline = outbox.deadline();
            let happened = tokio::select! {
                Some(event) = inbox.recv() => vec![event],
                () = until(deadline) => vec![Event::Timeout],
                () = self.wake.notified() => {
                    self.fan_out_all().await;
                    self.queued().await
                }
                _ = tidy.tick() => {
                    self.forget_old().await;
                    Vec::new()
                }
            };
            for event in happened {
                for io in outbox.handle(event, now()) {
                    self.clone().perform(io, &events);
                }
            }
            self.counts.pending.store(outbox.len() as u64, Ordering::Relaxed);
        }
    }

    /// Replaces messages by their deliveries.
    async fn fan_out_all(&self) {
        let mut after = None;
        loop {
            let filter = ResourceFilter { limit: PAGE, after, ..ResourceFilter::new(MESSAGE) };
            let page = self.list(filter).await;
            for row in page.rows {
                while let Err(why) = self.fan_out(row.clone()).await {
                    tracing::warn!("the message {} is not delivered yet: {why}", row.name);
                    tokio::time::sleep(RETRY).await;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return,
            }
        }
    }

    async fn fan_out(&self, row: ResourceRow) -> Result<(), String> {
        let topic = row.parent.clone().unwrap_or_default();
        let subscriptions = self.subscriptions(&topic).await;
        let identity = self.identity.clone();
        let edited = self.core.edit_rows(format!("message {}", row.name), move |present| {
            // It may be on its way already.
            let Some(row) = present.row(MESSAGE, &row.name)? else { return Ok(Vec::new()) };
            let mut now = Vec::with_capacity(subscriptions.len());
            for subscription in subscriptions {
                now.extend(present.row(SUBSCRIPTION, &subscription.name)?);
            }
            let topic = present.row(TOPIC, &topic)?;
            if topic.is_none() {
                tracing::warn!("the message {} is for a topic that does not exist", row.name);
            }
            let changes = fan_out(&row, topic.as_ref(), &now, &identity, now_ms());
            Ok(changes.unwrap_or_else(|why| {
                tracing::error!("the message {} is dropped, as it cannot be read: {why}", row.name);
                vec![RowChange::Delete(MESSAGE, row.name.clone())]
            }))
        });
        edited.await.map_err(|refusal| refusal.to_string())
    }

    async fn subscriptions(&self, topic: &str) -> Vec<ResourceRow> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let filter = ResourceFilter {
                parent: Some(topic.to_owned()),
                limit: PAGE,
                after,
                ..ResourceFilter::new(SUBSCRIPTION)
            };
            let page = self.list(filter).await;
            all.extend(page.rows);
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    /// Deliveries that are not at their end; those that the outbox has already are ignored there.
    async fn queued(&self) -> Vec<Event> {
        let (mut events, mut after): (_, Option<Cursor>) = (Vec::new(), None);
        loop {
            let filter = ResourceFilter {
                status: Some(PENDING.to_owned()),
                limit: PAGE,
                after,
                ..ResourceFilter::new(DELIVERY)
            };
            let page = self.list(filter).await;
            for row in page.rows {
                let read = restored::<Delivery>(&row.spec)
                    .and_then(|delivery| Ok((delivery, restored::<Attempts>(&row.view)?)));
                match read {
                    Ok((delivery, attempts)) => {
                        events.push(Event::Queued {
                            id: row.name,
                            endpoint: delivery.lane(),
                            attempts: attempts.count,
                        });
                    }
                    Err(why) => tracing::error!("the delivery {} cannot be read: {why}", row.name),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return events,
            }
        }
    }

    fn perform(self: Arc<Self>, io: Io, events: &mpsc::UnboundedSender<Event>) {
        let events = events.clone();
        match io {
            // A thread of its own, which an orderly end of the server does not wait for.
            Io::Attempt { id } => drop(thread::spawn(move || {
                Counts::add(&self.counts.attempts);
                let event = match self.rows.resource(DELIVERY, &id) {
                    Ok(Some(row)) => match restored::<Delivery>(&row.spec) {
                        Ok(delivery) => Event::Attempted { id, outcome: self.attempt(&delivery) },
                        Err(why) => Event::Attempted { id, outcome: Outcome::Refused(why) },
                    },
                    Ok(None) => Event::Withdrawn { id },
                    Err(error) => Event::Attempted { id, outcome: Outcome::Failed(error.to_string()) },
                };
                // The receiver lives as long as the server.
                let _ = events.send(event);
            })),
            Io::Record { id, attempts, progress } => drop(tokio::spawn(async move {
                self.record(&id, attempts, &progress).await;
                let _ = events.send(Event::Recorded { id });
            })),
        }
    }

    fn attempt(&self, delivery: &Delivery) -> Outcome {
        if delivery.subscription_arn.is_empty() {
            // A budget's owner has named the address.
            return self.transport.attempt(delivery);
        }
        let subscription = delivery.subscription_arn.rsplit(':').next().unwrap_or_default();
        match self.rows.resource(SUBSCRIPTION, subscription) {
            Ok(Some(_)) => self.transport.attempt(delivery),
            Ok(None) => Outcome::Refused("the subscription is gone".to_owned()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    /// Writes what became of a delivery; again until it is durable.
    async fn record(&self, id: &str, attempts: u32, progress: &Progress) {
        let (status, reason) = match progress {
            Progress::Delivered => (DELIVERED, None),
            Progress::Waiting { reason, .. } => (PENDING, Some(reason.clone())),
            Progress::Failed { reason } => (FAILED, Some(reason.clone())),
        };
        let view = stored(&Attempts { count: attempts, reason: reason.clone() });
        loop {
            let view = view.clone();
            let edit = move |row: Option<ResourceRow>| {
                Ok(row.map(|row| ResourceRow {
                    status: status.to_owned(),
                    ended: status != PENDING,
                    modified_ms: now_ms(),
                    view,
                    ..row
                }))
            };
            match self.core.edit(DELIVERY, id, edit).await {
                Ok(()) => break,
                Err(refusal) => tracing::warn!("the end of delivery {id} is not recorded yet: {refusal}"),
            }
            tokio::time::sleep(RETRY).await;
        }
        match progress {
            Progress::Delivered => Counts::add(&self.counts.delivered),
            Progress::Failed { .. } => {
                Counts::add(&self.counts.failed);
                tracing::warn!("a notification is given up: {}", reason.unwrap_or_default());
            }
            Progress::Waiting { .. } => {}
        }
    }

    /// Removes deliveries at their end that are old or too many, and subscriptions that were not
    /// confirmed in time.
    async fn forget_old(&self) {
        let unconfirmed = ResourceFilter {
            status: Some(UNCONFIRMED.to_owned()),
            modified_before_ms: Some(now_ms().saturating_sub(CONFIRMABLE_MS)),
            limit: PAGE,
            ..ResourceFilter::new(SUBSCRIPTION)
        };
        self.remove(self.list(unconfirmed).await.rows).await;
        for status in [DELIVERED, FAILED] {
            let of = |limit| ResourceFilter {
                status: Some(status.to_owned()),
                order: SortOrder::Descending,
                limit,
                ..ResourceFilter::new(DELIVERY)
            };
            let newest = self.list(of(MAX_ENDED)).await;
            let oldest_ms = now_ms().saturating_sub(KEPT_MS);
            let mut removed: Vec<ResourceRow> =
                newest.rows.into_iter().filter(|row| row.created_ms < oldest_ms).collect();
            if let Some(next) = newest.next {
                removed.extend(self.list(ResourceFilter { after: Some(next), ..of(MAX_ENDED) }).await.rows);
            }
            self.remove(removed).await;
        }
    }

    async fn remove(&self, rows: Vec<ResourceRow>) {
        if rows.is_empty() {
            return;
        }
        // What has changed since it was listed is looked at again the next time.
        let change = move |present: &Present<'_>| {
            let mut changes = Vec::new();
            for row in rows {
                if present.row(row.kind, &row.name)?.is_some_and(|now| now.modified_ms == row.modified_ms) {
                    changes.push(RowChange::Delete(row.kind, row.name));
                }
            }
            Ok(changes)
        };
        if let Err(refusal) = self.core.edit_rows("old deliveries".to_owned(), change).await {
            tracing::warn!("old deliveries are not removed: {refusal}");
        }
    }

    async fn list(&self, filter: ResourceFilter) -> Page {
        let kind: ResourceKind = filter.kind;
        loop {
            let (rows, filter) = (self.rows.clone(), filter.clone());
            match tokio::task::spawn_blocking(move || rows.list(&filter)).await {
                Ok(Ok(page)) => return page,
                Ok(Err(error)) => tracing::warn!("rows of {} are not read: {error}", kind.name()),
                Err(error) => tracing::error!("reading rows of {} panicked: {error}", kind.name()),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
