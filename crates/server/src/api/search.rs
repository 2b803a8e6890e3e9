//! `Search` for the kinds that it has.

use serde_json::Value;
use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{Error, Reply, Search, SearchResource};

use super::{Api, Records, blocking, resources::found, token, training, tuning};
use crate::{admission::internal, search::Place};

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
            SearchResource::Other => None,
        }
    }
}

impl Api {
    pub(super) async fn search(&self, search: Search) -> Result<Reply, Error> {
        let resource = search.resource;
        let searched = Searchable::of(resource).and_then(|how| Some((self.search.of(how.kind)?.clone(), how)));
        let Some((index, Searchable { kind, document, record, follows_rows })) = searched else {
            // Clients ask for experiments and the like and rely on an answer that holds none.
            return Ok(Reply::search(resource, Vec::new(), None, 0));
        };
        let question = token::question(&(resource, &search.condition, &search.sort_by, search.sort_order))?;
        let after = match &search.next_token {
            None => None,
            Some(given) => Some(token::open(&question, given)?.parse::<Place>().map_err(|error| internal(&error))?),
        };
        let limit = usize::try_from(search.max_results).unwrap_or(usize::MAX);
        let records = self.records.clone();
        blocking(move || {
            if !follows_rows {
                index.expire();
            }
            index.refresh(&*records.rows, &|row| document(&records, row)).map_err(|error| internal(&error))?;
            let page = index.find(search.condition, &search.sort_by, search.sort_order, after.as_ref(), limit);
            let mut found_records = Vec::with_capacity(page.names.len());
            for name in &page.names {
                // One that was deleted since is not found any more.
                if let Some(row) = found(&*records.rows, kind, name)? {
                    found_records.push(record(&records, &row)?);
                }
            }
            let next_token = page.next.map(|place| token::seal(&question, &place.to_string()));
            Ok(Reply::search(resource, found_records, next_token.as_deref(), page.total))
        })
        .await
    }
}
