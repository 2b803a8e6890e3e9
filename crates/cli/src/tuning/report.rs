//! `shoal tuning report`: one page of HTML that holds everything it shows.

mod ended;

use std::{fmt::Write as _, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use shoal_profile::{escape, fill};
use shoal_wire::{StudyDefinition, StudyDescription, StudyTrial, study_pictures};

use super::study::{self, best, latest, rungs, short, shorter, state_text, trials_of, units};
use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::{show, time_text},
    settings::ClientFlags,
    whole_file,
};

const PAGE: &str = include_str!("../../assets/report/report.html");
const STYLE: &str = include_str!("../../assets/report/report.css");
const SCRIPT: &str = include_str!("../../assets/report/report.js");
// The console's charts and pictures, too.
const PICTURES: &str = include_str!("../../../console/assets/study.js");
const UPLOT: &str = include_str!("../../../console/assets/uplot/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../../../console/assets/uplot/LICENSE");
const UPLOT_STYLE: &str = include_str!("../../../console/assets/uplot/uPlot.min.css");

/// Arguments of `shoal tuning report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Tuning job's name.
    name: String,
    /// Where to write the page: one file that loads nothing.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// Which training job definition, if there are several [default: that of the best trial].
    #[arg(long, value_name = "NAME")]
    definition: Option<String>,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks, draws, writes.
pub(crate) fn run(args: &ReportArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let study = study::fetch(&client, &args.name, false)
        .map_err(|error| client.explained(error, Noun::TuningJob, "report", &args.name))?;
    write(&study, args.definition.as_deref(), &args.html)?;
    show(&format!("{}\n", args.html.display()))?;
    Ok(Exit::Ok)
}

/// Writes a study's page.
///
/// # Errors
/// There is no such definition, or the file cannot be written.
pub(crate) fn write(study: &StudyDescription, definition: Option<&str>, path: &std::path::Path) -> Result<()> {
    let index = match definition {
        None => best(study).map_or(0, |(trial, _)| trial.definition as usize),
        Some(name) => study.definitions.iter().position(|it| it.name.as_deref() == Some(name)).with_context(|| {
            let known: Vec<_> = study.definitions.iter().filter_map(|it| it.name.as_deref()).collect();
            format!("there is no definition {name:?}; those of this tuning job are {}", known.join(", "))
        })?,
    };
    let definition = study.definitions.get(index).context("the tuning job has no training job definition")?;
    whole_file::write(path, &page(study, index, definition))
}

fn page(study: &StudyDescription, index: usize, definition: &StudyDefinition) -> String {
    let trials: Vec<&StudyTrial> = trials_of(study, index).collect();
    let (section_html, table, facts) = (
        sections(study, index, definition, &trials) + &ended::section(study),
        table(study, definition, &trials),
        facts(study, index),
    );
    let name = &study.hyper_parameter_tuning_job_name;
    let title = match &definition.name {
        Some(part) if study.definitions.len() > 1 => format!("Tuning job {name}: {part}"),
        _ => format!("Tuning job {name}"),
    };
    let subtitle = format!(
        "{}. {} of {}; {}{}.",
        study.hyper_parameter_tuning_job_status,
        with_article(&definition.searcher),
        study::aim(definition),
        if definition.scheduler == "none" {
            "every trial to its end".to_owned()
        } else {
            format!("scheduler {}", definition.scheduler)
        },
        study.message.as_ref().map_or(String::new(), |message| format!(". {}", capital(message))),
    );
    let data = study_pictures::data(study, index).to_string().replace('<', "\\u003c");
    let parts = [
        ("title", escape(&title)),
        ("subtitle", escape(&subtitle)),
        ("facts", facts),
        ("sections", section_html),
        (
            "table_note",
            "A click on a column's name sorts by it. Numbers are rounded; the exact ones show where the pointer rests."
                .to_owned(),
        ),
        ("table", table),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("css", STYLE.to_owned()),
        ("data", data),
        ("uplot", format!("/*\n{UPLOT_LICENCE}*/\n{UPLOT}")),
        ("uplot_css", UPLOT_STYLE.to_owned()),
        ("script", format!("{PICTURES}{SCRIPT}")),
    ];
    fill(PAGE, &parts)
}

/// As a sentence begins.
fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

/// `bayesian` -> `Search by bayesian`.
fn with_article(searcher: &str) -> String {
    format!("Search ({searcher})")
}

fn facts(study: &StudyDescription, index: usize) -> String {
    let trials: Vec<&StudyTrial> = trials_of(study, index).collect();
    let count = |state: &str| trials.iter().filter(|trial| trial.state == state).count();
    let mut facts: Vec<(&str, String, bool)> = Vec::new();
    if let Some((trial, value)) = best(study).filter(|(trial, _)| trial.definition as usize == index) {
        facts.push(("best value", short(value), true));
        facts.push(("best training job", trial.training_job_name.clone(), false));
    }
    facts.push(("trials", trials.len().to_string(), false));
    facts.push(("completed", count("Completed").to_string(), false));
    facts.push(("stopped", study::stops(&trials.iter().copied()).unwrap_or_else(|| "0".to_owned()), false));
    facts.push(("failed", count("Failed").to_string(), false));
    for state in ["Running", "Paused", "Waiting"].into_iter().filter(|state| count(state) > 0) {
        facts.push((state, count(state).to_string(), false));
    }
    let (run, full) = units(study);
    if full > run && run > 0 {
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let share = 100.0 * run as f64 / full as f64;
        facts.push(("units of resource run", format!("{run} of {full} ({share:.0} %)"), false));
    }
    let billed = trials.iter().filter_map(|trial| trial.billable_seconds).fold(0.0, |sum, seconds| sum + seconds);
    facts.push(("billable seconds", format!("{billed:.0}"), false));
    if let Some(end) = study.end_time {
        facts.push(("wall time", format!("{:.1} s", end - study.creation_time), false));
    }
    facts.push(("started", time_text(&json!(study.creation_time)), false));
    facts.iter().fold(String::new(), |mut text, (name, value, is_best)| {
        let class = if *is_best { " class=\"best\"" } else { "" };
        let _ = write!(text, "<div><dt>{name}</dt><dd{class}>{}</dd></div>", escape(value));
        text
    })
}

fn sections(study: &StudyDescription, index: usize, definition: &StudyDefinition, trials: &[&StudyTrial]) -> String {
    let has_values = trials.iter().any(|trial| trial.value().is_some());
    let all = [
        (
            has_values,
            "over-time",
            "",
            "Objective over time",
            "One mark per trial when it ended; the line is the best so far.",
        ),
        (
            trials.iter().any(|trial| trial.curve.len() > 1),
            "curves",
            "",
            "Learning curves",
            "The objective after each unit of resource. Curves that end early were stopped; the thick one is the best \
             trial.",
        ),
        (
            !rungs(study, index).is_empty() && trials.iter().any(|trial| trial.curve.len() > 1),
            "rungs",
            " low",
            "How far trials came",
            "Trials that reached each amount of resource, and those that ended there.",
        ),
        (
            definition.objectives.len() > 1 && has_values,
            "pareto",
            "",
            "Pareto front",
            "Trials that no other one beats in every objective. The first two objectives are drawn.",
        ),
        (
            has_values,
            "parallel",
            " tall",
            "Parallel coordinates",
            "One line per trial through its hyperparameters, coloured by its result.",
        ),
        (
            !definition.importance.is_empty(),
            "importance",
            " low",
            "What mattered",
            "How much of the results' variation each hyperparameter explains, as a model of all trials sees it.",
        ),
    ];
    let mut text = String::new();
    for (_, id, size, title, note) in all.iter().filter(|(is_there, ..)| *is_there) {
        let _ = write!(
            text,
            "<h2>{title}</h2><p>{note}</p><div class=\"chart{size}\" id=\"{id}\" role=\"img\" \
             aria-label=\"{title}\"></div>"
        );
    }
    text
}

fn table(study: &StudyDescription, definition: &StudyDefinition, trials: &[&StudyTrial]) -> String {
    let best = best(study).map(|(trial, _)| trial.number);
    let mut text = "<thead><tr>".to_owned();
    let mut heads = vec!["trial".to_owned(), "training job".to_owned(), "state".to_owned(), "resource".to_owned()];
    heads.extend(definition.objectives.iter().map(|it| it.metric_name.clone()));
    heads.extend(definition.parameters.iter().map(|it| it.name.clone()));
    for head in &heads {
        let _ = write!(text, "<th scope=\"col\">{}</th>", escape(head));
    }
    text.push_str("</tr></thead><tbody>");
    for trial in trials {
        let class = if best == Some(trial.number) { " class=\"best\"" } else { "" };
        let _ = write!(
            text,
            "<tr{class}><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td>",
            trial.number,
            escape(&trial.training_job_name),
            trial.reason.as_ref().map_or(String::new(), |reason| format!(" title=\"{}\"", escape(reason))),
            escape(state_text(&trial.state)),
            trial.resource()
        );
        for place in 0..definition.objectives.len() {
            let value = trial.objectives.get(place).copied().or_else(|| trial.value().filter(|_| place == 0));
            let _ = match value {
                Some(value) => write!(text, "<td data-sort=\"{value}\" title=\"{value}\">{}</td>", short(value)),
                None if place == 0 => write!(text, "<td>{}</td>", latest(trial)),
                None => write!(text, "<td>-</td>"),
            };
        }
        for parameter in &definition.parameters {
            let value = trial.values.iter().find(|(name, _)| *name == parameter.name).map_or("-", |(_, value)| value);
            let (shown, exact) = (escape(&shorter(value)), escape(value));
            let _ = if shown == exact {
                write!(text, "<td>{exact}</td>")
            } else {
                write!(text, "<td data-sort=\"{exact}\" title=\"{exact}\">{shown}</td>")
            };
        }
        text.push_str("</tr>");
    }
    text + "</tbody>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::study::tests::example;

    #[test]
    fn a_page_is_whole_and_escapes_what_users_say() {
        let mut study = example();
        study.trials[0].training_job_name = "</script><b>x".to_owned();
        study.trials[2].reason =
            Some("AlgorithmError: algo-1: Traceback\n  File \"a.py\"\nValueError: <i>, exit code: 1".to_owned());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.html");
        write(&study, None, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("{{"), "a place is left");
        for (part, times) in [
            ("<b>x", 0),
            ("&lt;/script&gt;&lt;b&gt;x", 1),
            ("id=\"over-time\"", 1),
            ("id=\"pareto\"", 0),
            ("<summary>AlgorithmError: algo-1: ValueError: &lt;i&gt;", 1),
            ("<i>", 0),
            ("gb&lt;tree", 4),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}");
        }
        // Nothing is loaded: no address of a script, style or picture.
        for forbidden in ["<script src", "<link", "@import", "url(http"] {
            assert!(!PAGE.contains(forbidden) && !STYLE.contains(forbidden), "{forbidden}");
        }
        let error = write(&study, Some("other"), &path).unwrap_err().to_string();
        assert!(error.contains("no definition \"other\""), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
