//! `Search` for the kinds that it has.

use serde_json::Value;
use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{Error, Reply, Search, SearchResource};

use super::{
    Api, Caller, EXPERIMENT, Records, TRIAL, TRIAL_COMPONENT, blocking, resource_types, resources::found, token,
    training, tuning,
};
use crate::{
    internal::internal,
    key_ring::Holder,
    search::{Place, SearchIndex},
};

type Record = fn(&Records, &ResourceRow) -> Result<Value, Error>;

/// How a kind is searched.
struct Searchable {
    kind: ResourceKind,
    /// What conditions and order are compared with.
    document: Record,
    /// What is returned.
    record: Record,
    /// Only a change of its row changes a resource's document.
    follows_rows: bool,
}

impl Searchable {
    fn of(resource: SearchResource) -> Option<Self> {
        match resource {
            SearchResource::TrainingJob => Some(Self {
                kind: ResourceKind::TRAINING_JOB,
                document: training::searched,
                record: training::record,
                follows_rows: true,
            }),
            // There are few of them, and their trials change what is told of them without changing
            // their rows.
            SearchResource::TuningJob => Some(Self {
                kind: ResourceKind::TUNING_JOB,
                document: tuning::record,
                record: tuning::record,
                follows_rows: false,
            }),
            SearchResource::Experiment => Some(plain(EXPERIMENT, resource_types::experiment_record)),
            SearchResource::Trial => Some(plain(TRIAL, resource_types::trial_record)),
            SearchResource::TrialComponent => Some(Self {
                document: resource_types::trial_component_document,
                ..plain(TRIAL_COMPONENT, resource_types::trial_component_record)
            }),
            SearchResource::Other => None,
        }
    }
}

/// A kind whose documents are what is returned.
fn plain(kind: ResourceKind, record: Record) -> Searchable {
    Searchable { kind, document: record, record, follows_rows: true }
}

impl Api {
    /// Reads something of the index of trial components, as they are now.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) async fn runs<T: Send + 'static>(
        &self,
        read: impl FnOnce(&SearchIndex) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let index = self.search.of(TRIAL_COMPONENT).cloned();
        let index = index.ok_or_else(|| Error::validation("Trial components cannot be searched."))?;
        let records = self.records.clone();
        blocking(move || {
            let document = |row: &ResourceRow| resource_types::trial_component_document(&records, row);
            index.refresh(&*records.rows, &document).map_err(|error| internal(&error))?;
            Ok(read(&index))
        })
        .await
    }

    pub(super) async fn search(&self, search: Search, caller: &Caller) -> Result<Reply, Error> {
        let resource = search.resource;
        let searched = Searchable::of(resource).and_then(|how| Some((self.search.of(how.kind)?.clone(), how)));
        let Some((index, Searchable { kind, document, record, follows_rows })) = searched else {
            // Clients ask for endpoints and the like and rely on an answer that holds none.
            return Ok(Reply::search(resource, Vec::new(), None, 0));
        };
        let question = token::question(&(resource, &search.condition, &search.sort_by, search.sort_order))?;
        let after = match &search.next_token {
            None => None,
            Some(given) => Some(token::open(&question, given)?.parse::<Place>().map_err(|error| internal(&error))?),
        };
        let limit = usize::try_from(search.max_results).unwrap_or(usize::MAX);
        let records = self.records.clone();
        let is_job = matches!(caller.holder, Holder::Attempt { .. });
        let creator = caller.sees().map(str::to_owned);
        blocking(move || {
            if !follows_rows {
                index.expire();
            }
            index.refresh(&*records.rows, &|row| document(&records, row)).map_err(|error| internal(&error))?;
            let (sort_by, order) = (search.sort_by.as_str(), search.sort_order);
            let page = index.find(creator.as_deref(), search.condition, sort_by, order, after.as_ref(), limit);
            let mut found_records = Vec::with_capacity(page.names.len());
            for name in &page.names {
                // One that was deleted since is not found any more.
                if let Some(row) = found(&*records.rows, kind, name)? {
                    let mut record = record(&records, &row)?;
                    // A job's keys do not open other jobs.
                    if is_job && let Some(record) = record.as_object_mut() {
                        record.shift_remove("SourceDetail");
                    }
                    found_records.push(record);
                }
            }
            let next_token = page.next.map(|place| token::seal(&question, &place.to_string()));
            Ok(Reply::search(resource, found_records, next_token.as_deref(), page.total))
        })
        .await
    }
}
