//! Runs side by side: parameters and metrics with what differs marked, curves over each other,
//! parallel coordinates. Of one run, its page.

mod series;

use std::collections::BTreeSet;

use askama::Template;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use shoal_wire::{Error, ErrorCode, arn};

use super::{
    Console, Visit,
    about::{About, Noted, about},
    amounts,
    frame::{Frame, PageError, rendered},
    query::address,
    responses::Body,
    status::{Badge, run_badge},
};

/// Most runs beside each other.
const MOST_RUNS: usize = 50;
/// The ending of a training job's component.
const OF_TRAINING_JOB: &str = "-aws-training-job";

#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    runs: Vec<Run>,
    sections: Vec<Section>,
    /// Of one run alone.
    about: Option<About>,
    /// Only rows that differ are shown.
    only_differing: bool,
    /// How many rows are the same in all runs.
    same: usize,
    other_address: String,
    series: String,
    /// Some run is not over.
    live: bool,
}

/// A column.
struct Run {
    name: String,
    title: String,
    job: Option<String>,
    badge: Badge,
    /// The address of the comparison without it.
    without: Option<String>,
}

struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

#[derive(Debug, PartialEq)]
struct Row {
    label: String,
    /// Of a metric, which statistic.
    note: &'static str,
    values: Vec<Shown>,
    differs: bool,
}

/// A value, and where it is rounded, the exact one.
#[derive(Debug, Clone, PartialEq, Default)]
struct Shown {
    text: String,
    title: String,
    time_ms: Option<u64>,
    is_number: bool,
}

impl Console {
    pub(super) async fn compare_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let names = names(visit)?;
        let described = self.described_runs(&names).await?;
        let only_differing = visit.query.get("only") == Some("differing") && described.len() > 1;
        let shown = |names: &[&str], only: &str| {
            let mut pairs: Vec<_> = names.iter().map(|&name| ("run", name)).collect();
            pairs.push(("only", only));
            address("/console/compare", &pairs)
        };
        let only = if only_differing { "differing" } else { "" };
        let runs: Vec<Run> = described
            .iter()
            .zip(&names)
            .map(|(it, name)| {
                let others: Vec<&str> = names.iter().copied().filter(|other| other != name).collect();
                run(it, (!others.is_empty()).then(|| shown(&others, only)))
            })
            .collect();
        let mut sections = sections(&described);
        let rows = sections.iter().flat_map(|section| &section.rows);
        let same = rows.filter(|row| !row.differs).count();
        if only_differing {
            sections.iter_mut().for_each(|section| section.rows.retain(|row| row.differs));
        }
        sections.retain(|section| !section.rows.is_empty());
        let about = match described.as_slice() {
            [only] => Some(about(self, Noted::Run, only).await?),
            _ => None,
        };
        let pairs: Vec<_> = names.iter().map(|&name| ("run", name)).collect();
        let title = match runs.as_slice() {
            [only] => only.title.clone(),
            several => format!("{} runs compared", several.len()),
        };
        Ok(rendered(&ComparePage {
            frame: visit.frame(&title),
            live: runs.iter().any(|run| run.badge.kind == "running"),
            series: address("/console/compare/series", &pairs),
            other_address: shown(&names, if only_differing { "" } else { "differing" }),
            runs,
            sections,
            about,
            only_differing,
            same,
        }))
    }

    /// The description of each run, by DescribeTrialComponent.
    async fn described_runs(&self, names: &[&str]) -> Result<Vec<Value>, PageError> {
        let mut described = Vec::with_capacity(names.len());
        for name in names {
            described.push(self.described_run(name).await.map_err(|error| match error.code {
                ErrorCode::ResourceNotFound | ErrorCode::ValidationException => {
                    PageError::not_found(&format!("There is no run {name}. It may have been deleted."))
                }
                _ => error.into(),
            })?);
        }
        Ok(described)
    }

    /// The trial component of this name, or that of the training job of this name.
    async fn described_run(&self, name: &str) -> Result<Value, Error> {
        let call = |name: String| {
            self.sources.server.call("SageMaker.DescribeTrialComponent", json!({"TrialComponentName": name}))
        };
        match call(name.to_owned()).await {
            Err(error) if error.code == ErrorCode::ResourceNotFound => call(format!("{name}{OF_TRAINING_JOB}")).await,
            described => described,
        }
    }
}

/// The runs of an address, each once.
fn names(visit: &Visit) -> Result<Vec<&str>, PageError> {
    let mut known = BTreeSet::new();
    let names: Vec<&str> = visit.query.all("run").into_iter().filter(|name| known.insert(*name)).collect();
    if names.is_empty() {
        let text = "Choose runs in an experiment's table, or name them in the address: /console/compare?run=A&run=B";
        return Err(PageError::new(StatusCode::BAD_REQUEST, "No run is chosen", text));
    }
    if names.len() > MOST_RUNS {
        let text = format!("{} runs are too many: {MOST_RUNS} are compared at most.", names.len());
        return Err(PageError::new(StatusCode::BAD_REQUEST, "Too many runs", &text));
    }
    Ok(names)
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// The training job whose component this is.
fn job_of(described: &Value) -> Option<&str> {
    let source = arn::resource(described["Source"]["SourceArn"].as_str()?)?;
    (source.kind == "training-job").then_some(source.name)
}

/// What a run is called: its display name, or its job, or its name.
fn title(described: &Value) -> &str {
    let (name, title) = (text(described, "TrialComponentName"), text(described, "DisplayName"));
    if !title.is_empty() && title != name { title } else { job_of(described).unwrap_or(name) }
}

fn run(described: &Value, without: Option<String>) -> Run {
    Run {
        name: text(described, "TrialComponentName").to_owned(),
        title: title(described).to_owned(),
        job: job_of(described).map(str::to_owned),
        badge: run_badge(text(&described["Status"], "PrimaryStatus")),
        without,
    }
}

fn sections(runs: &[Value]) -> Vec<Section> {
    let keys = |member: &'static str| -> BTreeSet<&String> {
        runs.iter().filter_map(|run| run[member].as_object()).flat_map(|it| it.keys()).collect()
    };
    let parameters =
        keys("Parameters").into_iter().map(|key| row(key, "", runs, &|run| parameter(&run["Parameters"][key])));
    let names: BTreeSet<&str> = runs.iter().flat_map(metrics).filter_map(|it| it["MetricName"].as_str()).collect();
    let statistics = [("Last", ""), ("Min", "min"), ("Max", "max")];
    let of_metrics = names.iter().flat_map(|name| {
        statistics.map(|(statistic, note)| {
            row(name, note, runs, &|run| {
                let found = metrics(run).find(|it| it["MetricName"] == **name);
                found.map_or_else(none, |it| number(&it[statistic]))
            })
        })
    });
    let artifacts = ["InputArtifacts", "OutputArtifacts"].into_iter().flat_map(|member| {
        let row = move |key: &String| row(key, "", runs, &|run| words(text(&run[member][key.as_str()], "Value")));
        keys(member).into_iter().map(row).collect::<Vec<_>>()
    });
    let times = [("created", "CreationTime"), ("started", "StartTime"), ("ended", "EndTime")];
    let facts = times
        .into_iter()
        .map(|(label, member)| Row { differs: false, ..row(label, "", runs, &|run| time(&run[member])) });
    let duration = row("duration", "", runs, &|run| {
        let (start, end) = (run["StartTime"].as_f64(), run["EndTime"].as_f64());
        let ms = start.zip(end).map(|(start, end)| ((end - start).max(0.0) * 1000.0) as u64);
        words(&ms.map(amounts::duration).unwrap_or_default())
    });
    vec![
        Section { title: "Metrics", rows: of_metrics.collect() },
        Section { title: "Parameters", rows: parameters.collect() },
        Section { title: "Inputs and outputs", rows: artifacts.collect() },
        Section { title: "Times", rows: facts.chain([Row { differs: false, ..duration }]).collect() },
    ]
}

fn metrics(run: &Value) -> impl Iterator<Item = &Value> {
    run["Metrics"].as_array().into_iter().flatten()
}

fn row(label: &str, note: &'static str, runs: &[Value], value: &dyn Fn(&Value) -> Shown) -> Row {
    let values: Vec<Shown> = runs.iter().map(value).collect();
    let differs = values.windows(2).any(|pair| (&pair[0].title, &pair[0].text) != (&pair[1].title, &pair[1].text));
    Row { label: label.to_owned(), note, values, differs }
}

fn none() -> Shown {
    Shown { text: "–".to_owned(), ..Shown::default() }
}

fn words(text: &str) -> Shown {
    if text.is_empty() { none() } else { Shown { text: text.to_owned(), title: text.to_owned(), ..Shown::default() } }
}

fn number(value: &Value) -> Shown {
    let shown = |value: f64| Shown {
        text: amounts::value(value),
        title: value.to_string(),
        is_number: true,
        ..Shown::default()
    };
    value.as_f64().map_or_else(none, shown)
}

fn time(value: &Value) -> Shown {
    let shown = |seconds: f64| {
        let time_ms = (seconds * 1000.0).max(0.0) as u64;
        Shown { text: amounts::utc(time_ms), time_ms: Some(time_ms), ..Shown::default() }
    };
    value.as_f64().map_or_else(none, shown)
}

fn parameter(value: &Value) -> Shown {
    match value["StringValue"].as_str() {
        Some(text) => words(text),
        None => number(&value["NumberValue"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_marked() {
        let run = |name: &str, rate: f64, loss: Option<f64>| {
            let metrics: Vec<_> = loss
                .map(|loss| json!({"MetricName": "loss", "Last": loss, "Min": 0.5, "Max": 3.0}))
                .into_iter()
                .collect();
            json!({"TrialComponentName": name, "Metrics": metrics, "CreationTime": 1.5, "StartTime": 1.0, "EndTime": 3.0,
                "Parameters": {"rate": {"NumberValue": rate}, "kind": {"StringValue": "tree"}}})
        };
        let found = sections(&[run("a", 0.123_456_7, Some(1.0)), run("b", 0.123_456_8, Some(1.0))]);
        let rows: Vec<_> =
            found.iter().flat_map(|it| &it.rows).map(|row| (&*row.label, row.note, row.differs)).collect();
        let expected = [
            ("loss", "", false),
            ("loss", "min", false),
            ("loss", "max", false),
            ("kind", "", false),
            ("rate", "", true),
            ("created", "", false),
            ("started", "", false),
            ("ended", "", false),
            ("duration", "", false),
        ];
        assert_eq!(rows, expected, "values that look the same differ, and times are no difference");
        let missing = sections(&[run("a", 1.0, Some(1.0)), run("b", 1.0, None)]);
        assert!(missing[0].rows.iter().all(|row| row.differs) && missing[0].rows[0].values[1].text == "–");
    }

    #[test]
    fn a_job_s_run_is_called_by_the_job() {
        let arn = "arn:aws:sagemaker:eu-west-1:000000000000:training-job/Forest";
        let job = json!({"TrialComponentName": "forest-aws-training-job", "Source": {"SourceArn": arn},
            "DisplayName": "forest-aws-training-job"});
        assert_eq!((title(&job), job_of(&job)), ("Forest", Some("Forest")));
        let named = json!({"TrialComponentName": "r", "DisplayName": "mine"});
        assert_eq!((title(&named), job_of(&named)), ("mine", None));
    }
}
