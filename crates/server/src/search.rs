//! What `Search` looks through: the properties of all resources of a kind, in memory.
//!
//! They are derived from the rows alone. [`Indexes::watch`] notes which rows the journal changes; a
//! search first reads those again, and the first one reads all. A search then compares every
//! resource: some tens of milliseconds for 100,000.

mod document;
mod table;

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use serde_json::Value;
use shoal_store::{
    Batch, EachEvent, Journal, ResourceFilter, ResourceKind, ResourceRow, ResourceSort, RowChange, Rows, Snapshots,
    StoreError,
};
use shoal_wire::{Condition, Error, PropertyValue, SortOrder, Test, Wanted, properties};

use crate::{
    api::{EXPERIMENT, TRIAL, TRIAL_COMPONENT, TRIAL_LINK, component_of, ends_of_trial_link},
    ledger::{DELETED_JOB, Ledger},
    stale::Stale,
};
use document::{Document, Key, Property, Texts, Writer};

/// Rows that are read at once when all are.
const READ: usize = 1000;
/// The property that has a row's creator; no path of a record has a slash.
const CREATOR: &str = "/creator";

/// The indexes of all kinds that can be searched, and the ledger of costs.
pub(crate) struct Indexes {
    searched: [Arc<SearchIndex>; 5],
    ledger: Arc<Ledger>,
}

impl Indexes {
    pub(crate) fn new(ledger: Arc<Ledger>) -> Arc<Self> {
        let kinds = [ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB, EXPERIMENT, TRIAL, TRIAL_COMPONENT];
        Arc::new(Self { searched: kinds.map(|kind| Arc::new(SearchIndex::new(kind))), ledger })
    }

    /// The index of a kind; `None` if it cannot be searched.
    pub(crate) fn of(&self, kind: ResourceKind) -> Option<&Arc<SearchIndex>> {
        self.searched.iter().find(|index| index.kind == kind)
    }

    /// The journal, whose changes of rows reach the indexes from now on.
    pub(crate) fn watch(self: &Arc<Self>, journal: impl Journal + 'static) -> Box<dyn Journal> {
        Box::new(Watched { journal, indexes: self.clone() })
    }

    /// Notes new metrics of a training job, which its trial component shows.
    pub(crate) fn note_metrics(&self, job: &str) {
        self.note(TRIAL_COMPONENT, &component_of(job));
    }

    /// Notes that a row has changed, or something else that a document is made of.
    pub(crate) fn note(&self, kind: ResourceKind, name: &str) {
        match kind {
            // A job's component shows the job.
            ResourceKind::TRAINING_JOB => self.note(TRIAL_COMPONENT, &component_of(name)),
            TRIAL_LINK => {
                let (component, trial) = ends_of_trial_link(name);
                self.note(TRIAL_COMPONENT, component);
                self.note(TRIAL, trial);
            }
            _ => {}
        }
        if [ResourceKind::TRAINING_JOB, DELETED_JOB].contains(&kind) {
            self.ledger.note(name);
        }
        if let Some(index) = self.of(kind) {
            index.stale().note(name);
        }
    }
}

/// Properties of all resources of a kind. Any number of searches run at once.
pub(crate) struct SearchIndex {
    kind: ResourceKind,
    stale: Mutex<Stale>,
    contents: RwLock<Contents>,
}

#[derive(Default)]
struct Contents {
    /// Properties by path; numbers are given once and stay.
    properties: BTreeMap<String, Property>,
    /// By name, which is also the order in which all are read: what a search looks at one after
    /// another lies one after another.
    documents: BTreeMap<String, Document>,
    texts: Texts,
    /// Documents that went, whose texts are still there.
    gone: usize,
}

/// What a search found.
pub(crate) struct Found {
    /// On this page, in order.
    pub(crate) names: Vec<String>,
    /// Where the next page starts.
    pub(crate) next: Option<Place>,
    /// On all pages.
    pub(crate) total: u64,
}

/// A place in an order: after the job with this key and name. It stays good when jobs come and go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    key: Key<String>,
    name: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Key::Number(number) => write!(f, "{}/n{}", self.name, number.to_bits()),
            Key::Text(text) => write!(f, "{}/t{text}", self.name),
            Key::Absent => write!(f, "{}/", self.name),
        }
    }
}

/// The text is no place.
#[derive(Debug, thiserror::Error)]
#[error("not a place in a list of search results")]
pub(crate) struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let (name, key) = text.split_once('/').ok_or(NoPlace)?;
        let key = match key.split_at_checked(1) {
            Some(("n", bits)) => Key::Number(f64::from_bits(bits.parse().map_err(|_| NoPlace)?)),
            Some(("t", text)) => Key::Text(text.to_owned()),
            _ => Key::Absent,
        };
        Ok(Self { key, name: name.to_owned() })
    }
}

impl SearchIndex {
    /// Knows nothing yet.
    fn new(kind: ResourceKind) -> Self {
        Self { kind, stale: Mutex::new(Stale::All), contents: RwLock::default() }
    }

    /// For records that more than their rows changes: the next refresh reads all.
    pub(crate) fn expire(&self) {
        *self.stale() = Stale::All;
    }

    fn stale(&self) -> MutexGuard<'_, Stale> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what has changed. `record` makes of a row what Search shows; a row of which it makes
    /// nothing is not found.
    ///
    /// # Errors
    /// The rows cannot be read; the next refresh reads all.
    pub(crate) fn refresh(
        &self,
        rows: &dyn Rows,
        record: &dyn Fn(&ResourceRow) -> Result<Value, Error>,
    ) -> Result<(), StoreError> {
        if self.stale().is_empty() {
            return Ok(());
        }
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        // Taken with the contents locked, so that no search sees the time between.
        let stale = self.stale().take();
        let outcome = match stale {
            Stale::Some(names) => names.into_iter().try_for_each(|name| {
                match rows.resource(self.kind, &name)? {
                    Some(row) => contents.put(&row, record),
                    None => contents.remove(&name),
                }
                Ok(())
            }),
            Stale::All => contents.read_all(self.kind, rows, record),
        };
        // What no job says any more goes when it is more than what is said.
        let outcome = match outcome {
            Ok(()) if contents.gone > READ.max(contents.documents.len()) => contents.read_all(self.kind, rows, record),
            outcome => outcome,
        };
        if outcome.is_err() {
            *self.stale() = Stale::All;
        }
        outcome
    }

    /// A page of the jobs that meet the condition, at most `limit` (from 1) of them; with a
    /// creator, only of that one's. Jobs without the property of the order come last; equal ones
    /// come by name.
    pub(crate) fn find(
        &self,
        creator: Option<&str>,
        condition: Condition<String>,
        sort_by: &str,
        order: SortOrder,
        after: Option<&Place>,
        limit: usize,
    ) -> Found {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let condition = created_by(creator, condition).rename(&mut |path| contents.numbers(&path));
        let sort_by = contents.properties.get(sort_by).copied();
        let texts = &contents.texts;
        let compare = |left: &(Key<&str>, &str), right: &(Key<&str>, &str)| directed(order, left, right);
        let place = after.map(|place| (place.key.as_str(), place.name.as_str()));
        // The first ones so far, and some that may be among them; whatever comes after `last` is
        // not.
        let (mut found, mut last, mut total, mut more) = (Vec::new(), None, 0, false);
        for (name, document) in contents.documents.iter().filter(|(_, document)| document.meets(&condition, texts)) {
            total += 1;
            let it = (document.key(sort_by, texts), name.as_str());
            if place.as_ref().is_some_and(|place| compare(&it, place) != Ordering::Greater) {
                continue;
            }
            if last.as_ref().is_some_and(|last| compare(&it, last) == Ordering::Greater) {
                more = true;
                continue;
            }
            found.push(it);
            if found.len() > 4 * limit {
                last = Some(*found.select_nth_unstable_by(limit - 1, compare).1);
                found.truncate(limit);
                more = true;
            }
        }
        found.sort_unstable_by(compare);
        more |= found.len() > limit;
        found.truncate(limit);
        let next = found
            .last()
            .filter(|_| more)
            .map(|(key, name)| Place { key: Key::to_owned(*key), name: (*name).to_owned() });
        Found { names: found.into_iter().map(|(_, name)| name.to_owned()).collect(), next, total }
    }
}

/// The condition, and that a resource is this creator's.
fn created_by(creator: Option<&str>, condition: Condition<String>) -> Condition<String> {
    let Some(creator) = creator else { return condition };
    let is_own = Test { negated: false, wanted: Wanted::Text(creator.to_owned()) };
    Condition::All(vec![Condition::Property(CREATOR.to_owned(), is_own), condition])
}

fn directed(order: SortOrder, left: &(Key<&str>, &str), right: &(Key<&str>, &str)) -> Ordering {
    let turned = |ordering: Ordering| if order == SortOrder::Descending { ordering.reverse() } else { ordering };
    match (left.0, right.0) {
        (Key::Absent, Key::Absent) => turned(left.1.cmp(right.1)),
        (Key::Absent, _) => Ordering::Greater,
        (_, Key::Absent) => Ordering::Less,
        (one, other) => turned(one.compare(&other).then_with(|| left.1.cmp(right.1))),
    }
}

impl Contents {
    /// The property at a path; all below it if it ends in a dot.
    fn numbers(&self, path: &str) -> Vec<Property> {
        if path.ends_with('.') {
            let below = self.properties.range(path.to_owned()..).take_while(|(property, _)| property.starts_with(path));
            return below.map(|(_, number)| *number).collect();
        }
        self.properties.get(path).copied().into_iter().collect()
    }

    fn remove(&mut self, name: &str) {
        self.gone += usize::from(self.documents.remove(name).is_some());
    }

    fn read_all(
        &mut self,
        kind: ResourceKind,
        rows: &dyn Rows,
        record: &dyn Fn(&ResourceRow) -> Result<Value, Error>,
    ) -> Result<(), StoreError> {
        *self = Self::default();
        let mut filter = ResourceFilter { sort: ResourceSort::Name, limit: READ, ..ResourceFilter::new(kind) };
        loop {
            let page = rows.list(&filter)?;
            page.rows.iter().for_each(|row| self.put(row, record));
            match page.next {
                None => return Ok(()),
                next => filter.after = next,
            }
        }
    }

    fn put(&mut self, row: &ResourceRow, record: &dyn Fn(&ResourceRow) -> Result<Value, Error>) {
        let record = match record(row) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!("{} {} cannot be searched: {error}", row.kind.name(), row.name);
                self.remove(&row.name);
                return;
            }
        };
        self.put_record(&row.name, row.creator.as_deref(), &record);
    }

    fn put_record(&mut self, name: &str, creator: Option<&str>, record: &Value) {
        let mut document = Writer::default();
        let mut push = |path: &str, item: usize, value: PropertyValue<'_>| {
            let known = self.properties.get(path).copied();
            let number = known.unwrap_or_else(|| {
                let number = u32::try_from(self.properties.len()).unwrap_or(u32::MAX);
                self.properties.insert(path.to_owned(), number);
                number
            });
            document.push(&mut self.texts, number, item, value);
        };
        properties(record, &mut push);
        if let Some(creator) = creator {
            push(CREATOR, 0, PropertyValue::Text(creator));
        }
        self.documents.insert(name.to_owned(), document.finish());
    }
}

/// A journal whose changes of rows are noted once they are durable.
struct Watched<J> {
    journal: J,
    indexes: Arc<Indexes>,
}

impl<J: Journal> Journal for Watched<J> {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        let version = self.journal.append(batch)?;
        for change in &batch.rows {
            match change {
                RowChange::Put(row) => self.indexes.note(row.kind, &row.name),
                RowChange::Move(progress) => self.indexes.note(progress.kind, &progress.name),
                RowChange::Delete(kind, name) => self.indexes.note(*kind, name),
                // Nothing of these is searched for.
                RowChange::PutCheckpoint(_)
                | RowChange::PutTrial(_)
                | RowChange::MoveTrial(_)
                | RowChange::PutRecord(_) => {}
            }
        }
        Ok(version)
    }

    fn version(&self) -> Result<u64, StoreError> {
        self.journal.version()
    }

    fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError> {
        self.journal.events_after(version, each)
    }

    fn snapshots(&self) -> Box<dyn Snapshots> {
        self.journal.snapshots()
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.journal.snapshot()
    }
}

#[cfg(test)]
mod tests;
