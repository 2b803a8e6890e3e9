//! `shoal tuning show`.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use shoal_wire::{StudyDescription, StudyTrial};

use super::{
    endings::{astray, groups, numbers},
    study::{self, Rung, aim, best, rungs, setting, short, state_text, trials_of, units},
};
use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::{show, show_json, table},
    settings::ClientFlags,
};

/// Width of the longest bar of a rung chart, in characters.
const BAR: usize = 40;

/// Most reasons of failures that are shown.
const REASONS: usize = 5;

/// Arguments of `shoal tuning show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Tuning job's name.
    name: String,
    /// How many of the best trials.
    #[arg(long, default_value_t = 5)]
    top: usize,
    /// The study with all its trials and learning curves as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks and prints.
pub(crate) fn run(args: &ShowArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let study = study::fetch(&client, &args.name, false)
        .map_err(|error| client.explained(error, Noun::TuningJob, "show", &args.name))?;
    if args.json {
        show_json(&serde_json::to_value(&study)?)?;
    } else {
        show(&summary(&study, args.top))?;
    }
    Ok(Exit::Ok)
}

/// What a person wants to know of a tuning job: best, counts, rungs, the best few trials.
pub(crate) fn summary(study: &StudyDescription, top: usize) -> String {
    let mut text = format!("{}  {}\n", study.hyper_parameter_tuning_job_name, study.hyper_parameter_tuning_job_status);
    if let Some(message) = &study.message {
        let _ = writeln!(text, "  note      {}", message.trim_end().replace('\n', "\n            "));
    }
    if let Some((trial, value)) = best(study) {
        let _ = writeln!(text, "  best      {}  {}  {}", short(value), trial.training_job_name, setting(trial));
    }
    let count = |state: &str| study.trials.iter().filter(|trial| trial.state == state).count();
    let counted = |states: &[&str]| -> Vec<String> {
        let counts = states.iter().map(|state| (count(state), state.to_lowercase())).filter(|(count, _)| *count > 0);
        counts.map(|(count, state)| format!("{count} {state}")).collect()
    };
    let stopped = study::stops(&study.trials.iter()).map(|stops| stops.replacen(' ', " stopped ", 1));
    let counts =
        [counted(&["Completed"]), Vec::from_iter(stopped), counted(&["Failed", "Running", "Paused", "Waiting"])]
            .concat();
    let most = study.max_trials.map_or(String::new(), |most| format!(" of {most}"));
    let _ = writeln!(text, "  trials    {}{most}: {}", study.trials.len(), counts.join(", "));
    let (run, full) = units(study);
    if run > 0 {
        let _ = writeln!(text, "  resource  {run} of {full} units run ({:.0} %)", percent(run, full));
    }
    let billed = study.trials.iter().filter_map(|trial| trial.billable_seconds).fold(0.0, |sum, seconds| sum + seconds);
    let wall = study.end_time.map_or(String::new(), |end| format!("{:.1} s in all, ", end - study.creation_time));
    let _ = writeln!(text, "  time      {wall}{billed:.0} s billable");
    for (index, definition) in study.definitions.iter().enumerate() {
        let name = definition.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
        let _ = writeln!(
            text,
            "  search    {name}{}, scheduler {}; {}",
            definition.searcher,
            definition.scheduler,
            aim(definition)
        );
        let rungs = rungs(study, index);
        if rungs.len() > 1 {
            text.push_str(&chart(&rungs));
        }
        text.push_str(&best_trials(study, index, top));
    }
    text + &otherwise(study)
}

/// Which trials failed or were cancelled and why, and those whose objective was no number, with
/// what can be done about it.
fn otherwise(study: &StudyDescription) -> String {
    let mut text = String::new();
    let (groups, astray) = (groups(study), astray(study));
    for (state, title) in [("Failed", "failed"), ("Cancelled", "cancelled")] {
        let of_state: Vec<_> = groups.iter().filter(|group| group.state == state).collect();
        if of_state.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n  {title}");
        for group in of_state.iter().take(REASONS) {
            let _ = writeln!(text, "  {:>5} x  {}  ({})", group.trials.len(), group.gist, numbers(&group.trials));
        }
        if of_state.len() > REASONS {
            let _ = writeln!(text, "  and {} other reasons; --json has them all", of_state.len() - REASONS);
        }
        if let (Some(trial), "Failed") = (of_state[0].trials.first(), state) {
            let _ = writeln!(text, "  what one of them printed: shoal jobs logs {}", trial.training_job_name);
        }
    }
    if !astray.is_empty() {
        let _ = writeln!(text, "\n  objective not a number (nan): {}", numbers(&astray));
        let _ = writeln!(
            text,
            "  they count as worse than all others; narrower ranges keep the search away from where training diverges"
        );
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// How many trials came how far, as bars.
fn chart(rungs: &[Rung]) -> String {
    let most = rungs.iter().map(|rung| rung.reached).max().unwrap_or(0).max(1);
    let rows = rungs.iter().map(|rung| {
        let full = (rung.reached * BAR).div_ceil(most);
        vec![
            format!("  {:>9}", rung.resource),
            "█".repeat(full),
            format!("{} reached, {} ended", rung.reached, rung.ended),
        ]
    });
    format!("\n  {:>9}  trials\n{}", "resource", table(&rows.collect::<Vec<_>>()))
}

fn best_trials(study: &StudyDescription, definition: usize, top: usize) -> String {
    let maximize = study.definitions[definition].objectives.first().is_some_and(|it| it.maximize);
    let mut trials: Vec<(&StudyTrial, f64)> = trials_of(study, definition)
        .filter(|trial| trial.is_over() && trial.state != "Failed")
        .filter_map(|trial| Some((trial, trial.value()?)))
        .collect();
    trials.sort_by(|one, other| if maximize { other.1.total_cmp(&one.1) } else { one.1.total_cmp(&other.1) });
    if trials.is_empty() || top == 0 {
        return String::new();
    }
    // One objective is named by the line above; of several each has its column.
    let objectives = &study.definitions[definition].objectives;
    let values = if objectives.len() > 1 {
        objectives.iter().map(|it| it.metric_name.clone()).collect()
    } else {
        vec!["VALUE".to_owned()]
    };
    let line = |name: String, values: Vec<String>, rest: [String; 3]| [vec![name], values, rest.to_vec()].concat();
    let mut rows =
        vec![line("  TRIAL".to_owned(), values, ["RESOURCE", "STATE", "HYPERPARAMETERS"].map(str::to_owned))];
    rows.extend(trials.into_iter().take(top).map(|(trial, value)| {
        let further = (1..objectives.len())
            .map(|place| trial.objectives.get(place).map_or("-".to_owned(), |value| short(*value)));
        let values = std::iter::once(short(value)).chain(further).collect();
        let front = if trial.front && objectives.len() > 1 { ", on the Pareto front" } else { "" };
        let state = format!("{}{front}", state_text(&trial.state));
        line(format!("  {}", trial.training_job_name), values, [trial.resource().to_string(), state, setting(trial)])
    }));
    format!("\n{}", table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::study::tests::example;

    #[test]
    fn a_summary_says_what_matters() {
        let text = summary(&example(), 2);
        for part in [
            "t  Completed\n",
            "  best      0.76000  t-002  eta=0.2 booster=gb<tree\n",
            "  trials    4: 1 completed, 2 stopped (2 early), 1 failed\n",
            "  resource  13 of 36 units run (36 %)\n",
            "  time      10.0 s in all, 4 s billable\n",
            "  search    random, scheduler hyperband; validation:auc, maximised\n",
            "          1  ████████████████████████████████████████  3 reached, 1 ended\n",
            "  TRIAL  VALUE    RESOURCE  STATE          HYPERPARAMETERS\n  t-002  0.76000  9         Completed      eta=0.2",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("t-001"), "{text}");
    }

    #[test]
    fn each_of_several_objectives_has_its_column() {
        let mut study = example();
        study.definitions[0]
            .objectives
            .push(shoal_wire::StudyObjective { metric_name: "size".to_owned(), maximize: false });
        study.trials[1].objectives.push(12.0);
        study.trials[1].front = true;
        let text = summary(&study, 2);
        for part in [
            "  TRIAL  validation:auc  size      RESOURCE",
            "  t-002  0.76000         12.00000  9         Completed, on the Pareto front",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }
}
