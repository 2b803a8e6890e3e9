//! The list of experiments.

use std::collections::BTreeMap;

use askama::Template;
use http::Response;
use serde_json::Value;
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, ResourceSort, SortOrder};

use super::{
    Console, Visit, amounts, blocking,
    frame::{Frame, PageError, rendered},
    listed::{Listed, Position},
    query::address,
    responses::Body,
};

const EXPERIMENT: ResourceKind = ResourceKind::new("experiment");

#[derive(Template)]
#[template(path = "experiments.html")]
struct ExperimentsPage {
    frame: Frame,
    search: String,
    lines: Vec<Line>,
    /// The server has no experiment at all.
    fresh: bool,
    older: Option<String>,
    /// Not the first page.
    later: bool,
}

struct Line {
    name: String,
    /// Its display name, if that is another one.
    title: String,
    note: String,
    runs: String,
    tags: Vec<String>,
    created_ms: u64,
}

impl Console {
    pub(super) async fn experiments_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let search = visit.query.get("q").unwrap_or_default().to_owned();
        let position = Position::of(visit);
        let later = !position.is_first();
        let filter = ResourceFilter {
            name_contains: Some(search.to_lowercase()).filter(|text| !text.is_empty()),
            sort: ResourceSort::CreationTime,
            order: SortOrder::Descending,
            ..ResourceFilter::new(EXPERIMENT)
        };
        let counts = self.sources.server.runs_of_experiments().await?;
        let sources = self.sources.clone();
        let listed = blocking(move || Listed::read(&sources, filter, position)).await?;
        let lines: Vec<Line> = listed.rows.iter().map(|row| line(row, &counts)).collect();
        let page = ExperimentsPage {
            frame: visit.frame("Experiments"),
            fresh: lines.is_empty() && search.is_empty() && !later,
            lines,
            older: listed.after.map(|cursor| {
                address("/console/experiments", &[("q", search.as_str()), ("after", &cursor.to_string())])
            }),
            later,
            search,
        };
        Ok(rendered(&page))
    }
}

fn line(row: &ResourceRow, counts: &BTreeMap<String, usize>) -> Line {
    let request: Value = serde_json::from_slice(&row.request).unwrap_or_default();
    let text = |member: &str| request[member].as_str().unwrap_or_default().to_owned();
    let name = text("ExperimentName");
    let tags = shoal_wire::tags::from_json(&row.tags).unwrap_or_default();
    Line {
        title: Some(text("DisplayName")).filter(|title| *title != name).unwrap_or_default(),
        note: text("Description"),
        runs: amounts::count(counts.get(&name).copied().unwrap_or(0) as u64),
        tags: tags.into_iter().map(|tag| format!("{}: {}", tag.key, tag.value)).collect(),
        created_ms: row.created_ms,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_names_as_they_were_given() {
        let row = ResourceRow {
            request: br#"{"ExperimentName": "Trees", "DisplayName": "All trees", "Description": "d"}"#.to_vec(),
            tags: br#"[{"Key": "team", "Value": "blue"}]"#.to_vec(),
            ..ResourceRow::new(EXPERIMENT, "trees")
        };
        let found = line(&row, &BTreeMap::from([("Trees".to_owned(), 1234)]));
        assert_eq!((&*found.name, &*found.title, &*found.note, &*found.runs), ("Trees", "All trees", "d", "1,234"));
        assert_eq!(found.tags, ["team: blue"]);
        assert_eq!(line(&row, &BTreeMap::new()).runs, "0");
    }
}
