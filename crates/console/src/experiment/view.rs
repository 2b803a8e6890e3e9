//! What of an experiment's runs is looked at. It stands in the address, so that it can be shared.

use shoal_wire::{Condition, SortOrder, Test, Wanted};

use super::{
    column::{Column, Kind},
    filter::Filter,
};
use crate::{RunProperty, RunsQuery, query::Query, query::address};

/// Runs of a page.
pub(super) const PAGE: usize = 100;
/// Columns of each kind that are shown if none are chosen.
const PARAMETERS: usize = 5;
const METRICS: usize = 4;
/// What the platform supplies begins so; it is shown if it is chosen.
const OF_PLATFORM: &str = "SageMaker.";
/// A metric that is an axis of others.
const EPOCH: &str = "epoch";

/// A view.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) experiment: String,
    pub(super) search: String,
    pub(super) filters: Vec<Filter>,
    /// Chosen columns; empty for those that say most.
    pub(super) columns: Vec<Column>,
    pub(super) sort: Column,
    pub(super) descending: bool,
    pub(super) group: Option<Column>,
    /// From 1.
    pub(super) page: usize,
}

impl View {
    /// The view of an address, and what is wrong with it.
    pub(super) fn read(experiment: &str, query: &Query) -> (Self, Option<String>) {
        let column = |name| query.get(name).and_then(Column::parse);
        let (filters, complaint) = Filter::read(query);
        let sort = column("sort");
        let view = Self {
            experiment: experiment.to_owned(),
            search: query.get("q").unwrap_or_default().to_owned(),
            filters,
            columns: query.all("col").into_iter().filter_map(Column::parse).collect(),
            descending: query.get("order").map_or(sort.is_none(), |order| order == "descending"),
            sort: sort.unwrap_or(Column::of(Kind::Created)),
            group: column("group"),
            page: query.number("page").and_then(|page| usize::try_from(page).ok()).unwrap_or(1).max(1),
        };
        (view, complaint)
    }

    /// The pairs of its address.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("q", self.search.clone())];
        for Filter { column, comparison, value } in &self.filters {
            pairs.extend([("where", column.to_string()), ("is", (*comparison).to_owned()), ("value", value.clone())]);
        }
        pairs.extend(self.columns.iter().map(|column| ("col", column.to_string())));
        if self.sort.kind != Kind::Created || !self.descending {
            let order = if self.descending { "descending" } else { "ascending" };
            pairs.extend([("sort", self.sort.to_string()), ("order", order.to_owned())]);
        }
        pairs.extend(self.group.iter().map(|column| ("group", column.to_string())));
        if self.page > 1 {
            pairs.push(("page", self.page.to_string()));
        }
        pairs.retain(|(_, value)| !value.is_empty());
        pairs
    }

    /// Its pairs without some, for a form that has fields for these, and begins at the first page.
    pub(super) fn hidden(&self, without: &[&str]) -> Vec<(&'static str, String)> {
        let mut pairs = self.pairs();
        pairs.retain(|(name, _)| *name != "page" && !without.contains(name));
        pairs
    }

    pub(super) fn address(&self) -> String {
        let pairs = self.pairs();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        address(&format!("/console/experiments/{}", self.experiment), &pairs)
    }

    /// The same from the first page on.
    pub(super) fn first_page(&self) -> Self {
        Self { page: 1, ..self.clone() }
    }

    pub(super) fn condition(&self) -> Condition<String> {
        let test = |path: &str, wanted| Condition::Property(path.to_owned(), Test { negated: false, wanted });
        let mut parts = vec![test("Parents.ExperimentName", Wanted::Name(self.experiment.clone()))];
        if !self.search.is_empty() {
            let names = ["TrialComponentName", "DisplayName"];
            parts.push(Condition::Any(names.map(|name| test(name, Wanted::Part(self.search.clone()))).to_vec()));
        }
        parts.extend(self.filters.iter().map(Filter::condition));
        Condition::All(parts)
    }

    /// What the index is asked for with these columns.
    pub(super) fn query(&self, columns: Vec<Vec<String>>, limit: usize) -> RunsQuery {
        RunsQuery {
            condition: self.condition(),
            group: self.group.as_ref().map(Column::paths).unwrap_or_default(),
            order: (self.sort.paths(), if self.descending { SortOrder::Descending } else { SortOrder::Ascending }),
            columns,
            from: (self.page - 1) * PAGE,
            limit,
        }
    }

    /// The columns that are shown: the chosen ones, or those by which runs differ.
    pub(super) fn shown(&self, properties: &[RunProperty]) -> Vec<Column> {
        if !self.columns.is_empty() {
            return self.columns.clone();
        }
        let of = |kind: Kind, varies: bool, most: usize| {
            let found = properties.iter().filter(|it| it.varies == varies || !varies);
            let mut columns: Vec<Column> = found.filter_map(|it| Column::of_path(&it.path)).collect();
            columns
                .retain(|column| column.kind == kind && !column.name.starts_with(OF_PLATFORM) && column.name != EPOCH);
            columns.dedup();
            columns.truncate(most);
            columns
        };
        let mut parameters = of(Kind::Parameter, true, PARAMETERS);
        if parameters.is_empty() {
            parameters = of(Kind::Parameter, false, PARAMETERS);
        }
        let facts = [Kind::Status, Kind::Created].map(Column::of);
        facts.into_iter().chain(of(Kind::Last, false, METRICS)).chain(parameters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> View {
        View::read("e", &Query::parse(text)).0
    }

    #[test]
    fn an_address_is_the_whole_view() {
        for text in [
            "",
            "q=a+b&where=param%3Aeta&is=lt&value=0.5&col=status&col=last%3Aloss&sort=last%3Aloss&order=ascending\
             &group=tag%3Ateam&page=3",
            "sort=created&order=ascending",
        ] {
            let view = read(text);
            let expected = if text.is_empty() { String::new() } else { format!("?{text}") };
            assert_eq!(view.address(), format!("/console/experiments/e{expected}"));
        }
        let view = read("sort=last%3Aloss&page=2");
        assert_eq!((view.descending, view.page, view.query(Vec::new(), 9).from), (false, 2, PAGE));
        assert_eq!(view.hidden(&["sort"]), [("order", "ascending".to_owned())]);
        assert_eq!(read("page=0").page, 1);
    }

    #[test]
    fn columns_that_tell_runs_apart_are_shown() {
        let property = |path: &str, varies| RunProperty { path: path.to_owned(), varies };
        let properties = [
            property("Metrics.loss.Last", true),
            property("Metrics.loss.Max", true),
            property("Parameters.SageMaker.InstanceCount.NumberValue", true),
            property("Parameters.eta.NumberValue", true),
            property("Parameters.eta.StringValue", true),
            property("Parameters.kind.StringValue", false),
            property("Tags.team", true),
        ];
        let shown = |view: View, properties: &[RunProperty]| {
            view.shown(properties).iter().map(Column::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(read(""), &properties), "status created last:loss param:eta");
        assert_eq!(shown(read(""), &properties[5..6]), "status created param:kind");
        assert_eq!(shown(read("col=tag%3Ateam"), &properties), "tag:team");
    }
}
