//! `Search` for training jobs.

use shoal_wire::{Error, Reply, Search, SearchResource};

use super::{
    Api, blocking, token,
    training::{record, row_of, searched},
};
use crate::{admission::internal, search::Place};

impl Api {
    pub(super) async fn search(&self, search: Search) -> Result<Reply, Error> {
        let resource = search.resource;
        if resource != SearchResource::TrainingJob {
            // Clients ask for experiments and the like and rely on an answer that holds none.
            return Ok(Reply::Search { resource, records: Vec::new(), next_token: None, total: 0 });
        }
        let question = format!("{:?} {} {:?}", search.condition, search.sort_by, search.sort_order);
        let after = match &search.next_token {
            None => None,
            Some(given) => Some(token::open(&question, given)?.parse::<Place>().map_err(|error| internal(&error))?),
        };
        let (world, index) = (self.world.clone(), self.search.clone());
        blocking(move || {
            index.refresh(&*world.rows, &searched).map_err(|error| internal(&error))?;
            let limit = usize::try_from(search.max_results).unwrap_or(usize::MAX);
            let page = index.find(search.condition, &search.sort_by, search.sort_order, after.as_ref(), limit);
            let mut records = Vec::with_capacity(page.names.len());
            for name in &page.names {
                // One that was deleted since is not found any more.
                if let Some(row) = row_of(&world, name)? {
                    records.push(record(&world, &row)?);
                }
            }
            let next_token = page.next.map(|place| token::seal(&question, &place.to_string()));
            Ok(Reply::Search { resource, records, next_token, total: page.total })
        })
        .await
    }
}
