//! Lists of resources: filters, order and page are the same members for every kind.

use std::sync::Arc;

use serde_json::{Map, Value};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, ResourceSort, Rows, SortOrder};
use shoal_wire::{Call, Error, timestamp};

use super::{blocking, resources::place, token};
use crate::internal::internal;

/// Items of a page by default.
const DEFAULT_RESULTS: usize = 10;

/// A kind's order where a request gives none.
#[derive(Debug, Clone, Copy)]
pub(super) struct DefaultOrder {
    /// Without `SortBy`.
    pub(super) sort: ResourceSort,
    /// Without `SortBy` and `SortOrder`.
    pub(super) order: SortOrder,
    /// With `SortBy`, without `SortOrder`.
    pub(super) order_of_sort: SortOrder,
}

/// The members of a validated input.
pub(super) fn members(call: &Call) -> Result<&Map<String, Value>, Error> {
    call.input.as_object().ok_or_else(|| Error::validation("The request is not an object."))
}

/// A List request.
pub(super) struct Listing {
    pub(super) filter: ResourceFilter,
    /// Distinguishes this list, without its page, from others.
    question: String,
}

impl Listing {
    /// Of a validated input. Members that are not everybody's are read by the caller, and named
    /// here as `further`, since they select rows, too.
    ///
    /// # Errors
    /// The token is not one of this list.
    pub(super) fn read(
        kind: ResourceKind,
        by_default: DefaultOrder,
        input: &Map<String, Value>,
        further: &[&str],
    ) -> Result<Self, Error> {
        let text = |member: &str| input.get(member).and_then(Value::as_str);
        let time = |members: [&str; 2]| {
            members.iter().find_map(|member| input.get(*member)?.as_f64()).map(timestamp::from_seconds)
        };
        let sort = match text("SortBy") {
            None => by_default.sort,
            Some("Name") => ResourceSort::Name,
            Some("Status") => ResourceSort::Status,
            Some(_) => ResourceSort::CreationTime,
        };
        let order = match text("SortOrder") {
            None if text("SortBy").is_none() => by_default.order,
            None => by_default.order_of_sort,
            Some("Descending") => SortOrder::Descending,
            Some(_) => SortOrder::Ascending,
        };
        let filter = ResourceFilter {
            name_contains: text("NameContains").map(str::to_owned),
            status: text("StatusEquals").map(str::to_owned),
            created_after_ms: time(["CreationTimeAfter", "CreatedAfter"]),
            created_before_ms: time(["CreationTimeBefore", "CreatedBefore"]),
            modified_after_ms: time(["LastModifiedTimeAfter", "LastModifiedAfter"]),
            modified_before_ms: time(["LastModifiedTimeBefore", "LastModifiedBefore"]),
            sort,
            order,
            limit: 0,
            ..ResourceFilter::new(kind)
        };
        let further: Vec<_> = further.iter().map(|member| input.get(*member)).collect();
        let question = token::question(&(&filter, &further))?;
        let limit = input.get("MaxResults").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok());
        let (after, limit) = (place(&question, text("NextToken"))?, limit.unwrap_or(DEFAULT_RESULTS));
        Ok(Self { filter: ResourceFilter { after, limit, ..filter }, question })
    }

    /// The page's items, and the token of the next one.
    ///
    /// # Errors
    /// The storage's, and those of `summaries`.
    pub(super) async fn page<T: Send + 'static>(
        self,
        rows: Arc<dyn Rows>,
        summaries: impl FnOnce(Vec<ResourceRow>) -> Result<Vec<T>, Error> + Send + 'static,
    ) -> Result<(Vec<T>, Option<String>), Error> {
        let Self { filter, question } = self;
        blocking(move || {
            let page = rows.list(&filter).map_err(|error| internal(&error))?;
            Ok((summaries(page.rows)?, page.next.map(|cursor| token::seal(&question, &cursor.to_string()))))
        })
        .await
    }
}

/// Members that [`Listing::read`] and the page follow.
#[cfg(test)]
pub(super) const LIST_MEMBERS: [&str; 14] = [
    "SortBy",
    "SortOrder",
    "NextToken",
    "MaxResults",
    "NameContains",
    "StatusEquals",
    "CreationTimeAfter",
    "CreationTimeBefore",
    "CreatedAfter",
    "CreatedBefore",
    "LastModifiedTimeAfter",
    "LastModifiedTimeBefore",
    "LastModifiedAfter",
    "LastModifiedBefore",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{training, tuning};

    const JOBS: ResourceKind = ResourceKind::TRAINING_JOB;

    fn read(input: &Value) -> Result<Listing, Error> {
        let members = input.as_object().expect("an object");
        Listing::read(JOBS, training::DEFAULT_ORDER, members, &["WarmPoolStatusEquals"])
    }

    #[test]
    fn filters_and_defaults_are_those_of_the_request() {
        let newest = ResourceFilter { order: SortOrder::Descending, limit: 10, ..ResourceFilter::new(JOBS) };
        assert_eq!(read(&json!({})).unwrap().filter, newest);
        let some = json!({"MaxResults": 3, "CreationTimeAfter": 1_795_245_868.25, "NameContains": "a", "StatusEquals": "Failed", "SortBy": "Name"});
        let expected = ResourceFilter {
            limit: 3,
            created_after_ms: Some(1_795_245_868_250),
            name_contains: Some("a".to_owned()),
            status: Some("Failed".to_owned()),
            sort: ResourceSort::Name,
            order: SortOrder::Ascending,
            ..newest.clone()
        };
        assert_eq!(read(&some).unwrap().filter, expected);
        let times = json!({"CreationTimeBefore": 1, "LastModifiedTimeAfter": 2, "LastModifiedTimeBefore": 3.5, "SortOrder": "Ascending"});
        let between = ResourceFilter {
            created_before_ms: Some(1000),
            modified_after_ms: Some(2000),
            modified_before_ms: Some(3500),
            order: SortOrder::Ascending,
            ..newest
        };
        assert_eq!(read(&times).unwrap().filter, between);
        let tunings = Listing::read(ResourceKind::TUNING_JOB, tuning::DEFAULT_ORDER, &Map::new(), &[]).unwrap().filter;
        assert_eq!((tunings.sort, tunings.order), (ResourceSort::Name, SortOrder::Ascending));
    }

    #[test]
    fn a_token_is_of_one_list_and_of_any_page_size() {
        let token = |input: &Value| token::seal(&read(input).unwrap().question, "5/a");
        let asked = json!({"SortBy": "CreationTime", "NameContains": "a"});
        let again = |changes: Value| {
            let mut input = asked.clone();
            input.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            input["NextToken"] = Value::from(token(&asked));
            read(&input).map(|listing| listing.filter.after.map(|cursor| cursor.to_string()))
        };
        assert_eq!(again(json!({"MaxResults": 7})), Ok(Some("5/a".to_owned())));
        for others in [
            json!({"NameContains": "b"}),
            json!({"SortOrder": "Descending"}),
            json!({"WarmPoolStatusEquals": "Reused"}),
        ] {
            assert!(again(others.clone()).is_err(), "{others}");
        }
    }
}
