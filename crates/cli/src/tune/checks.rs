//! What can be told of a tuning job before anything is sent or uploaded: in the words of the command line, with what would be right. The server checks
//! all of it again, in the words of the API.

use serde_json::{Map, Value};
use shoal_algos::{Algorithm, Algorithms, MeasuredOn, Resource};
use shoal_tuner::near;
use shoal_wire::EPOCH_HYPERPARAMETERS;

use super::{TuneArgs, request::MOST_NAME, strategy::Strategy};
use crate::train::builtin;

/// Longest S3 URI, and longest key in bytes.
const MOST_URI: usize = 1024;

/// What follows a tuning job's name in those of its trials, in characters: `-1000000-0123abcd`.
const TRIAL_SUFFIX: usize = 17;

/// Room for the name of a checkpoint's file.
const FILE_NAME: usize = 64;

/// Looks at a request as flags and file have made it.
///
/// # Errors
/// The first mistake, and what to do about it.
pub(super) fn check(request: &Value, args: &TuneArgs, algorithms: Algorithms) -> Result<(), String> {
    let name = request["HyperParameterTuningJobName"].as_str().unwrap_or_default();
    job_name(name)?;
    let strategy = args.strategy.as_deref().map(Strategy::of).transpose()?;
    let config = &request["HyperParameterTuningJobConfig"];
    let listed = request["TrainingJobDefinitions"].as_array().into_iter().flatten();
    for definition in request.get("TrainingJobDefinition").into_iter().chain(listed) {
        let definition = Definition::of(config, definition, algorithms);
        definition.has_an_objective()?;
        definition.has_something_to_tune(!request["Autotune"].is_null())?;
        definition.tunes_nothing_that_is_fixed()?;
        definition.reads_its_objective()?;
        definition.can_be_searched(strategy.as_ref(), config)?;
        definition.has_known_hyperparameters()?;
        definition.keeps_checkpoints_somewhere(name)?;
        definition.measures_its_objective()?;
    }
    Ok(())
}

/// Letters, digits and hyphens, few of them.
fn job_name(name: &str) -> Result<(), String> {
    let length = name.chars().count();
    if length > MOST_NAME {
        return Err(format!(
            "--name {name}: a tuning job's name has {MOST_NAME} characters at most, as its trials' names begin with it; this one has {length}"
        ));
    }
    let is_made_of = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if name.is_empty() || !is_made_of || name.starts_with('-') || name.ends_with('-') {
        return Err(format!("--name {name}: a tuning job's name is of letters, digits, and hyphens between them"));
    }
    Ok(())
}

/// One training job definition with what the tuning job says of it.
struct Definition<'a> {
    raw: &'a Value,
    /// `Type` and `MetricName`.
    objective: Option<(&'a str, &'a str)>,
    /// Name, which list of `ParameterRanges`, and its values as they are typed: both ends, or all.
    ranges: Vec<(&'a str, &'a str, Vec<&'a str>)>,
    fixed: Option<&'a Map<String, Value>>,
    algorithm: Option<&'static Algorithm>,
    /// What may say how long a trial is: of the algorithm, or of all of them, as scripts use their names.
    resources: Vec<Resource>,
}

impl<'a> Definition<'a> {
    fn of(config: &'a Value, raw: &'a Value, algorithms: Algorithms) -> Self {
        let algorithm = builtin::of(raw, &raw["StaticHyperParameters"], algorithms);
        let candidates = algorithms.iter().filter(|it| algorithm.is_none_or(|algorithm| it.name == algorithm.name));
        let first = |here: &'a Value, there: &'a Value| if here.is_object() { here } else { there };
        let objective = first(&raw["TuningObjective"], &config["HyperParameterTuningJobObjective"]);
        let ranges = first(&raw["HyperParameterRanges"], &config["ParameterRanges"]);
        Self {
            raw,
            objective: objective["MetricName"].as_str().map(|metric| (objective["Type"].as_str().unwrap_or("Maximize"), metric)),
            ranges: ranges.as_object().into_iter().flatten().flat_map(|(list, entries)| ranges_of(list, entries)).collect(),
            fixed: raw["StaticHyperParameters"].as_object(),
            algorithm,
            resources: candidates.filter_map(|it| it.hyperparameters.resource).collect(),
        }
    }

    fn has_an_objective(&self) -> Result<(), String> {
        if self.objective.is_some() {
            return Ok(());
        }
        let examples = match self.algorithm {
            Some(algorithm) => {
                let names: Vec<String> = algorithm.objectives().take(3).map(|(name, _)| name).collect();
                format!("; this image has {}, and more", names.join(", "))
            }
            None => format!("; {}", how_to_read("loss")),
        };
        Err(format!("what shall be optimised? Give --objective METRIC, or --minimize or --maximize METRIC{examples}"))
    }

    fn has_something_to_tune(&self, autotune: bool) -> Result<(), String> {
        if autotune || !self.ranges.is_empty() {
            return Ok(());
        }
        let recommended = self
            .algorithm
            .map_or(&[][..], |algorithm| algorithm.hyperparameters.tunable)
            .iter()
            .filter(|it| !self.is_fixed(it.name))
            .take(3);
        let ranges: Vec<String> = recommended.map(|it| format!("--range {}={}..{}", it.name, it.min, it.max)).collect();
        let example = if ranges.is_empty() {
            "--range lr=1e-5..1e-1,log for a number, --choice optimizer=sgd,adam for a choice".to_owned()
        } else {
            format!("as in {}", ranges.join(" "))
        };
        Err(format!("what shall be tuned? Give --range NAME=MIN..MAX or --choice NAME=VALUE,VALUE.. ({example})"))
    }

    fn is_fixed(&self, name: &str) -> bool {
        self.fixed.is_some_and(|fixed| fixed.contains_key(name))
    }

    fn tunes_nothing_that_is_fixed(&self) -> Result<(), String> {
        match self.ranges.iter().find(|(name, ..)| self.is_fixed(name)) {
            None => Ok(()),
            Some((name, ..)) => Err(format!(
                "--hp {name} fixes what --range or --choice {name} tunes, and so does a script's argument --{name}; a hyperparameter is one or the other: \
                 leave one out"
            )),
        }
    }

    /// The objective is a metric that somebody reads from what trials print.
    fn reads_its_objective(&self) -> Result<(), String> {
        let Some((kind, metric)) = self.objective else { return Ok(()) };
        let given = self.raw["AlgorithmSpecification"]["MetricDefinitions"].as_array().map_or(&[][..], Vec::as_slice);
        for definition in given {
            let (name, regex) = (definition["Name"].as_str().unwrap_or_default(), definition["Regex"].as_str().unwrap_or_default());
            if !has_a_group(regex) {
                return Err(format!(
                    "--metric '{name}={regex}': the value is what the first group of the expression finds, and it has none; put the number in \
                     parentheses, as in 'loss: (\\S+)'"
                ));
            }
        }
        if let Some(algorithm) = self.algorithm {
            let all: Vec<_> = algorithm.objectives().collect();
            let Some((_, known)) = all.iter().find(|(name, _)| name == metric) else {
                let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
                let hint = near(metric, names.iter().copied());
                return Err(format!(
                    "the objective {metric}: {} has no such metric for tuning{hint} (it has {})",
                    algorithm.name,
                    names.join(", ")
                ));
            };
            let (right, flag) = if known.is_maximized { ("Maximize", "maximize") } else { ("Minimize", "minimize") };
            if kind != right {
                let better = if known.is_maximized { "more" } else { "less" };
                return Err(format!("the objective {metric}: better is {better}; give --{flag} {metric}"));
            }
            return Ok(());
        }
        let names: Vec<&str> = given.iter().filter_map(|it| it["Name"].as_str()).collect();
        if names.contains(&metric) {
            return Ok(());
        }
        if names.is_empty() {
            return Err(format!("the objective {metric}: nothing reads it from what the program prints; {}", how_to_read(metric)));
        }
        Err(format!(
            "the objective {metric}: no --metric has this name{}; there {} {}",
            near(metric, names.iter().copied()),
            if names.len() == 1 { "is" } else { "are" },
            names.join(", ")
        ))
    }

    /// The strategy can work with these ranges, and knows what it has to.
    fn can_be_searched(&self, strategy: Option<&Strategy>, config: &Value) -> Result<(), String> {
        let is_grid = strategy.map_or(config["Strategy"] == "Grid", |it| *it == Strategy::OfTheApi("Grid"));
        if let (true, Some((name, ..))) = (is_grid, self.ranges.iter().find(|(_, list, _)| *list != "CategoricalParameterRanges")) {
            return Err(format!(
                "--strategy grid tries every combination of choices, and {name} is a range: list its values (--choice {name}=A,B,C), or say in how many \
                 steps ranges are walked: --strategy '{{\"grid\":{{\"points\":5}}}}'"
            ));
        }
        let given = &config["StrategyConfig"]["HyperbandStrategyConfig"];
        let (min, max) = (given["MinResource"].as_u64(), given["MaxResource"].as_u64());
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            return Err(format!("--min-resource {min} is greater than --max-resource {max}"));
        }
        let needs = strategy.map_or(config["Strategy"] == "Hyperband", Strategy::needs_max_resource);
        // AWS's Hyperband infers it from these names only; strategies of ours do from those of algorithms, too.
        let is_of_the_api = strategy.is_none_or(|it| matches!(it, Strategy::OfTheApi(_)));
        let is_inferred = EPOCH_HYPERPARAMETERS.iter().any(|name| self.is_fixed(name))
            || !is_of_the_api && self.resources.iter().any(|resource| self.is_fixed(resource.name));
        if needs && max.is_none() && !is_inferred {
            let name = strategy.map_or("hyperband".to_owned(), Strategy::name);
            let metric = self.objective.map_or("the objective", |(_, metric)| metric);
            let unit = self.algorithm.and_then(|algorithm| algorithm.hyperparameters.resource).map_or("epochs", |resource| resource.unit);
            let mut given = self.resources.iter().filter_map(|resource| self.fixed?.get(resource.name)?.as_str());
            let example = given.next().unwrap_or("81");
            return Err(format!(
                "--strategy {name} has to know after how many values of {metric} ({unit}) a trial is whole: give --max-resource N, as in \
                 --max-resource {example}"
            ));
        }
        Ok(())
    }

    /// A built-in algorithm takes each hyperparameter and each value; its trials would fail one by one otherwise.
    fn has_known_hyperparameters(&self) -> Result<(), String> {
        let Some(algorithm) = self.algorithm else { return Ok(()) };
        let fixed = self.fixed.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?, "--hp")));
        let tuned = self.ranges.iter().flat_map(|(name, list, values)| {
            let flag = if *list == "CategoricalParameterRanges" { "--choice" } else { "--range" };
            values.iter().map(move |value| (*name, *value, flag))
        });
        builtin::hyperparameters(algorithm, fixed.chain(tuned))?;
        let has = |name: &str| self.is_fixed(name) || self.ranges.iter().any(|(tuned, ..)| *tuned == name);
        builtin::required(algorithm, has, ", or tune it")?;
        builtin::channels(algorithm, self.raw)
    }

    /// The channel of a built-in algorithm's objective is there.
    fn measures_its_objective(&self) -> Result<(), String> {
        let (Some((_, metric)), Some(algorithm)) = (self.objective, self.algorithm) else { return Ok(()) };
        let objective = algorithm.objectives().find(|(name, _)| name == metric);
        let Some(MeasuredOn { channel, unless }) = objective.and_then(|(_, objective)| objective.measured_on) else { return Ok(()) };
        let mut channels = self.raw["InputDataConfig"].as_array().into_iter().flatten();
        if channels.any(|given| given["ChannelName"] == channel) || unless.is_some_and(|name| self.is_fixed(name)) {
            return Ok(());
        }
        Err(format!("the objective {metric} is measured on the channel {channel}, and there is none: give --channel {channel}=FILE"))
    }

    fn keeps_checkpoints_somewhere(&self, name: &str) -> Result<(), String> {
        let Some(uri) = self.raw["CheckpointConfig"]["S3Uri"].as_str() else { return Ok(()) };
        let bucket = uri.strip_prefix("s3://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        if bucket.is_empty() {
            return Err(format!(
                "--checkpoints {uri}: wanted s3://BUCKET/PREFIX; checkpoints are kept in this server's S3, not in a directory"
            ));
        }
        let most = MOST_URI - name.len() - TRIAL_SUFFIX - FILE_NAME;
        if uri.len() > most {
            return Err(format!(
                "--checkpoints: the address is {} characters long; with the names of trials and of files below it at most {most} are possible",
                uri.len()
            ));
        }
        Ok(())
    }
}

/// `--metric` for a program whose lines nobody knows.
fn how_to_read(metric: &str) -> String {
    format!(
        "give --metric '{metric}=REGEX', whose first group is the value: --metric '{metric}={metric}: (\\S+)' reads lines such as {metric}: 0.25"
    )
}

fn ranges_of<'a>(list: &'a str, entries: &'a Value) -> impl Iterator<Item = (&'a str, &'a str, Vec<&'a str>)> {
    entries.as_array().into_iter().flatten().filter_map(move |entry| {
        let values = match entry["Values"].as_array() {
            Some(values) => values.iter().filter_map(Value::as_str).collect(),
            None => [&entry["MinValue"], &entry["MaxValue"]].into_iter().filter_map(Value::as_str).collect(),
        };
        Some((entry["Name"].as_str()?, list, values))
    })
}

/// Whether some parenthesis of a regular expression finds something: it is not escaped, in no class, and not of the kind that only groups or looks around.
fn has_a_group(regex: &str) -> bool {
    let (mut escaped, mut in_class) = (false, false);
    for (at, c) in regex.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let rest = &regex[at + 1..];
                let is_named = rest.starts_with("?P<") || (rest.starts_with("?<") && !rest.starts_with("?<=") && !rest.starts_with("?<!"));
                if !rest.starts_with('?') || is_named {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}
