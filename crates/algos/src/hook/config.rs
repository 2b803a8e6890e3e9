//! `debughookconfig.json` as collections and the steps at which each is saved. All values in it are
//! texts. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fancy_regex::Regex;
use serde_json::Value;
use shoal_contract::tensors::{Collection, Collections, Mode, SaveSteps};

/// The collection of all tensors.
pub(super) const ALL: &str = "all";
/// The collection of the hook's own `include_regex`.
const DEFAULT: &str = "default";
/// Where tensors are by default.
const DIRECTORY: &str = "/opt/ml/output/tensors";
/// The mode of steps that are neither training's nor evaluation's alone.
const MODE: &str = "global.";
/// Names of tensors that are remembered.
const MAX_NAMES: usize = 100_000;

/// What an algorithm saves.
#[derive(Debug)]
pub(crate) struct Defaults {
    /// Its collections, and the expressions that readers find for their tensors.
    pub(crate) collections: &'static [(&'static str, &'static [&'static str])],
    /// Those that are saved without being named.
    pub(crate) saved: &'static [&'static str],
    /// Steps from one that is saved to the next.
    pub(crate) interval: u64,
}

/// What is saved when.
#[derive(Debug)]
pub(super) struct HookConfig {
    pub(super) directory: PathBuf,
    pub(super) saves_all_workers: bool,
    /// For the log.
    pub(super) notes: Vec<String>,
    collections: BTreeMap<String, Plan>,
    defaults: &'static Defaults,
    names: BTreeSet<String>,
}

/// A collection.
#[derive(Debug)]
struct Plan {
    is_saved: bool,
    steps: SaveSteps,
    /// Of the configuration.
    expressions: Vec<Expression>,
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct Expression {
    text: String,
    regex: Regex,
    has_matched: bool,
}

impl HookConfig {
    pub(super) fn parse(text: &[u8], defaults: &'static Defaults) -> Result<Self, String> {
        let config: Value =
            serde_json::from_slice(text).map_err(|error| format!("DebugHookConfig is not JSON: {error}"))?;
        let parameters = &config["HookParameters"];
        let base = steps(parameters, &every(defaults.interval))?;
        let mut collections = BTreeMap::new();
        for name in defaults.collections.iter().map(|it| it.0).chain([ALL, DEFAULT]) {
            let is_saved = defaults.saved.contains(&name) || name == ALL && is_true(parameters, "save_all")?;
            collections.insert(name.to_owned(), Plan::new(is_saved, base.clone()));
        }
        let own = expressions(parameters)?;
        if let Some(plan) = collections.get_mut(DEFAULT).filter(|_| !own.is_empty()) {
            plan.is_saved = true;
            plan.expressions = own;
        }
        // The SDK sends a rule's own configuration beside the user's, in no order.
        let mut configured = BTreeSet::new();
        for one in config["CollectionConfigurations"].as_array().into_iter().flatten() {
            let name = one["CollectionName"].as_str().ok_or("a collection has no CollectionName")?;
            let parameters = &one["CollectionParameters"];
            let plan = collections.entry(name.to_owned()).or_insert_with(|| Plan::new(true, base.clone()));
            plan.is_saved = true;
            let steps = steps(parameters, &base)?;
            plan.steps = if configured.insert(name) { steps } else { joined(&plan.steps, steps) };
            plan.expressions.extend(expressions(parameters)?);
        }
        let directory = config["LocalPath"].as_str().filter(|path| !path.is_empty()).unwrap_or(DIRECTORY);
        let notes = parameters["reductions"]
            .is_string()
            .then(|| "Debugger: reductions are not for this algorithm, and tensors are saved whole".to_owned());
        Ok(Self {
            directory: directory.into(),
            saves_all_workers: parameters["include_workers"] == "all",
            notes: notes.into_iter().collect(),
            collections,
            defaults,
            names: BTreeSet::new(),
        })
    }

    /// Collections that are saved at this step.
    pub(super) fn due(&self, step: u64) -> BTreeSet<String> {
        let is_due = |plan: &Plan| plan.is_saved && is_due(&plan.steps, step);
        self.collections.iter().filter(|(_, plan)| is_due(plan)).map(|(name, _)| name.clone()).collect()
    }

    /// Puts a tensor into its collections; whether one of them is due.
    pub(super) fn add(&mut self, tensor: &str, collections: &[&str], due: &BTreeSet<String>) -> bool {
        if self.names.len() < MAX_NAMES {
            self.names.insert(tensor.to_owned());
        }
        let mut is_due = false;
        for (name, plan) in &mut self.collections {
            let mut is_in = name == ALL || collections.contains(&name.as_str());
            for expression in &mut plan.expressions {
                // One that needs too long does not match.
                let matches = expression.regex.is_match(tensor).unwrap_or(false);
                expression.has_matched |= matches;
                is_in |= matches;
            }
            if is_in && plan.is_saved {
                if name != ALL && plan.names.len() < MAX_NAMES {
                    plan.names.insert(tensor.to_owned());
                }
                is_due |= due.contains(name);
            }
        }
        is_due
    }

    /// Names of tensors so far.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Collections and expressions that save nothing; `listed` are names of tensors.
    pub(super) fn unmatched(&self, listed: &str) -> Vec<String> {
        let known = Vec::from_iter(self.defaults.collections.iter().map(|it| it.0));
        let mut sorted = known.clone();
        sorted.sort_unstable();
        let mut lines = Vec::new();
        for (name, plan) in &self.collections {
            let is_own = !known.contains(&name.as_str()) && ![ALL, DEFAULT].contains(&name.as_str());
            if is_own && plan.expressions.is_empty() {
                lines.push(format!(
                    "The collection {name} is none of the algorithm's ({}) and has no include_regex: nothing is in it",
                    sorted.join(", ")
                ));
            }
            for expression in plan.expressions.iter().filter(|it| !it.has_matched) {
                let text = &expression.text;
                lines.push(format!("No tensor has a name that {text} (collection {name}) fits. There are: {listed}"));
            }
        }
        lines
    }

    /// The collections file.
    pub(super) fn collections_file(&self, workers: u64) -> Vec<u8> {
        let of_defaults = |name: &str| {
            let found = self.defaults.collections.iter().find(|(known, _)| *known == name);
            found.map_or(&[][..], |(_, expressions)| *expressions)
        };
        let collection = |(name, plan): (&String, &Plan)| {
            let own = plan.expressions.iter().map(|expression| expression.text.as_str());
            let all = if name == ALL && plan.is_saved { &[".*"][..] } else { &[] };
            let expressions = Vec::from_iter(of_defaults(name).iter().chain(all).copied().chain(own));
            let names = Vec::from_iter(plan.names.iter().map(String::as_str));
            let modes = [Mode::Train, Mode::Eval, Mode::Predict, Mode::Global];
            let steps = modes.map(|mode| (mode.name().to_owned(), plan.steps.clone()));
            let mut collection = Collection::new(name, &expressions, &names);
            collection.save_config = Some(steps.into());
            collection
        };
        Collections::new(workers, self.collections.iter().map(collection)).to_bytes()
    }
}

impl Plan {
    fn new(is_saved: bool, steps: SaveSteps) -> Self {
        Self { is_saved, steps, expressions: Vec::new(), names: BTreeSet::new() }
    }
}

fn every(save_interval: u64) -> SaveSteps {
    SaveSteps { save_interval, save_steps: Vec::new(), start_step: 0, end_step: None }
}

/// For a collection that is configured twice: the smaller interval, and the steps of both.
fn joined(one: &SaveSteps, mut other: SaveSteps) -> SaveSteps {
    other.save_steps.extend(&one.save_steps);
    other.save_steps.sort_unstable();
    other.save_steps.dedup();
    SaveSteps {
        save_interval: one.save_interval.min(other.save_interval),
        start_step: one.start_step.min(other.start_step),
        end_step: one.end_step.zip(other.end_step).map(|(one, other)| one.max(other)),
        ..other
    }
}

fn is_due(steps: &SaveSteps, step: u64) -> bool {
    let is_in_range = step >= steps.start_step && steps.end_step.is_none_or(|end| step < end);
    steps.save_steps.contains(&step) || is_in_range && step.is_multiple_of(steps.save_interval)
}

/// A parameter of the mode, or else of all.
fn parameter<'a>(parameters: &'a Value, name: &str) -> Option<&'a str> {
    let of_mode = parameters[format!("{MODE}{name}")].as_str();
    of_mode.or_else(|| parameters[name].as_str()).filter(|value| !value.is_empty())
}

/// The steps of these parameters; what is missing is taken from `base`.
fn steps(parameters: &Value, base: &SaveSteps) -> Result<SaveSteps, String> {
    let number = |name: &str| {
        let parse = |text: &str| text.trim().parse().map_err(|_| format!("{name}={text} must be a whole number"));
        parameter(parameters, name).map(parse).transpose()
    };
    let listed = |text: &str| {
        let parse = |step: &str| step.trim().parse::<u64>();
        text.split(',')
            .map(parse)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| format!("save_steps={text} must be whole numbers with commas between them"))
    };
    let save_interval = number("save_interval")?.unwrap_or(base.save_interval);
    if save_interval == 0 {
        return Err("save_interval=0 must be at least 1".to_owned());
    }
    let save_steps = parameter(parameters, "save_steps").map(listed).transpose()?;
    Ok(SaveSteps {
        save_interval,
        save_steps: save_steps.unwrap_or_else(|| base.save_steps.clone()),
        start_step: number("start_step")?.unwrap_or(base.start_step),
        end_step: number("end_step")?.or(base.end_step),
    })
}

/// `include_regex`, with commas between expressions.
fn expressions(parameters: &Value) -> Result<Vec<Expression>, String> {
    let given = parameters["include_regex"].as_str().unwrap_or_default();
    let parts = given.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|text| match Regex::new(text) {
            Ok(regex) => Ok(Expression { text: text.to_owned(), regex, has_matched: false }),
            Err(error) => Err(format!("include_regex: {text} is not a regular expression: {error}")),
        })
        .collect()
}

fn is_true(parameters: &Value, name: &str) -> Result<bool, String> {
    match parameters[name].as_str().map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("{name}={other} must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DEFAULTS: Defaults =
        Defaults { collections: &[("metrics", &[]), ("labels", &[])], saved: &["metrics"], interval: 10 };

    fn due(config: &str, step: u64) -> String {
        let config = HookConfig::parse(config.as_bytes(), &DEFAULTS).unwrap_or_else(|error| panic!("{error}"));
        Vec::from_iter(config.due(step)).join(" ")
    }

    #[test]
    fn steps_are_those_of_the_configuration() {
        assert_eq!([due("{}", 0), due("{}", 5), due("{}", 10)], ["metrics", "", "metrics"]);
        let config = r#"{"HookParameters": {"save_interval": "4", "global.start_step": "8", "end_step": "16"},
            "CollectionConfigurations": [{"CollectionName": "labels", "CollectionParameters": {"save_interval": "1000", "save_steps": "3, 9"}}]}"#;
        for (step, expected) in [(0, ""), (3, "labels"), (8, "metrics"), (9, "labels"), (12, "metrics"), (16, "")] {
            assert_eq!(due(config, step), expected, "step {step}");
        }
        assert_eq!(due(r#"{"HookParameters": {"save_all": "True", "include_regex": "x"}}"#, 0), "all default metrics");
        // As a rule of the SDK brings its own, in any order.
        for [first, second] in [[r#""save_interval": "4", "end_step": "9""#, ""], ["", r#""save_interval": "4""#]] {
            let one = |given: &str| format!(r#"{{"CollectionName": "labels", "CollectionParameters": {{{given}}}}}"#);
            let twice = format!(r#"{{"CollectionConfigurations": [{}, {}]}}"#, one(first), one(second));
            assert_eq!([8, 10, 12].map(|step| due(&twice, step)), ["labels", "metrics", "labels"], "{twice}");
        }
        let null = r#"{"CollectionConfigurations": [{"CollectionName": "labels", "CollectionParameters": null}]}"#;
        assert_eq!(due(null, 10), "labels metrics");
    }

    #[test]
    fn mistakes_are_explained() {
        for (parameters, expected) in [
            (r#""save_interval": "0""#, "save_interval=0 must be at least 1"),
            (r#""start_step": "-1""#, "start_step=-1 must be a whole number"),
            (r#""save_steps": "1;2""#, "save_steps=1;2 must be whole numbers"),
            (r#""save_all": "perhaps""#, "save_all=perhaps must be true or false"),
        ] {
            let config = format!(r#"{{"HookParameters": {{{parameters}}}}}"#);
            let error = HookConfig::parse(config.as_bytes(), &DEFAULTS).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
