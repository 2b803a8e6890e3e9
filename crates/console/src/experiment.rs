//! An experiment's page: its runs (trial components, those of training jobs among them) as a table.

mod actions;
pub(crate) mod column;
mod filter;
mod view;

use askama::Template;
use http::Response;
use serde_json::{Value, json};
use shoal_wire::arn;

use super::{
    Cell, Console, RunCells, RunProperty, RunsPage, Visit,
    about::{About, Noted, about},
    amounts,
    frame::{Frame, PageError, rendered},
    responses::Body,
};
use column::{Column, Kind, Shown};
use filter::COMPARISONS;
use view::{PAGE, View};

#[derive(Template)]
#[template(path = "experiment.html")]
struct ExperimentPage {
    frame: Frame,
    name: String,
    about: About,
    view: View,
    complaint: Option<String>,
    chips: Vec<Chip>,
    heads: Vec<Head>,
    lines: Vec<Line>,
    /// The experiment has no run at all.
    fresh: bool,
    matching: String,
    /// Sections of columns to choose.
    choices: Vec<Section>,
    /// Columns that one can filter and group by.
    filterable: Vec<(String, String)>,
    groupable: Vec<(String, String, bool)>,
    comparisons: &'static [(&'static str, &'static str)],
    address: String,
    newer: Option<String>,
    older: Option<String>,
    pages: String,
    /// Some run shown is not over.
    live: bool,
}

/// A filter, and the address without it.
struct Chip {
    text: String,
    without: String,
}

struct Head {
    label: String,
    class: &'static str,
    /// Its values are numbers.
    is_number: bool,
    address: String,
    sorted: Option<&'static str>,
}

struct Section {
    title: &'static str,
    /// Key, label, whether it is shown.
    columns: Vec<(String, String, bool)>,
}

struct Line {
    /// Where a group begins: its name, how many runs it has, the address of these alone.
    group: Option<(Shown, String, String)>,
    name: String,
    title: String,
    /// Of a training job, its name.
    job: Option<String>,
    address: String,
    kind: &'static str,
    cells: Vec<(&'static str, Shown)>,
}

/// What every line needs, before the columns of the table.
const ALWAYS: [&str; 4] = ["TrialComponentName", "DisplayName", "Source.SourceArn", "Status.PrimaryStatus"];

impl Console {
    pub(super) async fn experiment_page(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let described = self.described_experiment(name).await?;
        let (view, complaint) = View::read(described["ExperimentName"].as_str().unwrap_or(name), &visit.query);
        let (columns, found) = self.runs_of(&view).await?;
        let about = about(self, Noted::Experiment, &described).await?;
        Ok(rendered(&page(visit.frame(name), view, complaint, about, &columns, &found)))
    }

    /// The experiment's description, by DescribeExperiment.
    async fn described_experiment(&self, name: &str) -> Result<Value, PageError> {
        let call = self.sources.server.call("SageMaker.DescribeExperiment", json!({"ExperimentName": name}));
        call.await.map_err(|error| match error.code {
            shoal_wire::ErrorCode::ResourceNotFound | shoal_wire::ErrorCode::ValidationException => {
                PageError::not_found(&format!("There is no experiment {name}. It may have been deleted."))
            }
            _ => error.into(),
        })
    }

    /// The view's columns and page.
    async fn runs_of(&self, view: &View) -> Result<(Vec<Column>, RunsPage), PageError> {
        let properties = match view.columns.is_empty() {
            true => self.sources.server.runs(view.query(Vec::new(), 0)).await?.properties,
            false => Vec::new(),
        };
        let columns = view.shown(&properties);
        let always = ALWAYS.map(|path| vec![path.to_owned()]).into_iter();
        let paths = always.chain(columns.iter().map(Column::paths)).collect();
        Ok((columns, self.sources.server.runs(view.query(paths, PAGE)).await?))
    }
}

fn page(
    frame: Frame,
    view: View,
    complaint: Option<String>,
    about: About,
    columns: &[Column],
    found: &RunsPage,
) -> ExperimentPage {
    let pages = found.total.div_ceil(PAGE).max(1);
    let turned = |page: usize| View { page, ..view.clone() }.address();
    let lines = lines(&view, columns, found);
    let all = choosable(&found.properties);
    let is_grouped = |column: &Column| view.group.as_ref() == Some(column);
    ExperimentPage {
        frame,
        name: view.experiment.clone(),
        about,
        complaint,
        chips: chips(&view),
        heads: columns.iter().enumerate().map(|(at, column)| head(&view, column, is_numeric(&lines, at))).collect(),
        fresh: found.total == 0 && view.search.is_empty() && view.filters.is_empty(),
        matching: amounts::count(found.total as u64),
        choices: choices(&all, columns),
        filterable: all.iter().filter(|it| !it.is_time()).map(|it| (it.to_string(), it.label())).collect(),
        groupable: all
            .iter()
            .filter(|it| matches!(it.kind, Kind::Status | Kind::Trial | Kind::Tuning | Kind::Parameter | Kind::Tag))
            .map(|it| (it.to_string(), it.label(), is_grouped(it)))
            .collect(),
        comparisons: &COMPARISONS,
        address: view.address(),
        newer: (view.page > 1).then(|| turned((view.page - 1).min(pages))),
        older: (view.page < pages).then(|| turned(view.page + 1)),
        pages: format!("Page {} of {}", amounts::count(view.page as u64), amounts::count(pages as u64)),
        live: lines.iter().any(|line| line.kind == "running"),
        lines,
        view,
    }
}

fn chips(view: &View) -> Vec<Chip> {
    let chip = |at: usize| {
        let filter = &view.filters[at];
        let mut without = view.first_page();
        without.filters.remove(at);
        Chip {
            text: format!("{} {} {}", filter.column.label(), filter.word(), filter.value),
            without: without.address(),
        }
    };
    (0..view.filters.len()).map(chip).collect()
}

fn is_numeric(lines: &[Line], column: usize) -> bool {
    lines.iter().any(|line| line.cells[column].1.is_number)
}

fn head(view: &View, column: &Column, is_number: bool) -> Head {
    let is_sorted = view.sort == *column;
    // Another click turns the order; the first one shows the newest, and else the least.
    let descending = if is_sorted { !view.descending } else { column.is_time() };
    let order = if view.descending { "descending" } else { "ascending" };
    Head {
        label: column.label(),
        class: column.class(),
        is_number,
        address: View { sort: column.clone(), descending, ..view.first_page() }.address(),
        sorted: is_sorted.then_some(order),
    }
}

/// All columns that there are, in the order of the choice.
fn choosable(properties: &[RunProperty]) -> Vec<Column> {
    let facts = [Kind::Status, Kind::Created, Kind::Modified, Kind::Started, Kind::Ended, Kind::Trial, Kind::Tuning];
    let mut all: Vec<Column> = facts.map(Column::of).to_vec();
    let of_runs: Vec<Column> = properties.iter().filter_map(|it| Column::of_path(&it.path)).collect();
    let of = |kind: Kind| of_runs.iter().filter(move |column| column.kind == kind);
    for metric in of(Kind::Last) {
        all.extend([Kind::Last, Kind::Min, Kind::Max, Kind::Mean].map(|kind| Column::named(kind, &metric.name)));
    }
    all.extend(of(Kind::Parameter).chain(of(Kind::Tag)).cloned());
    // A parameter that is a text in some runs and a number in others has two properties.
    all.dedup();
    all
}

fn choices(all: &[Column], shown: &[Column]) -> Vec<Section> {
    let sections = [("Run", "fact"), ("Metrics", "metric"), ("Parameters", "parameter"), ("Tags", "tag")];
    let section = |(title, class)| {
        let columns = all.iter().filter(|column| column.class() == class);
        let columns = columns.map(|column| (column.to_string(), column.label(), shown.contains(column))).collect();
        Section { title, columns }
    };
    sections.into_iter().map(section).filter(|section: &Section| !section.columns.is_empty()).collect()
}

fn lines(view: &View, columns: &[Column], found: &RunsPage) -> Vec<Line> {
    let mut before: Option<&Option<Cell>> = None;
    let mut lines = Vec::new();
    for run in &found.runs {
        let begins = before.replace(&run.group) != Some(&run.group);
        let group = view.group.as_ref().filter(|_| begins).map(|column| group(view, column, run, found));
        lines.push(line(columns, run, group));
    }
    lines
}

fn group(view: &View, column: &Column, run: &RunCells, found: &RunsPage) -> (Shown, String, String) {
    let runs = found.groups.iter().find(|(cell, _)| *cell == run.group).map_or(0, |(_, runs)| *runs);
    let mut shown = column.shown(run.group.as_ref());
    let value = match &run.group {
        None => {
            shown.text = format!("no {}", column.label().to_lowercase());
            return (shown, counted(runs), String::new());
        }
        Some(Cell::Number(number)) => number.to_string(),
        Some(Cell::Text(text)) if column.kind == Kind::Tuning => {
            arn::resource(text).map_or(text.as_str(), |it| it.name).to_owned()
        }
        Some(Cell::Text(text)) => text.clone(),
    };
    let mut only = view.first_page();
    only.filters.push(filter::Filter { column: column.clone(), comparison: "eq", value });
    (shown, counted(runs), only.address())
}

fn counted(runs: usize) -> String {
    format!("{} {}", amounts::count(runs as u64), if runs == 1 { "run" } else { "runs" })
}

fn line(columns: &[Column], run: &RunCells, group: Option<(Shown, String, String)>) -> Line {
    let text = |at: usize| match run.cells.get(at) {
        Some(Some(Cell::Text(text))) => Some(text.as_str()),
        _ => None,
    };
    let name = text(0).unwrap_or(&run.name).to_owned();
    let job = text(2).and_then(arn::resource).filter(|it| it.kind == "training-job").map(|it| it.name.to_owned());
    let cells = columns.iter().zip(run.cells.iter().skip(ALWAYS.len()));
    Line {
        group,
        // A job's component is called by its job, unless it has a name of its own.
        title: text(1).filter(|title| *title != name).or(job.as_deref()).unwrap_or(&name).to_owned(),
        address: format!("/console/compare?run={name}"),
        kind: text(3).map_or("stopped", |status| super::status::run_badge(status).kind),
        cells: cells.map(|(column, cell)| (column.class(), column.shown(cell.as_ref()))).collect(),
        name,
        job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn text(text: &str) -> Option<Cell> {
        Some(Cell::Text(text.to_owned()))
    }

    #[test]
    fn a_run_is_called_by_its_own_name_or_its_job() {
        let columns = [Column::named(Kind::Parameter, "eta")];
        let job = "arn:aws:sagemaker:eu-west-1:000000000000:training-job/Forest";
        let shown = |title: Option<Cell>, job: Option<Cell>| {
            let cells = vec![text("forest-aws-training-job"), title, job, text("Failed"), Some(Cell::Number(0.5))];
            let run = RunCells { name: "forest-aws-training-job".to_owned(), group: None, cells };
            let line = line(&columns, &run, None);
            assert_eq!((line.kind, line.cells.len(), &*line.cells[0].1.text), ("failed", 1, "0.5"));
            (line.title, line.job)
        };
        assert_eq!(shown(text("mine"), text(job)), ("mine".to_owned(), Some("Forest".to_owned())));
        assert_eq!(shown(text("forest-aws-training-job"), text(job)).0, "Forest");
        assert_eq!(shown(None, None), ("forest-aws-training-job".to_owned(), None));
    }

    #[test]
    fn a_group_begins_where_its_first_run_is() {
        let view = View::read("e", &Query::parse("group=tag%3Ateam&page=2")).0;
        let run = |name: &str, team: Option<Cell>| RunCells { name: name.to_owned(), group: team, cells: Vec::new() };
        let found = RunsPage {
            total: 4,
            runs: vec![run("a", text("blue")), run("b", text("blue")), run("c", None)],
            groups: vec![(text("blue"), 3), (None, 1)],
            properties: Vec::new(),
        };
        let lines = lines(&view, &[], &found);
        let groups: Vec<_> =
            lines.iter().map(|line| line.group.as_ref().map(|it| (&*it.0.text, &*it.1, &*it.2))).collect();
        let only = "/console/experiments/e?where=tag%3Ateam&is=eq&value=blue&group=tag%3Ateam";
        assert_eq!(groups, [Some(("blue", "3 runs", only)), None, Some(("no team", "1 run", ""))]);
    }
}
