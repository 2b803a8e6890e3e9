//! `Search` for training jobs and tuning jobs.

use std::collections::BTreeMap;

use serde_json::Value;
use shoal_store::{ResourceFilter, ResourceKind, ResourceSort};
use shoal_wire::{Error, Reply, Search, SearchResource};

use super::{
    Api, blocking,
    resources::found,
    token,
    training::{record, searched},
    tuning,
};
use crate::{
    admission::internal,
    effects::World,
    search::{Place, SearchIndex},
};

impl Api {
    pub(super) async fn search(&self, search: Search) -> Result<Reply, Error> {
        let resource = search.resource;
        if resource == SearchResource::Other {
            // Clients ask for experiments and the like and rely on an answer that holds none.
            return Ok(Reply::Search { resource, records: Vec::new(), next_token: None, total: 0 });
        }
        let question = format!("{resource:?} {:?} {} {:?}", search.condition, search.sort_by, search.sort_order);
        let after = match &search.next_token {
            None => None,
            Some(given) => Some(token::open(&question, given)?.parse::<Place>().map_err(|error| internal(&error))?),
        };
        let limit = usize::try_from(search.max_results).unwrap_or(usize::MAX);
        let (world, index) = (self.world.clone(), self.search.clone());
        if resource == SearchResource::TuningJob {
            return blocking(move || {
                // There are few of them, and their trials change what is told of them without changing their rows.
                let mut found = tunings(&world)?;
                let page = SearchIndex::of(&found).find(search.condition, &search.sort_by, search.sort_order, after.as_ref(), limit);
                let records = page.names.iter().filter_map(|name| found.remove(name)).collect();
                let next_token = page.next.map(|place| token::seal(&question, &place.to_string()));
                Ok(Reply::Search { resource, records, next_token, total: page.total })
            })
            .await;
        }
        blocking(move || {
            index.refresh(&*world.rows, &searched).map_err(|error| internal(&error))?;
            let page = index.find(search.condition, &search.sort_by, search.sort_order, after.as_ref(), limit);
            let mut records = Vec::with_capacity(page.names.len());
            for name in &page.names {
                // One that was deleted since is not found any more.
                if let Some(row) = found(&world, ResourceKind::TRAINING_JOB, name)? {
                    records.push(record(&world, &row)?);
                }
            }
            let next_token = page.next.map(|place| token::seal(&question, &place.to_string()));
            Ok(Reply::Search { resource, records, next_token, total: page.total })
        })
        .await
    }
}

/// All tuning jobs by name, as Search looks at them.
fn tunings(world: &World) -> Result<BTreeMap<String, Value>, Error> {
    let mut all = BTreeMap::new();
    let mut filter = ResourceFilter { sort: ResourceSort::Name, limit: 1000, ..ResourceFilter::new(ResourceKind::TUNING_JOB) };
    loop {
        let page = world.rows.list(&filter).map_err(|error| internal(&error))?;
        for row in page.rows {
            all.insert(row.name.clone(), tuning::record(world, &row)?);
        }
        match page.next {
            None => return Ok(all),
            next => filter.after = next,
        }
    }
}
