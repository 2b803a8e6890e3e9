//! From a request to its studies: what may be tried, who proposes, who goes on.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use shoal_plane::{Objective, Pause};
use shoal_tuner::{
    Condition, Direction, Domain, Parameter, Scaling, SchedulerSpec, Space, SpecError, Study, StudySpec,
    named::{self, Resources},
    schedule::Form,
};
use shoal_wire::{
    CreateTuningJob, Error, Goal, ParameterRange, RangeValues, STRATEGY_TAG, ScalingType, Strategy, TuningDefinition,
};

use crate::{Image, Images, options::known_image_of};

/// How one training job definition is searched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Design {
    /// What its study is made of.
    pub(crate) study: StudySpec,
    /// The study's objectives as metrics, the tuning job's own first.
    pub(crate) objectives: Vec<Objective>,
    /// Trials keep checkpoints: the request says where, or it is a built-in algorithm that does.
    pub(crate) checkpoints: bool,
    /// Trials need a place for checkpoints though the request names none: they may be paused.
    pub(crate) keeps_checkpoints: bool,
    /// What becomes of its trials when they are paused.
    pub(crate) pause: Pause,
    /// What its user should know.
    pub(crate) note: Option<String>,
}

/// The tag [`STRATEGY_TAG`], where it is no plain name: JSON, or that in base64, since the tags of
/// AWS have no braces and quotes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Chosen {
    /// A strategy's name; the two below change its parts.
    strategy: Option<String>,
    /// A name or a specification.
    searcher: Option<Value>,
    /// A name or a specification.
    scheduler: Option<Value>,
    /// By hyperparameter.
    conditions: BTreeMap<String, Condition>,
    /// Beside the tuning job's own.
    objectives: Vec<Further>,
    /// Options of grid search.
    grid: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Further {
    metric: String,
    #[serde(default)]
    direction: Direction,
}

/// Trials that come to their end, about, where the number of trials is what limits a search.
const WHOLE_TRIALS: u32 = 3;
/// From so many trials on there are enough for several brackets.
const BRACKETS_FROM: u32 = 100;

/// Sets the first rung by the number of trials, where nobody has said where it lies: each rung
/// keeps a third, and a few trials shall come to their end. With thirty trials two rungs are
/// enough; the lowest of four would judge most of them by a round that tells little (on both tables
/// of docs/notes/tuner.md, "Multi-fidelity", ten times the regret). Of each rung no more than a
/// third goes on then, so that thirty trials of at most R units use 30 R/9 + 10 (R/3 - R/9) + 3 (R
/// - R/3) of the 30 R, a quarter, in whatever order they come.
fn suit(scheduler: &mut SchedulerSpec, trials: u32) {
    let (eta, max, min, delayed) = match scheduler {
        SchedulerSpec::Hyperband(it) => (it.eta, it.max_resource, &mut it.min_resource, &mut it.delayed),
        SchedulerSpec::Asha(it) => (it.eta, it.max_resource, &mut it.min_resource, &mut it.delayed),
        _ => return,
    };
    *delayed = true;
    let rungs = (trials / WHOLE_TRIALS).checked_ilog(eta.max(2)).unwrap_or(0).max(1);
    *min = (max / eta.max(2).saturating_pow(rungs)).max(1);
    if let SchedulerSpec::Hyperband(it) = scheduler
        && trials < BRACKETS_FROM
    {
        it.brackets = Some(1);
    }
}

/// The studies of a request, one for each of its definitions. The seed is the request's, or drawn
/// by the caller.
///
/// # Errors
/// `ValidationException`: ranges, strategy or tag make no sense together.
pub(crate) fn designs(request: &CreateTuningJob, seed: u64, images: &dyn Images) -> Result<Vec<Design>, Error> {
    let tag = request.tags.iter().find(|tag| tag.key == STRATEGY_TAG).map(|tag| chosen(&tag.value)).transpose()?;
    let tag = tag.unwrap_or_default();
    let each = request.definitions.iter().zip(0_u64..);
    each.map(|(definition, index)| design(request, definition, &tag, seed.wrapping_add(index << 32), images)).collect()
}

fn chosen(text: &str) -> Result<Chosen, Error> {
    let wrong = |error: serde_json::Error| {
        Error::validation(format!(
            "The tag {STRATEGY_TAG} is no strategy: {error}. It is a name such as 'tpe' or 'bayesian+asha', or JSON \
             (also in base64) with any of \
             strategy, searcher, scheduler, conditions, objectives and grid."
        ))
    };
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(wrong);
    }
    let decoded = base64_simd::STANDARD.decode_to_vec(text.trim()).ok();
    match decoded.filter(|bytes| bytes.trim_ascii_start().starts_with(b"{")) {
        Some(json) => serde_json::from_slice(&json).map_err(wrong),
        None => Ok(Chosen { strategy: Some(text.to_owned()), ..Chosen::default() }),
    }
}

fn design(
    request: &CreateTuningJob,
    definition: &TuningDefinition,
    tag: &Chosen,
    seed: u64,
    images: &dyn Images,
) -> Result<Design, Error> {
    let refused = |error: SpecError| Error::validation(format!("Invalid value at '{}': {error}.", definition.path));
    let builtin = match known_image_of(images, &definition.training) {
        Some(Image::Builtin(algorithm)) => Some(algorithm),
        _ => None,
    };
    let resumes = builtin.as_ref().is_some_and(|algorithm| algorithm.resumes);
    let checkpoints = resumes || definition.training.checkpoint.is_some();

    let own =
        Objective { metric: definition.objective.metric.clone(), direction: direction(definition.objective.goal) };
    let further = tag.objectives.iter().map(|it| Objective { metric: it.metric.clone(), direction: it.direction });
    let objectives: Vec<_> = std::iter::once(own).chain(further).collect();

    let names =
        builtin.as_ref().map_or_else(|| images.resources(), |algorithm| algorithm.resource.iter().cloned().collect());
    let fixed = names.iter().find_map(|name| definition.static_hyperparameters.get(name)?.trim().parse().ok());
    let resources = Resources { min: request.min_resource, max: definition.max_resource.or(fixed), eta: None };
    let (mut searcher, mut scheduler) = usual(request);
    let mut is_spelt_out = false;
    if let Some(name) = &tag.strategy {
        let strategy = named::Strategy::named(name, resources).map_err(refused)?;
        searcher = json!(strategy.searcher);
        scheduler = json!(strategy.scheduler);
        is_spelt_out = name.contains("stopping");
    }
    if let Some(grid) = &tag.grid {
        let mut options = grid.clone();
        options.insert("kind".to_owned(), json!("grid"));
        searcher = options.into();
    }
    if let Some(chosen) = &tag.searcher {
        searcher = chosen.clone();
    }
    if let Some(chosen) = &tag.scheduler {
        scheduler = chosen.clone();
        is_spelt_out = chosen.is_object();
    }
    let searcher = named::searcher(&searcher).map_err(refused)?;
    let is_named = scheduler.is_string();
    let mut scheduler = named::scheduler(&scheduler, resources).map_err(refused)?;
    if let (true, None, Some(trials)) = (is_named, request.min_resource, request.limits.max_jobs) {
        suit(&mut scheduler, trials);
    }
    let note = if checkpoints || is_spelt_out { None } else { stopping_form(&mut scheduler) };
    if !checkpoints && matches!(scheduler, SchedulerSpec::Pbt(_)) {
        return Err(Error::validation(format!(
            "Invalid value at '{}.checkpointConfig': population based training starts trials from others' checkpoints; \
             say where the program keeps them.",
            definition.path
        )));
    }
    let space = space(&definition.ranges, &tag.conditions).map_err(|error| refused(error.into()))?;
    let directions = objectives.iter().map(|objective| objective.direction).collect();
    let study =
        StudySpec { space, objectives: directions, searcher, scheduler, seed, max_trials: request.limits.max_jobs };
    // What cannot be a study is refused before there is a tuning job.
    Study::new(study.clone()).map_err(refused)?;
    let keeps_checkpoints = resumes && pauses(&study.scheduler);
    let pause = if resumes && promotes(&study.scheduler) { Pause::Park } else { Pause::Freeze };
    Ok(Design { study, objectives, checkpoints, keeps_checkpoints, pause, note })
}

/// What the API's own strategies are here.
fn usual(request: &CreateTuningJob) -> (Value, Value) {
    let searcher = match request.strategy {
        Strategy::Bayesian => "bayesian",
        Strategy::Random | Strategy::Hyperband => "random",
        Strategy::Grid => "grid",
    };
    let scheduler = match request.strategy {
        Strategy::Hyperband => "hyperband",
        _ if request.early_stopping => "median",
        _ => "none",
    };
    (json!(searcher), json!(scheduler))
}

/// A program without checkpoints would begin anew when it goes on after a pause: it is stopped
/// where others pause.
fn stopping_form(scheduler: &mut SchedulerSpec) -> Option<String> {
    let form = match scheduler {
        SchedulerSpec::Asha(options) => &mut options.form,
        SchedulerSpec::Hyperband(options) => &mut options.form,
        _ => return None,
    };
    *form = Form::Stopping;
    let what =
        "training jobs have no CheckpointConfig, so those that fall behind are stopped at once instead of being paused";
    Some(format!("{what}; with checkpoints, the search could come back to them"))
}

fn pauses(scheduler: &SchedulerSpec) -> bool {
    promotes(scheduler) || matches!(scheduler, SchedulerSpec::RoundRobin(_) | SchedulerSpec::Pbt(_))
}

/// Most of the trials that it pauses never go on. A built-in algorithm is ended there and leaves
/// its instance, with its library loaded and its channels read, to the next trial; frozen, it would
/// keep the instance to itself. Where trials take turns, each comes back, and soonest if it was
/// frozen.
fn promotes(scheduler: &SchedulerSpec) -> bool {
    match scheduler {
        SchedulerSpec::Asha(options) => options.form == Form::Promotion,
        SchedulerSpec::Hyperband(options) => options.form == Form::Promotion,
        _ => false,
    }
}

pub(super) fn direction(goal: Goal) -> Direction {
    match goal {
        Goal::Maximize => Direction::Maximize,
        Goal::Minimize => Direction::Minimize,
    }
}

fn space(
    ranges: &[ParameterRange],
    conditions: &BTreeMap<String, Condition>,
) -> Result<Space, shoal_tuner::SpaceError> {
    if let Some(unknown) = conditions.keys().find(|name| !ranges.iter().any(|range| range.name == **name)) {
        let problem = "has a condition, and is no hyperparameter that is tuned".to_owned();
        return Err(shoal_tuner::SpaceError { parameter: unknown.clone(), problem });
    }
    let parameter = |range: &ParameterRange| {
        let domain = match &range.values {
            RangeValues::Integer { min, max, scaling } => {
                Domain::Integer { min: *min, max: *max, scaling: scaled(*scaling) }
            }
            RangeValues::Continuous { min, max, scaling } => {
                Domain::Continuous { min: *min, max: *max, scaling: scaled(*scaling) }
            }
            RangeValues::Categorical(values) => Domain::Categorical { values: values.clone() },
        };
        Parameter { name: range.name.clone(), domain, condition: conditions.get(&range.name).cloned() }
    };
    Space::new(ranges.iter().map(parameter).collect())
}

fn scaled(scaling: ScalingType) -> Scaling {
    match scaling {
        ScalingType::Auto => Scaling::Auto,
        ScalingType::Linear => Scaling::Linear,
        ScalingType::Logarithmic => Scaling::Logarithmic,
        ScalingType::ReverseLogarithmic => Scaling::ReverseLogarithmic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(kind: &str, eta: u32, max: u32) -> SchedulerSpec {
        serde_json::from_value(json!({"kind": kind, "eta": eta, "max_resource": max})).unwrap()
    }

    /// The lowest rung, the brackets, and whether its rungs wait for several trials.
    fn steps(scheduler: &SchedulerSpec) -> (u32, Option<u32>, bool) {
        match scheduler {
            SchedulerSpec::Hyperband(it) => (it.min_resource, it.brackets, it.delayed),
            SchedulerSpec::Asha(it) => (it.min_resource, None, it.delayed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_rung_follows_from_the_number_of_trials() {
        for (kind, eta, max, trials, expected) in [
            // Up to 26 trials: one rung below the end.
            ("hyperband", 3, 81, 1, (27, Some(1), true)),
            ("hyperband", 3, 81, 26, (27, Some(1), true)),
            ("hyperband", 3, 81, 30, (9, Some(1), true)),
            ("hyperband", 3, 81, 99, (3, Some(1), true)),
            ("hyperband", 3, 81, 100, (3, None, true)),
            ("asha", 3, 81, 30, (9, None, true)),
            // No rung lies below one unit, and nothing overflows.
            ("asha", 3, 1, 30, (1, None, true)),
            ("asha", 2, 20_000, u32::MAX, (1, None, true)),
            ("hyperband", 10, 100, 0, (10, Some(1), true)),
        ] {
            let mut scheduler = scheduler(kind, eta, max);
            suit(&mut scheduler, trials);
            assert_eq!(steps(&scheduler), expected, "{kind} {eta} {max} {trials}");
        }
        let mut none = SchedulerSpec::default();
        suit(&mut none, 30);
        assert_eq!(none, SchedulerSpec::default());
    }

    #[test]
    fn more_trials_never_raise_the_first_rung() {
        for eta in 2..6 {
            let rungs = (1..2000).map(|trials| {
                let mut scheduler = scheduler("asha", eta, 1000);
                suit(&mut scheduler, trials);
                steps(&scheduler).0
            });
            let rungs: Vec<u32> = rungs.collect();
            assert!(rungs.is_sorted_by(|one, next| one >= next), "eta {eta}");
            assert!(rungs.iter().all(|rung| (1..=1000 / eta).contains(rung)), "eta {eta}: there is one below the end");
        }
    }

    #[test]
    fn a_tag_is_a_name_or_json_also_in_base64() {
        let encoded = base64_simd::STANDARD.encode_to_string(r#" {"strategy": "tpe"}"#);
        for (text, expected) in [
            ("tpe", Some("tpe")),
            (r#"  {"strategy": "tpe"}"#, Some("tpe")),
            (encoded.as_str(), Some("tpe")),
            ("{}", None),
            // These are base64, too, and no JSON.
            ("asha", Some("asha")),
            ("", Some("")),
        ] {
            assert_eq!(chosen(text).unwrap().strategy.as_deref(), expected, "{text}");
        }
        let broken = base64_simd::STANDARD.encode_to_string("{\"strategy\":");
        for wrong in ["{", r#"{"strategy": 7}"#, r#"{"strategies": "tpe"}"#, r#"{"objectives": [{}]}"#, &broken] {
            let message = chosen(wrong).unwrap_err().message;
            assert!(message.contains("is no strategy") && message.contains("such as 'tpe'"), "{wrong}: {message}");
        }
    }

    #[test]
    fn trials_without_checkpoints_are_stopped_and_not_paused() {
        for (kind, has_form) in [("asha", true), ("hyperband", true)] {
            let mut spec = scheduler(kind, 3, 9);
            assert!(promotes(&spec) && pauses(&spec), "{kind} pauses by default");
            assert_eq!(stopping_form(&mut spec).is_some(), has_form, "{kind}");
            assert!(!promotes(&spec) && !pauses(&spec), "{kind} is of the stopping form now");
        }
        let mut none = SchedulerSpec::default();
        assert!(stopping_form(&mut none).is_none() && !pauses(&none));
    }
}
