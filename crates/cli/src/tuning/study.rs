//! A tuning job's study, asked of the server page by page, and what follows from it.

use serde_json::json;
pub(crate) use shoal_wire::study_pictures::{Rung, best, rungs, trials_of};
use shoal_wire::{DESCRIBE_STUDY, StudyDefinition, StudyDescription, StudyTrial};

use crate::client::{Client, ClientError};

/// All of it, or only the trials that are not over.
///
/// # Errors
/// See [`ClientError`].
pub(crate) fn fetch(client: &Client, name: &str, live_only: bool) -> Result<StudyDescription, ClientError> {
    let mut input = json!({"HyperParameterTuningJobName": name, "LiveOnly": live_only});
    let mut whole: Option<StudyDescription> = None;
    loop {
        let answer = client.sagemaker(DESCRIBE_STUDY, &input)?;
        let page: StudyDescription =
            serde_json::from_value(answer).map_err(|error| client.not_understood(error.to_string()))?;
        let token = page.next_token.clone();
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => whole.trials.extend(page.trials),
        }
        match token {
            Some(token) => input["NextToken"] = json!(token),
            None => return Ok(whole.unwrap_or_default()),
        }
    }
}

/// Units of resource that were run, and that would have been if every trial had gone as far as the
/// one that went farthest (or as its scheduler allows).
pub(crate) fn units(study: &StudyDescription) -> (u64, u64) {
    let run = study.trials.iter().map(|trial| u64::from(trial.resource())).sum();
    let full = (0..study.definitions.len()).map(|definition| {
        let most = trials_of(study, definition).map(StudyTrial::resource).max().unwrap_or(0);
        let most = study.definitions[definition].levels.last().copied().unwrap_or(0).max(most);
        u64::from(most) * trials_of(study, definition).count() as u64
    });
    (run, full.sum())
}

/// What a study optimises, for people: `validation:auc, maximised`.
pub(crate) fn aim(definition: &StudyDefinition) -> String {
    let parts = definition
        .objectives
        .iter()
        .map(|it| format!("{}, {}", it.metric_name, if it.maximize { "maximised" } else { "minimised" }));
    parts.collect::<Vec<_>>().join("; ")
}

/// A value in few digits.
pub(crate) fn short(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e6).contains(&magnitude) { format!("{value:.3e}") } else { format!("{value:.5}") }
}

/// What a trial has said last of its objective, in few digits; `nan` if that was no number, `-` if
/// nothing.
pub(crate) fn latest(trial: &StudyTrial) -> String {
    match trial.value() {
        Some(value) => short(value),
        None if trial.is_astray() => "nan".to_owned(),
        None => "-".to_owned(),
    }
}

/// A trial's state as people read it.
pub(crate) fn state_text(state: &str) -> &str {
    match state {
        "Stopped" => "Stopped early",
        "MaxResource" => "Stopped at MaxResource",
        _ => state,
    }
}

/// Trials that the API counts as stopped, and which of them were stopped how:
/// `3 (2 early, 1 at MaxResource)`; none if there are none.
pub(crate) fn stops<'a>(trials: &(impl Iterator<Item = &'a StudyTrial> + Clone)) -> Option<String> {
    let all = trials.clone().filter(|trial| trial.is_stopped()).count();
    let kinds = [("Stopped", "early"), ("MaxResource", "at MaxResource"), ("Cancelled", "cancelled")];
    let counted = kinds.map(|(state, how)| (trials.clone().filter(|trial| trial.state == state).count(), how));
    let parts: Vec<_> =
        counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{count} {how}")).collect();
    (all > 0).then(|| format!("{all} ({})", parts.join(", ")))
}

/// The units of resource that a search is expected to have run when it ends. Of the trials that are
/// compared at a level, `this level / next level` of them go on to the next. `None` if the
/// scheduler has no levels, and before the first trial.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn expected_units(study: &StudyDescription) -> Option<f64> {
    let trials = study.max_trials?.max(u32::try_from(study.trials.len()).unwrap_or(u32::MAX));
    let of_trial = |trial: &StudyTrial| {
        let levels = study.definitions.get(trial.definition as usize).map_or(&[][..], |it| &it.levels);
        let first = levels.get(trial.bracket as usize).copied()?;
        let above = levels.get(trial.bracket as usize..)?.windows(2);
        let further = above.map(|pair| f64::from(pair[1] - pair[0]) * f64::from(first) / f64::from(pair[1].max(1)));
        Some(f64::from(first) + further.sum::<f64>())
    };
    let units: Option<f64> = study.trials.iter().map(of_trial).sum();
    units.filter(|units| *units > 0.0).map(|units| units / study.trials.len() as f64 * f64::from(trials))
}

/// Names and values: `eta=0.1 max_depth=6`, numbers shortened.
pub(crate) fn setting(trial: &StudyTrial) -> String {
    trial.values.iter().map(|(name, text)| format!("{name}={}", shorter(text))).collect::<Vec<_>>().join(" ")
}

/// A hyperparameter's value for people: long fractions to six significant digits.
pub(crate) fn shorter(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(value) if text.len() > 9 && value.is_finite() && value.fract() != 0.0 => {
            let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
            if (1e-4..1e6).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use shoal_wire::{StudyObjective, StudyParameter};

    use super::*;

    /// Three trials of a scheduler with levels, one of each end.
    pub(in crate::tuning) fn example() -> StudyDescription {
        let trial = |number: u32, state: &str, curve: &[f64], objectives: &[f64]| StudyTrial {
            number,
            training_job_name: format!("t-{number:03}"),
            values: vec![("eta".to_owned(), format!("0.{number}")), ("booster".to_owned(), "gb<tree".to_owned())],
            state: state.to_owned(),
            curve: (1..).zip(curve.iter().copied()).collect(),
            objectives: objectives.to_vec(),
            start_time: Some(100.0),
            end_time: Some(100.0 + f64::from(number)),
            billable_seconds: Some(1.0),
            ..StudyTrial::default()
        };
        StudyDescription {
            hyper_parameter_tuning_job_name: "t".to_owned(),
            hyper_parameter_tuning_job_status: "Completed".to_owned(),
            creation_time: 100.0,
            end_time: Some(110.0),
            max_parallel: 2,
            best_trial: Some(2),
            definitions: vec![StudyDefinition {
                objectives: vec![StudyObjective { metric_name: "validation:auc".to_owned(), maximize: true }],
                parameters: vec![
                    StudyParameter {
                        name: "eta".to_owned(),
                        min: Some(0.0),
                        max: Some(1.0),
                        ..StudyParameter::default()
                    },
                    StudyParameter {
                        name: "booster".to_owned(),
                        values: Some(vec!["gb<tree".to_owned(), "dart".to_owned()]),
                        ..StudyParameter::default()
                    },
                ],
                searcher: "random".to_owned(),
                scheduler: "hyperband".to_owned(),
                levels: vec![1, 3, 9],
                ..StudyDefinition::default()
            }],
            trials: vec![
                trial(1, "Stopped", &[0.5], &[]),
                trial(2, "Completed", &[0.5, 0.6, 0.7, 0.71, 0.72, 0.73, 0.74, 0.75, 0.76], &[0.76]),
                trial(3, "Failed", &[], &[]),
                trial(4, "Stopped", &[0.5, 0.55, 0.6], &[]),
            ],
            ..StudyDescription::default()
        }
    }

    #[test]
    fn rungs_count_who_came_how_far() {
        let study = example();
        let counted: Vec<_> = rungs(&study, 0).iter().map(|it| (it.resource, it.reached, it.ended)).collect();
        assert_eq!(counted, [(1, 3, 1), (3, 2, 1), (9, 1, 1)]);
        assert_eq!(units(&study), (13, 36));
        assert_eq!(best(&study).map(|(trial, value)| (trial.number, value)), Some((2, 0.76)));
        let mut plain = study;
        plain.definitions[0].levels.clear();
        let counted: Vec<_> = rungs(&plain, 0).iter().map(|it| (it.resource, it.reached)).collect();
        assert_eq!(counted, [(1, 3), (2, 2), (4, 1), (8, 1), (9, 1)]);
        plain.trials.clear();
        assert!(rungs(&plain, 0).is_empty());
    }

    #[test]
    fn stops_are_counted_as_the_api_counts_them() {
        let mut study = example();
        assert_eq!(stops(&study.trials.iter()).as_deref(), Some("2 (2 early)"));
        for (place, state) in ["MaxResource", "Cancelled", "Stopped", "Stopped"].into_iter().enumerate() {
            study.trials[place].state = state.to_owned();
        }
        assert_eq!(stops(&study.trials.iter()).as_deref(), Some("4 (2 early, 1 at MaxResource, 1 cancelled)"));
        assert_eq!(stops(&study.trials[..0].iter()), None);
    }

    #[test]
    fn units_to_come_follow_from_the_levels() {
        let mut study = example();
        assert_eq!(expected_units(&study), None, "nobody knows how many trials");
        study.max_trials = Some(9);
        // 1 each, 2 more for a third of them, 6 more for a ninth.
        assert_eq!(expected_units(&study).map(f64::round), Some(21.0));
        study.trials.iter_mut().for_each(|trial| trial.bracket = 2);
        assert_eq!(expected_units(&study), Some(81.0));
        study.definitions[0].levels.clear();
        assert_eq!(expected_units(&study), None);
    }

    #[test]
    fn values_are_short() {
        for (value, expected) in [(0.0, "0.00000"), (0.123_456_78, "0.12346"), (1e-7, "1.000e-7"), (-2.5e9, "-2.500e9")]
        {
            assert_eq!(short(value), expected);
        }
        for (text, expected) in [
            ("0.14385340323739393", "0.143853"),
            ("0.000012345678901", "1.23457e-5"),
            ("1234567890123", "1234567890123"),
            ("0.25", "0.25"),
            ("a-long-name-of-a-choice", "a-long-name-of-a-choice"),
        ] {
            assert_eq!(shorter(text), expected);
        }
        assert_eq!(setting(&example().trials[0]), "eta=0.1 booster=gb<tree");
    }
}
