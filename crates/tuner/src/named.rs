//! Strategies by name: what people type (`tpe`, `asha`, `bayesian+hyperband`) for a searcher and a
//! scheduler with their usual options.

use serde_json::{Map, Value};

use crate::{Direction, SchedulerSpec, SearcherSpec, Space, SpecError, StudySpec, near};

/// Names of searchers that are their specification's `kind`, and what each is good for.
pub const SEARCHERS: &[(&str, &str)] = &[
    ("random", "independent draws; looks at no results"),
    ("sobol", "scrambled Sobol points: fills the space more evenly"),
    ("cma_es", "covariance matrix adaptation: numeric parameters, hundreds of trials, many workers"),
    ("grid", "every combination of categorical values; of numeric ones in so many steps"),
    ("tpe", "tree-structured Parzen estimator: cheap; conditional and categorical spaces; one objective or several"),
    ("bayesian", "Gaussian process, expected improvement: the most from few trials"),
    ("multi_fidelity", "Gaussian process over configurations and resources: for schedulers that stop or pause trials"),
];

/// Names of schedulers that are their specification's `kind`, and what each does.
pub const SCHEDULERS: &[(&str, &str)] = &[
    ("none", "every trial runs to its end"),
    ("median", "worse than the median of the others' running averages: stopped"),
    ("behind", "more than 10 per cent behind the best at the same resource: stopped"),
    ("asha", "asynchronous successive halving: the best third of each rung is promoted"),
    ("hyperband", "asynchronous Hyperband: brackets of successive halving"),
    (
        "round_robin",
        "trials take turns, unit by unit, and those too far behind are stopped: early decisions on few machines",
    ),
    ("pbt", "population based training: bad trials go on as perturbed copies of good ones"),
];

/// Which of the resources a scheduler takes, by its kind.
fn takes(kind: &str) -> &'static [&'static str] {
    match kind {
        "asha" | "hyperband" => &["min_resource", "max_resource", "eta"],
        "median" | "behind" => &["min_resource"],
        "pbt" => &["max_resource"],
        _ => &[],
    }
}

/// Names for both together: name, searcher, scheduler, and what they are good for.
pub const PAIRS: &[(&str, &str, &str, &str)] = &[
    ("bohb", "tpe", "hyperband", "a Parzen estimator proposes for Hyperband's brackets"),
    (
        "mobster",
        "multi_fidelity",
        "asha",
        "a Gaussian process over configurations and resources proposes for successive halving",
    ),
];

/// How much resource a trial may use, where the caller has said it: schedulers that were not told
/// otherwise are made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// No trial is stopped before.
    pub min: Option<u32>,
    /// A trial is over there.
    pub max: Option<u32>,
    /// One in `eta` goes on.
    pub eta: Option<u32>,
}

impl Resources {
    fn fill(self, options: &mut Map<String, Value>) {
        let takes = takes(options.get("kind").and_then(Value::as_str).unwrap_or_default());
        for (name, value) in [("min_resource", self.min), ("max_resource", self.max), ("eta", self.eta)] {
            if let (Some(value), true, false) = (value, takes.contains(&name), options.contains_key(name)) {
                options.insert(name.to_owned(), value.into());
            }
        }
        // The rule among which turns are taken.
        if let Some(Value::Object(rule)) = options.get_mut("rule") {
            self.fill(rule);
        }
    }
}

/// A searcher and a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategy {
    /// What proposes configurations.
    pub searcher: SearcherSpec,
    /// What decides who goes on.
    pub scheduler: SchedulerSpec,
}

impl Strategy {
    /// The strategy of a name: a searcher's, a scheduler's (with random search), one of [`PAIRS`],
    /// or a searcher and a scheduler joined by `+`. `-` is as good as `_`. `asha-stopping` and
    /// `hyperband-stopping` stop trials at rungs instead of pausing them there: for programs
    /// without checkpoints.
    ///
    /// # Errors
    /// There is none of this name (the text lists those that there are), or it needs a resource
    /// that is not given.
    pub fn named(name: &str, resources: Resources) -> Result<Self, SpecError> {
        let mut strategy = Self { searcher: SearcherSpec::Random, scheduler: SchedulerSpec::None };
        for part in name.split('+') {
            let part = plain(part);
            if let Some((_, searcher, scheduler, _)) = PAIRS.iter().find(|(name, ..)| *name == part) {
                strategy.searcher = searcher_named(searcher)?;
                strategy.scheduler = scheduler_named(scheduler, resources)?;
            } else if SCHEDULERS.iter().any(|(name, _)| *name == part) {
                strategy.scheduler = scheduler_named(&part, resources)?;
            } else if let Some(kind) =
                part.strip_suffix("_stopping").filter(|kind| ["asha", "hyperband"].contains(kind))
            {
                strategy.scheduler = scheduler(&serde_json::json!({ "kind": kind, "form": "stopping" }), resources)?;
            } else if SEARCHERS.iter().any(|(name, _)| *name == part) {
                strategy.searcher = searcher_named(&part)?;
            } else {
                return Err(unknown("strategy", &part, names()));
            }
        }
        Ok(strategy)
    }
}

/// All names that [`Strategy::named`] knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    let singles = SEARCHERS.iter().chain(SCHEDULERS).map(|(name, _)| *name);
    singles.chain(PAIRS.iter().map(|(name, ..)| *name))
}

/// A searcher's name, or its specification as JSON.
///
/// # Errors
/// There is none like it.
pub fn searcher(value: &Value) -> Result<SearcherSpec, SpecError> {
    match value {
        Value::String(name) => searcher_named(name),
        spec => parse("searcher", spec.clone()),
    }
}

/// A scheduler's name, or its specification as JSON; what it does not say of resources is taken
/// from `resources`.
///
/// # Errors
/// There is none like it, or it needs a resource that is not given.
pub fn scheduler(value: &Value, resources: Resources) -> Result<SchedulerSpec, SpecError> {
    match value {
        Value::String(name) => scheduler_named(name, resources),
        Value::Object(options) => {
            let mut options = options.clone();
            resources.fill(&mut options);
            parse("scheduler", Value::Object(options))
        }
        spec => parse("scheduler", spec.clone()),
    }
}

fn searcher_named(name: &str) -> Result<SearcherSpec, SpecError> {
    let name = plain(name);
    if !SEARCHERS.iter().any(|(known, _)| *known == name) {
        return Err(unknown("searcher", &name, SEARCHERS.iter().map(|(name, _)| *name)));
    }
    parse("searcher", serde_json::json!({ "kind": name }))
}

fn scheduler_named(name: &str, resources: Resources) -> Result<SchedulerSpec, SpecError> {
    let name = plain(name);
    if !SCHEDULERS.iter().any(|(known, _)| *known == name) {
        return Err(unknown("scheduler", &name, SCHEDULERS.iter().map(|(name, _)| *name)));
    }
    let mut options = Map::from_iter([("kind".to_owned(), Value::String(name))]);
    resources.fill(&mut options);
    parse("scheduler", Value::Object(options))
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, spec: Value) -> Result<T, SpecError> {
    serde_json::from_value(spec).map_err(|error| SpecError::Named(format!("{what}: {error}")))
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' '], "_")
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> SpecError {
    let known = Vec::from_iter(known);
    let hint = near(name, known.iter().copied());
    SpecError::Named(format!(
        "there is no {what} {name:?}{hint}{} there are: {}",
        if hint.is_empty() { ";" } else { "" },
        known.join(", ")
    ))
}

impl StudySpec {
    /// A study with the strategy of a name ([`Strategy::named`]), for a minimum.
    ///
    /// # Errors
    /// As [`Strategy::named`].
    pub fn named(name: &str, space: Space, seed: u64, resources: Resources) -> Result<Self, SpecError> {
        let Strategy { searcher, scheduler } = Strategy::named(name, resources)?;
        Ok(Self { space, objectives: vec![Direction::Minimize], searcher, scheduler, seed, max_trials: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCES: Resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };

    /// The kinds that serde knows, by the message that it gives for one that it does not.
    fn kinds<T: serde::de::DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
        let error = serde_json::from_value::<T>(serde_json::json!({"kind": "?"})).unwrap_err().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_has_a_name() {
        for kind in kinds::<SearcherSpec>() {
            assert!(SEARCHERS.iter().any(|(name, _)| *name == kind), "{kind} is not in named::SEARCHERS");
        }
        for kind in kinds::<SchedulerSpec>() {
            assert!(SCHEDULERS.iter().any(|(name, _)| *name == kind), "{kind} is not in named::SCHEDULERS");
        }
    }

    #[test]
    fn every_name_is_a_strategy() {
        for name in names() {
            Strategy::named(name, RESOURCES).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for (searcher, _) in SEARCHERS {
            for (scheduler, _) in SCHEDULERS {
                let joined = format!("{}+{scheduler}", searcher.replace('_', "-"));
                Strategy::named(&joined, RESOURCES).unwrap_or_else(|error| panic!("{joined}: {error}"));
            }
        }
    }

    #[test]
    fn forms_have_names() {
        let Strategy { scheduler, .. } = Strategy::named("sobol+asha-stopping", RESOURCES).unwrap();
        assert!(matches!(scheduler, SchedulerSpec::Asha(options) if options.form == crate::schedule::Form::Stopping));
    }

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let error = Strategy::named("newton", RESOURCES).unwrap_err().to_string();
        assert!(error.starts_with("there is no strategy \"newton\"; there are: random, "), "{error}");
        let error = Strategy::named("hyperbnd", RESOURCES).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no strategy \"hyperbnd\"; did you mean hyperband? there are: random, "),
            "{error}"
        );
        let error = searcher(&serde_json::json!({"kind": "newton"})).unwrap_err().to_string();
        assert!(error.contains("unknown variant `newton`"), "{error}");
    }
}
