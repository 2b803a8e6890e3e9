//! Watching a tuning job: a table of running trials on a terminal, lasting lines elsewhere.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use shoal_wire::{StudyDescription, StudyTrial};

use crate::{
    client::{Client, now_ms},
    patient::Patient,
    settings::ClientFlags,
    tuning::study::{best, expected_units, fetch, latest, rungs, setting, short, state_text},
};

/// Most trials in the table.
const ROWS: usize = 12;

/// How often the whole study is asked for; in between, only trials that are not over.
const WHOLE: u32 = 4;

/// How often it is said how things stand where no table is drawn: a little later each time.
const SOON: Duration = Duration::from_secs(5);
const LATE: Duration = Duration::from_secs(60);

/// Waits until the tuning job is over; the answer is its study. A server that goes away meanwhile
/// is waited for.
///
/// # Errors
/// The server stays away or knows no such tuning job.
pub(super) fn until_end(client: Client, flags: &ClientFlags, name: &str) -> Result<StudyDescription> {
    let started = Instant::now();
    let mut client = Patient::of_tuning(client, flags, name);
    let mut board = Board { is_live: std::io::stderr().is_terminal(), lines: 0 };
    let mut told: BTreeMap<u32, String> = BTreeMap::new();
    let (mut last_best, mut whole, mut looks) = (None, StudyDescription::default(), 0_u32);
    let mut said = started;
    loop {
        let live_only = looks % WHOLE != 0;
        let answer = client.ask(|trouble| board.line(trouble), |client| fetch(client, name, live_only))?;
        let Some(study) = answer else { continue };
        looks += 1;
        let is_over = matches!(study.hyper_parameter_tuning_job_status.as_str(), "Completed" | "Failed" | "Stopped");
        if is_over && live_only {
            // The last look is at all of it.
            looks = 0;
            continue;
        }
        whole = merged(whole, study, live_only);
        for trial in whole.trials.iter().filter(|trial| trial.is_over()) {
            if told.insert(trial.number, trial.state.clone()).is_none() && !board.is_live {
                board.line(&ended(trial));
            }
        }
        let now = best(&whole).map(|(trial, value)| (trial.number, value));
        if let Some((number, value)) = now.filter(|now| Some(*now) != last_best) {
            let trial = whole.trials.iter().find(|trial| trial.number == number);
            board.line(&format!(
                "best {}  {}",
                short(value),
                trial.map(|it| format!("{}  {}", it.training_job_name, setting(it))).unwrap_or_default()
            ));
            last_best = now;
        }
        if is_over {
            board.clear();
            return Ok(whole);
        }
        let frame = frame(&whole, now_ms());
        if !board.is_live && said.elapsed() >= (started.elapsed() / 5).clamp(SOON, LATE) {
            board.line(&frame[0]);
            said = Instant::now();
        }
        board.draw(&frame);
        thread::sleep((started.elapsed() / 20).clamp(Duration::from_millis(100), Duration::from_millis(500)));
    }
}

/// What is known now: a look at live trials only leaves the others as they were, and those that it
/// does not show any more are seen at the next look at all.
fn merged(mut before: StudyDescription, look: StudyDescription, live_only: bool) -> StudyDescription {
    if !live_only || before.trials.is_empty() {
        return look;
    }
    for trial in &look.trials {
        match before.trials.binary_search_by_key(&trial.number, |it| it.number) {
            Ok(place) => before.trials[place] = trial.clone(),
            Err(place) => before.trials.insert(place, trial.clone()),
        }
    }
    StudyDescription { trials: before.trials, ..look }
}

fn ended(trial: &StudyTrial) -> String {
    let why = trial.reason.as_deref().map_or(String::new(), |reason| format!("  ({})", shoal_wire::headline(reason)));
    format!(
        "{}  {:13}  {:>10}  after {}  {}{why}",
        trial.training_job_name,
        state_text(&trial.state),
        latest(trial),
        trial.resource(),
        setting(trial)
    )
}

/// The part of the search that is behind it, up to 1, if that can be estimated: by units of
/// resource where trials pause and end early, as most of those end together at last; else by
/// trials.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn done(study: &StudyDescription, over: usize) -> Option<f64> {
    let done = match expected_units(study) {
        Some(units) => study.trials.iter().map(|trial| f64::from(trial.resource())).sum::<f64>() / units,
        None => over as f64 / f64::from(study.max_trials?),
    };
    Some(done.min(1.0)).filter(|done| *done > 0.0)
}

/// The table: head, live trials, rungs.
fn frame(study: &StudyDescription, now_ms: u64) -> Vec<String> {
    let live: Vec<&StudyTrial> = study.trials.iter().filter(|trial| !trial.is_over()).collect();
    let over = study.trials.len() - live.len();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a time")]
    let passed = (now_ms as f64 / 1000.0 - study.creation_time).max(0.0);
    let most = study.max_trials.map_or(String::new(), |most| format!(" of {most}"));
    let left = done(study, over).map_or(String::new(), |done| format!(", about {:.0} s left", passed / done - passed));
    let counted = |state: &str| live.iter().filter(|trial| trial.state == state).count();
    let states = ["Running", "Waiting", "Paused"].map(|state| (counted(state), state.to_lowercase()));
    let states = states.into_iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!(", {count} {state}"));
    let states = states.collect::<String>();
    let head =
        best(study).map_or(String::new(), |(trial, value)| format!("  best {} (trial {})", short(value), trial.number));
    let mut lines = vec![format!(
        "{}  {over}{most} trials over{states}  {passed:.0} s{left}{head}",
        study.hyper_parameter_tuning_job_name
    )];
    for trial in live.iter().take(ROWS) {
        let value = latest(trial);
        let to = trial.to.map_or(String::new(), |to| format!("/{to}"));
        lines.push(format!(
            "  {:>5}  {:8} {:>9} {value:>12}  {}",
            trial.number,
            trial.state,
            format!("{}{to}", trial.resource()),
            setting(trial)
        ));
    }
    if live.len() > ROWS {
        lines.push(format!("  and {} more", live.len() - ROWS));
    }
    if live.iter().take(ROWS).any(|trial| trial.is_astray()) {
        lines.push("  nan: the objective was no number; it counts as worse than all others".to_owned());
    }
    for index in 0..study.definitions.len() {
        let rungs = rungs(study, index);
        if rungs.len() > 1 && !study.definitions[index].levels.is_empty() {
            let parts: Vec<_> = rungs.iter().map(|rung| format!("{}: {}", rung.resource, rung.reached)).collect();
            lines.push(format!("  trials per rung  {}", parts.join("  ")));
        }
    }
    lines
}

/// Lines that are redrawn in place on a terminal.
struct Board {
    is_live: bool,
    lines: usize,
}

impl Board {
    fn clear(&mut self) {
        if self.lines > 0 {
            // Up to the first line, and all below it away.
            eprint!("\x1b[{}A\r\x1b[J", self.lines);
            self.lines = 0;
        }
    }

    fn line(&mut self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    fn draw(&mut self, lines: &[String]) {
        if !self.is_live {
            return;
        }
        self.clear();
        // No wrapping: a wrapped line could not be redrawn in place.
        eprint!("\x1b[?7l{}\n\x1b[?7h", lines.join("\n"));
        // A terminal that is gone is not our affair.
        let _ = std::io::stderr().flush();
        self.lines = lines.len();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::StudyDefinition;

    use super::*;

    fn trial(number: u32, state: &str, resource: u32) -> StudyTrial {
        StudyTrial {
            number,
            state: state.to_owned(),
            curve: (1..=resource).map(|at| (at, f64::from(at))).collect(),
            to: Some(9),
            ..StudyTrial::default()
        }
    }

    #[test]
    fn a_frame_shows_live_trials_and_rungs() {
        let study = StudyDescription {
            hyper_parameter_tuning_job_name: "t".to_owned(),
            max_trials: Some(10),
            trials: vec![trial(1, "Completed", 9), trial(2, "Running", 3)],
            definitions: vec![StudyDefinition { levels: vec![1, 3, 9], ..StudyDefinition::default() }],
            ..StudyDescription::default()
        };
        let lines = frame(&study, 10_000);
        assert_eq!(
            lines,
            [
                "t  1 of 10 trials over, 1 running  10 s, about 9 s left",
                "      2  Running        3/9      3.00000  ",
                "  trials per rung  1: 2  3: 2  9: 1"
            ]
        );
    }

    #[test]
    fn a_look_at_live_trials_leaves_the_others() {
        let study = |trials: Vec<StudyTrial>| StudyDescription { trials, ..StudyDescription::default() };
        let before = study(vec![trial(1, "Completed", 9), trial(2, "Running", 1)]);
        let after = merged(before, study(vec![trial(2, "Running", 2), trial(3, "Running", 0)]), true);
        let shown: Vec<_> = after.trials.iter().map(|it| (it.number, it.resource())).collect();
        assert_eq!(shown, [(1, 9), (2, 2), (3, 0)]);
    }
}
