//! The list of training jobs.

use askama::Template;
use futures::future::join_all;
use http::Response;
use shoal_plane::JobView;
use shoal_store::{Point, ResourceFilter, ResourceRow, ResourceSort, SortOrder};
use shoal_wire::{CreateTrainingJob, Stored};

use super::{
    Console, Visit, amounts, blocking,
    counts::group_filter,
    frame::{Frame, PageError, rendered},
    job::{program, why_it_waits},
    listed::{Listed, Position},
    now_ms,
    query::address,
    responses::Body,
    sources::Sources,
    status::{Badge, GROUPS, Group, badge},
};

/// Points of a row's little curve.
const SKETCH: u32 = 24;

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    view: View,
    chips: Vec<Chip>,
    columns: Vec<Column>,
    lines: Vec<Line>,
    /// How many jobs the view has in all.
    matching: u64,
    /// The server has no job at all.
    fresh: bool,
    newer: Option<String>,
    older: Option<String>,
    /// Some job shown is not over.
    live: bool,
}

/// What of the list is looked at; it stands in the address.
#[derive(Debug, Clone, Default)]
struct View {
    search: String,
    group: Option<Group>,
    sort: &'static str,
    descending: bool,
}

/// A group of jobs to choose.
struct Chip {
    label: &'static str,
    kind: &'static str,
    count: String,
    address: String,
    chosen: bool,
}

struct Column {
    label: &'static str,
    class: &'static str,
    /// Another click's order, for columns that one can sort by.
    address: Option<String>,
    /// `ascending` or `descending`.
    sorted: Option<&'static str>,
}

struct Line {
    name: String,
    badge: Badge,
    /// Why it waits or has failed.
    detail: String,
    program: String,
    instances: String,
    metric: Option<(String, String)>,
    /// Points of a polyline in a box of 96 x 24.
    sketch: String,
    created_ms: u64,
    duration: Option<u64>,
    /// Since when it runs, while it does.
    since_ms: Option<u64>,
}

impl View {
    fn of(visit: &Visit) -> Self {
        let query = &visit.query;
        Self {
            search: query.get("q").unwrap_or_default().to_owned(),
            group: GROUPS.into_iter().find(|group| query.get("status") == Some(group.key)),
            sort: ["name", "status"].into_iter().find(|key| query.get("sort") == Some(key)).unwrap_or("created"),
            descending: query.get("order").map_or(query.get("sort").is_none(), |order| order == "descending"),
        }
    }

    fn address(&self, more: &[(&str, &str)]) -> String {
        let group = self.group.map_or("", |group| group.key);
        let by_default = self.sort == "created" && self.descending;
        let sort = if by_default { "" } else { self.sort };
        let order = if by_default { "" } else { order_name(self.descending) };
        address(
            "/console",
            &[&[("q", self.search.as_str()), ("status", group), ("sort", sort), ("order", order)], more].concat(),
        )
    }

    fn search(&self) -> Option<&str> {
        Some(self.search.as_str()).filter(|text| !text.is_empty())
    }

    fn filter(&self) -> ResourceFilter {
        ResourceFilter {
            sort: self.job_sort(),
            order: if self.descending { SortOrder::Descending } else { SortOrder::Ascending },
            ..group_filter(self.group, self.search())
        }
    }

    fn job_sort(&self) -> ResourceSort {
        match self.sort {
            "name" => ResourceSort::Name,
            "status" => ResourceSort::Status,
            _ => ResourceSort::CreationTime,
        }
    }
}

fn order_name(descending: bool) -> &'static str {
    if descending { "descending" } else { "ascending" }
}

impl Console {
    pub(super) async fn jobs_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let view = View::of(visit);
        let position = Position::of(visit);
        let (sources, wanted) = (self.sources.clone(), view.clone());
        let (version, counts) = (*self.sources.version.borrow(), self.counts.clone());
        let (listed, counts) = blocking(move || {
            let counts = counts.of(&*sources.rows, wanted.search(), version)?;
            Ok((Listed::read(&sources, wanted.filter(), position)?, counts))
        })
        .await?;

        let shown = join_all(listed.rows.iter().map(|row| self.current_view(row))).await;
        let rows: Vec<_> = listed.rows.into_iter().zip(shown).collect();
        let sources = self.sources.clone();
        let lines = blocking(move || {
            rows.into_iter().map(|(row, view)| line(&sources, &row, &view?)).collect::<Result<Vec<_>, _>>()
        })
        .await?;

        let all: u64 = counts.iter().sum();
        let matching = view.group.map_or(all, |chosen| counted(&counts, chosen));
        let fresh = all == 0 && view.search.is_empty();
        let page = JobsPage {
            chips: chips(&view, &counts),
            columns: columns(&view),
            live: lines.iter().any(|line| line.since_ms.is_some() || line.badge.kind == "waiting"),
            lines,
            matching,
            fresh,
            newer: listed.before.map(|cursor| view.address(&[("before", &cursor.to_string())])),
            older: listed.after.map(|cursor| view.address(&[("after", &cursor.to_string())])),
            frame: visit.frame("Training jobs"),
            view,
        };
        Ok(rendered(&page))
    }

    /// A row's view as of now: only the core knows the place of a job that waits.
    pub(super) async fn current_view(&self, row: &ResourceRow) -> Result<JobView, PageError> {
        let stored: JobView = serde_json::from_slice(&row.view).map_err(|error| PageError::ours(&error))?;
        match &stored.pending {
            Some(_) => Ok(self.sources.server.current_view(&row.name).await.unwrap_or(stored)),
            None => Ok(stored),
        }
    }
}

fn line(sources: &Sources, row: &ResourceRow, view: &JobView) -> Result<Line, PageError> {
    // A request of an earlier version that this one refuses costs its line these two columns alone.
    let request = CreateTrainingJob::restore(&row.spec, &row.request).ok();
    let program_of = |request: &CreateTrainingJob| {
        let (algorithm, script) = (&request.algorithm, request.script.as_ref().map(|script| script.program.as_str()));
        program(sources, algorithm.training_image.as_deref(), script, &algorithm.entrypoint, &algorithm.arguments)
    };
    let badge = badge(view);
    let detail = match (&view.failure_reason, &view.pending) {
        (Some(reason), _) => shoal_wire::headline(reason).into_owned(),
        (None, Some(pending)) => {
            let (place, lacks) = why_it_waits(pending);
            format!("{place}: {lacks}")
        }
        (None, None) => String::new(),
    };
    let metrics = sources.telemetry.metrics(&row.name)?;
    // What is validated says more than what is trained on.
    let chosen = metrics.iter().find(|name| name.contains("val")).or(metrics.first());
    let points = match chosen {
        Some(metric) => sources.telemetry.sketch_points(&row.name, metric, SKETCH)?,
        None => Vec::new(),
    };
    let latest = points.iter().rev().find(|point| point.value.is_finite());
    let end_ms = view.training_end.map_or_else(now_ms, |end| end.0);
    Ok(Line {
        name: row.name.clone(),
        badge,
        detail,
        program: request.as_ref().map(program_of).unwrap_or_default(),
        instances: request.as_ref().map_or_else(String::new, |request| instances(&request.resources.types())),
        metric: chosen.zip(latest).map(|(name, point)| (name.clone(), amounts::value(point.value))),
        sketch: sketch(&points),
        created_ms: row.created_ms,
        duration: view.training_start.map(|start| end_ms.saturating_sub(start.0)),
        since_ms: view.training_start.filter(|_| view.training_end.is_none()).map(|start| start.0),
    })
}

/// `2 x ml.m5.large`.
pub(super) fn instances(types: &[(&str, u32)]) -> String {
    let of_type = |(kind, count): &(&str, u32)| {
        let kind = kind.strip_prefix("ml.").unwrap_or(kind);
        if *count == 1 { kind.to_owned() } else { format!("{count} × {kind}") }
    };
    Vec::from_iter(types.iter().map(of_type)).join(" + ")
}

/// A series as a polyline in a box of 96 x 24, with a margin for the stroke.
fn sketch(points: &[Point]) -> String {
    let finite: Vec<_> = points.iter().filter(|point| point.value.is_finite()).collect();
    let bounds = |values: &dyn Fn(&Point) -> f64| {
        let low = finite.iter().map(|point| values(point)).fold(f64::INFINITY, f64::min);
        let high = finite.iter().map(|point| values(point)).fold(f64::NEG_INFINITY, f64::max);
        (low, if high > low { high - low } else { 1.0 })
    };
    if finite.len() < 2 {
        return String::new();
    }
    let ((left, width), (low, height)) = (bounds(&|point| point.at_ms as f64), bounds(&|point| point.value));
    let place = |point: &&&Point| {
        format!(
            "{:.1},{:.1}",
            2.0 + 92.0 * (point.at_ms as f64 - left) / width,
            21.0 - 18.0 * (point.value - low) / height
        )
    };
    finite.iter().map(|point| place(&point)).collect::<Vec<_>>().join(" ")
}

fn counted(counts: &[u64], group: Group) -> u64 {
    GROUPS.iter().zip(counts).find(|(known, _)| known.key == group.key).map_or(0, |(_, count)| *count)
}

fn chips(view: &View, counts: &[u64]) -> Vec<Chip> {
    let chip = |group: Option<Group>, count: u64| Chip {
        label: group.map_or("All", |group| group.label),
        kind: group.map_or("all", |group| group.key),
        count: amounts::count(count),
        address: View { group, ..view.clone() }.address(&[]),
        chosen: view.group.map(|chosen| chosen.key) == group.map(|group| group.key),
    };
    let groups = GROUPS.into_iter().zip(counts).filter(|(group, count)| group.always || **count > 0);
    std::iter::once(chip(None, counts.iter().sum()))
        .chain(groups.map(|(group, count)| chip(Some(group), *count)))
        .collect()
}

fn columns(view: &View) -> Vec<Column> {
    let column = |label, class, sort: Option<(&'static str, bool)>| Column {
        label,
        class,
        address: sort.map(|(sort, first)| {
            let descending = if view.sort == sort { !view.descending } else { first };
            View { sort, descending, ..view.clone() }.address(&[])
        }),
        sorted: sort.filter(|(sort, _)| view.sort == *sort).map(|_| order_name(view.descending)),
    };
    vec![
        column("Status", "status", Some(("status", false))),
        column("Name", "name", Some(("name", false))),
        column("Metric", "metric", None),
        column("Program", "program", None),
        column("Instances", "instances", None),
        column("Time", "duration", None),
        column("Created", "created", Some(("created", true))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_fills_its_box() {
        let point = |at_ms, value| Point { at_ms, value, host: None };
        assert_eq!(
            sketch(&[point(10, 1.0), point(20, f64::NAN), point(30, 3.0), point(50, 2.0)]),
            "2.0,21.0 48.0,3.0 94.0,12.0"
        );
        assert_eq!(sketch(&[point(10, 1.0), point(20, 1.0)]), "2.0,21.0 94.0,21.0");
        assert_eq!(sketch(&[point(10, 1.0)]), "");
    }
}
