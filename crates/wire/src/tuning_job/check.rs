//! Rules of `CreateHyperParameterTuningJob` that a table of shapes cannot say and that need no
//! state.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{Call, Error, ErrorCode, Input, call::read, refusal::refuse, tags};

use super::{
    CompletionCriteria, CreateTuningJob, ListTrials, Objective, ResourceLimits, Strategy, TuningDefinition, WarmStart,
    child, combinations, ranges, request,
};

/// Most trials of one tuning job, and most that run at a time: AWS's greatest quotas (10,000 and
/// 100), ten times.
const MOST_JOBS: u32 = 100_000;
pub(crate) const MOST_PARALLEL: u32 = 1_000;
/// `MaxResource` at most.
const MOST_RESOURCE: u32 = 20_000;
/// So many training jobs in a row without an improvement end a tuning job of Autotune that nothing
/// else would end.
const AUTOTUNE_NOT_IMPROVING: u32 = 30;
/// Static and tuned hyperparameters together.
const MOST_HYPERPARAMETERS: usize = 100;
/// Static hyperparameters from which AWS's Hyperband infers `MaxResource`.
const EPOCH_HYPERPARAMETERS: [&str; 5] = ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"];

/// Checks a validated request.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn create_tuning_job(input: Value) -> Result<CreateTuningJob, Error> {
    let request: request::CreateTuningJobRequest = read(input.clone())?;
    let Value::Object(raw) = input else { return Err(Error::validation("The request is not an object.")) };
    let tags = tags::check(request.tags)?;
    if tags.iter().any(|tag| tag.key == tags::MIN_INSTANCES_TAG) {
        return Err(Error::validation(format!(
            "Invalid value at 'tags': trials of a tuning job need all of their instances; leave the tag '{}' out.",
            tags::MIN_INSTANCES_TAG
        )));
    }
    let config = request.hyper_parameter_tuning_job_config;
    let autotune = request.autotune.is_some();
    let (min_resource, max_resource) = hyperband(&config)?;
    let mut limits = limits(&config.resource_limits)?;
    let mut completion = completion(&config.tuning_job_completion_criteria)?;
    let (sources, listed) = sources(request.training_job_definition, request.training_job_definitions)?;
    let mut shared = Shared {
        tuning_job: &request.hyper_parameter_tuning_job_name,
        strategy: config.strategy,
        autotune,
        listed,
        objective: config.hyper_parameter_tuning_job_objective,
        ranges: config.parameter_ranges,
        max_resource,
    };
    let mut definitions = Vec::with_capacity(sources.len());
    let mut names = BTreeSet::new();
    for (path, source) in sources {
        let definition = definition(&mut shared, source, path)?;
        if let Some(name) = &definition.name
            && !names.insert(name.clone())
        {
            return refuse(
                &format!("{}.definitionName", definition.path),
                &format!("the definition '{name}' is there twice"),
            );
        }
        if let Some(first) = definitions.first().map(|it: &TuningDefinition| &it.objective)
            && first.goal != definition.objective.goal
        {
            let what = format!(
                "it is {}, and the first definition's is {}",
                definition.objective.goal.as_str(),
                first.goal.as_str()
            );
            return refuse(
                &format!("{}.tuningObjective.type", definition.path),
                &format!("{what}; one tuning job finds one best training job"),
            );
        }
        definitions.push(definition);
    }
    if let Some(definition) =
        definitions.iter().find(|it| it.max_resource.is_some_and(|max| min_resource.is_some_and(|min| min > max)))
    {
        return refuse(
            &format!("{AROUND}.strategyConfig.hyperbandStrategyConfig.minResource"),
            &format!(
                "{} is greater than the MaxResource of '{}', {}",
                min_resource.unwrap_or_default(),
                definition.path,
                definition.max_resource.unwrap_or_default()
            ),
        );
    }
    count(config.strategy, &definitions, &mut limits, &mut completion, autotune, &tags)?;
    Ok(CreateTuningJob {
        name: request.hyper_parameter_tuning_job_name,
        strategy: config.strategy,
        min_resource,
        limits,
        early_stopping: config.training_job_early_stopping_type.as_deref() == Some("Auto"),
        completion,
        seed: config.random_seed,
        definitions,
        warm_start: request.warm_start_config.map(warm_start).transpose()?,
        autotune,
        tags,
        raw,
    })
}

/// What definitions take from the request around them.
struct Shared<'a> {
    tuning_job: &'a str,
    strategy: Strategy,
    autotune: bool,
    /// The request has a list of definitions, each with an objective and ranges of its own.
    listed: bool,
    objective: Option<request::Objective>,
    ranges: Option<request::ParameterRanges>,
    max_resource: Option<u32>,
}

/// The least and the greatest resource that the request names.
fn hyperband(config: &request::Config) -> Result<(Option<u32>, Option<u32>), Error> {
    let path = AROUND;
    let hyperband = config.strategy_config.hyperband_strategy_config.as_ref();
    if config.strategy != Strategy::Hyperband {
        if hyperband.is_some() {
            return refuse(
                &format!("{path}.strategyConfig.hyperbandStrategyConfig"),
                &format!(
                    "it is for the strategy Hyperband only, and the strategy is {}; leave it out",
                    config.strategy.as_str()
                ),
            );
        }
        return Ok((None, None));
    }
    if config.training_job_early_stopping_type.as_deref() == Some("Auto") {
        return refuse(
            &format!("{path}.trainingJobEarlyStoppingType"),
            "it must be Off for the strategy Hyperband, which stops training jobs by itself",
        );
    }
    let path = format!("{path}.strategyConfig.hyperbandStrategyConfig");
    let (min, max) = hyperband.map_or((None, None), |it| (it.min_resource, it.max_resource));
    if let Some(max) = max.filter(|max| *max > MOST_RESOURCE) {
        return refuse(
            &format!("{path}.maxResource"),
            &format!("{max} is more than {MOST_RESOURCE}, which is the most"),
        );
    }
    Ok((min, max))
}

fn limits(limits: &request::ResourceLimits) -> Result<ResourceLimits, Error> {
    let over = |name: &str, asked: u32, most: u32| {
        Error::new(
            ErrorCode::ResourceLimitExceeded,
            format!(
                "The limit on {name} of a hyperparameter tuning job is {most}, and the request asks for {asked}; ask \
                 for less."
            ),
        )
    };
    if limits.max_number_of_training_jobs.is_some_and(|jobs| jobs > MOST_JOBS) {
        return Err(over("MaxNumberOfTrainingJobs", limits.max_number_of_training_jobs.unwrap_or_default(), MOST_JOBS));
    }
    if limits.max_parallel_training_jobs > MOST_PARALLEL {
        return Err(over("MaxParallelTrainingJobs", limits.max_parallel_training_jobs, MOST_PARALLEL));
    }
    Ok(ResourceLimits {
        max_jobs: limits.max_number_of_training_jobs,
        max_parallel: limits.max_parallel_training_jobs,
        max_runtime_s: limits.max_runtime_in_seconds,
    })
}

fn completion(criteria: &request::CompletionCriteria) -> Result<CompletionCriteria, Error> {
    if criteria.target_objective_metric_value.is_some_and(|target| !target.is_finite()) {
        return refuse(
            "hyperParameterTuningJobConfig.tuningJobCompletionCriteria.targetObjectiveMetricValue",
            "it is not a finite number",
        );
    }
    Ok(CompletionCriteria {
        target: criteria.target_objective_metric_value,
        not_improving: criteria
            .best_objective_not_improving
            .as_ref()
            .and_then(|it| it.max_number_of_training_jobs_not_improving),
        convergence: criteria
            .convergence_detected
            .as_ref()
            .is_some_and(|it| it.complete_on_convergence.as_deref() == Some("Enabled")),
    })
}

/// A definition as it came, with its path.
type Source = (String, Map<String, Value>);

/// The definitions as they came, and whether they are a list.
fn sources(
    one: Option<Map<String, Value>>,
    list: Option<Vec<Map<String, Value>>>,
) -> Result<(Vec<Source>, bool), Error> {
    match (one, list) {
        (Some(one), None) => Ok((vec![("trainingJobDefinition".to_owned(), one)], false)),
        (None, Some(list)) => {
            let at = |(at, source)| (format!("trainingJobDefinitions.{}.member", at + 1), source);
            Ok((list.into_iter().enumerate().map(at).collect(), true))
        }
        (Some(_), Some(_)) => refuse(
            "trainingJobDefinitions",
            "TrainingJobDefinition and TrainingJobDefinitions are alternatives; give one of them",
        ),
        (None, None) => {
            refuse("trainingJobDefinition", "it is required; give TrainingJobDefinition or TrainingJobDefinitions")
        }
    }
}

fn definition(shared: &mut Shared<'_>, source: Map<String, Value>, path: String) -> Result<TuningDefinition, Error> {
    let own: request::Definition = read(Value::Object(source.clone()))?;
    if shared.listed && own.definition_name.is_none() {
        return refuse(&format!("{path}.definitionName"), "each of several definitions needs a name");
    }
    let objective = objective(shared, own.tuning_objective, &path)?;
    let (given, place) = given_ranges(shared, own.hyper_parameter_ranges, &path)?;
    let (ranges, auto_parameters) = ranges::ranges(given, &place)?;
    if !auto_parameters.is_empty() && !shared.autotune {
        return refuse(
            &format!("{place}.autoParameters"),
            "they are for Autotune only; give Autotune {\"Mode\": \"Enabled\"} or ranges",
        );
    }
    if ranges.is_empty() && !shared.autotune {
        return refuse(&place, "there is nothing to tune; give at least one range, or Autotune");
    }
    let mut statics = own.static_hyper_parameters;
    statics.remove(super::OBJECTIVE_HYPERPARAMETER);
    let tuned = ranges.iter().map(|range| &range.name).chain(auto_parameters.iter().map(|it| &it.name));
    if let Some(name) = tuned.clone().find(|name| statics.contains_key(*name)) {
        return refuse(
            &format!("{path}.staticHyperParameters"),
            &format!("the hyperparameter '{name}' is tuned, too; give it once"),
        );
    }
    let all = statics.len() + tuned.count();
    if all > MOST_HYPERPARAMETERS {
        return refuse(
            &format!("{path}.staticHyperParameters"),
            &format!(
                "there are {all} static and tuned hyperparameters together, and {MOST_HYPERPARAMETERS} are allowed"
            ),
        );
    }
    // SDKs give every hyperparameter of a framework's estimator to Autotune, and some of them say
    // which script is started, and how.
    let (of_toolkit, auto_parameters): (Vec<_>, Vec<_>) =
        auto_parameters.into_iter().partition(|it| it.name.starts_with("sagemaker_"));
    statics.extend(of_toolkit.into_iter().map(|it| (it.name, it.hint)));
    if shared.strategy == Strategy::Grid
        && let Some(range) = ranges.iter().find(|range| !matches!(range.values, super::RangeValues::Categorical(_)))
        && !shared.autotune
    {
        return refuse(
            &place,
            &format!(
                "the strategy Grid is for categorical parameters only, and '{}' is a range of numbers; list its values \
                 as a categorical \
                 parameter, or choose another strategy",
                range.name
            ),
        );
    }
    let max_resource = match (shared.strategy, shared.max_resource) {
        (Strategy::Hyperband, None) => Some(inferred(&statics, &path)?),
        // Strategies of ours may want to know it, too.
        (_, given) => given.or_else(|| inferred(&statics, &path).ok()),
    };
    let (training, alternatives) = child::template(
        source,
        shared.tuning_job,
        &statics,
        &objective.metric,
        own.hyper_parameter_tuning_resource_config,
        &path,
    )?;
    Ok(TuningDefinition {
        name: own.definition_name,
        objective,
        ranges,
        auto_parameters,
        static_hyperparameters: statics,
        max_resource,
        alternatives,
        training: Box::new(training),
        path,
    })
}

const AROUND: &str = "hyperParameterTuningJobConfig";

/// The definition's objective: its own in a list, that of the configuration around it else.
fn objective(shared: &mut Shared<'_>, own: Option<request::Objective>, path: &str) -> Result<Objective, Error> {
    let around = format!("{AROUND}.hyperParameterTuningJobObjective");
    let objective = match (shared.objective.take(), own) {
        (Some(_), Some(_)) => {
            let what =
                "the objective is in HyperParameterTuningJobConfig.HyperParameterTuningJobObjective, too; give it once";
            return refuse(&format!("{path}.tuningObjective"), what);
        }
        (Some(_), None) if shared.listed => {
            return refuse(
                &around,
                "with TrainingJobDefinitions each definition has an objective of its own; give TuningObjective in each",
            );
        }
        (Some(objective), None) | (None, Some(objective)) => objective,
        (None, None) => {
            let place = if shared.listed { format!("{path}.tuningObjective") } else { around };
            return refuse(&place, "it is required; give Type and MetricName");
        }
    };
    Ok(Objective { goal: objective.goal, metric: objective.metric_name })
}

/// The definition's ranges as they came, and their path.
fn given_ranges(
    shared: &mut Shared<'_>,
    own: Option<request::ParameterRanges>,
    path: &str,
) -> Result<(request::ParameterRanges, String), Error> {
    let (around, below) = (format!("{AROUND}.parameterRanges"), format!("{path}.hyperParameterRanges"));
    match (shared.ranges.take(), own) {
        (Some(_), Some(_)) => {
            refuse(&below, "there are HyperParameterTuningJobConfig.ParameterRanges, too; give the ranges once")
        }
        (Some(_), None) if shared.listed => refuse(
            &around,
            "with TrainingJobDefinitions each definition has ranges of its own; give HyperParameterRanges in each",
        ),
        (Some(given), None) => Ok((given, around)),
        (None, Some(given)) => Ok((given, below)),
        (None, None) => Ok((request::ParameterRanges::default(), if shared.listed { below } else { around })),
    }
}

/// `MaxResource` from a static hyperparameter that says how many epochs there are.
fn inferred(statics: &BTreeMap<String, String>, path: &str) -> Result<u32, Error> {
    let found = EPOCH_HYPERPARAMETERS.iter().find_map(|name| statics.get(*name).map(|text| (name, text)));
    let Some((name, text)) = found else {
        return Err(Error::validation(
            "MaxResource parameter is not provided and could not be inferred from provided static hyperparameters of \
             TrainingJobDefinition. \
             Give HyperParameterTuningJobConfig.StrategyConfig.HyperbandStrategyConfig.MaxResource, or one of the \
             static hyperparameters epochs, \
             numepochs, n-epochs, n_epochs, num_epochs.",
        ));
    };
    // SDK v2 writes texts as JSON.
    match text.trim().trim_matches('"').parse::<u32>() {
        Ok(epochs) if (1..=MOST_RESOURCE).contains(&epochs) => Ok(epochs),
        _ => refuse(
            &format!("{path}.staticHyperParameters"),
            &format!(
                "MaxResource is inferred from '{name}', which is '{text}' and not a whole number from 1 to \
                 {MOST_RESOURCE}"
            ),
        ),
    }
}

/// How many trials there are to be.
fn count(
    strategy: Strategy,
    definitions: &[TuningDefinition],
    limits: &mut ResourceLimits,
    completion: &mut CompletionCriteria,
    autotune: bool,
    tags: &[crate::Tag],
) -> Result<(), Error> {
    // Autotune finds the limits that are not given, AWS says, and not how: here it ends where
    // results no longer improve. A grid has an end of its own.
    let may_go_on = strategy != Strategy::Grid && limits.max_jobs.is_none() && limits.max_runtime_s.is_none();
    if autotune && may_go_on && *completion == CompletionCriteria::default() {
        *completion =
            CompletionCriteria { target: None, not_improving: Some(AUTOTUNE_NOT_IMPROVING), convergence: true };
    }
    // The ranges of Autotune are not known yet, and a strategy of ours counts for itself.
    if definitions.iter().any(|definition| definition.ranges.is_empty() || !definition.auto_parameters.is_empty())
        || tags.iter().any(|tag| tag.key == super::STRATEGY_TAG)
    {
        return Ok(());
    }
    let all = definitions
        .iter()
        .try_fold(0_u64, |sum, definition| sum.checked_add(combinations::combinations(&definition.ranges)?));
    let path = "hyperParameterTuningJobConfig.resourceLimits.maxNumberOfTrainingJobs";
    match (all, limits.max_jobs) {
        (Some(all), Some(jobs)) => {
            combinations::check(all, jobs)?;
            if strategy == Strategy::Grid && all > u64::from(jobs) {
                return refuse(
                    path,
                    &format!(
                        "{jobs} is not the number of combinations of the grid, {all}; give {all}, or leave it out"
                    ),
                );
            }
        }
        (Some(all), None) if strategy == Strategy::Grid => match u32::try_from(all) {
            Ok(all) if all <= MOST_JOBS => limits.max_jobs = Some(all),
            _ => {
                return refuse(
                    path,
                    &format!("the grid has {all} combinations, and a tuning job has {MOST_JOBS} training jobs at most"),
                );
            }
        },
        _ => {}
    }
    if limits.max_jobs.is_none() && limits.max_runtime_s.is_none() && *completion == CompletionCriteria::default() {
        return refuse(
            path,
            "nothing would end the tuning job; give it, MaxRuntimeInSeconds, or a completion criterion",
        );
    }
    Ok(())
}

fn warm_start(config: request::WarmStartConfig) -> Result<WarmStart, Error> {
    let mut parents = Vec::new();
    for (at, parent) in config.parent_hyper_parameter_tuning_jobs.into_iter().enumerate() {
        let path =
            format!("warmStartConfig.parentHyperParameterTuningJobs.{}.member.hyperParameterTuningJobName", at + 1);
        let Some(name) = parent.hyper_parameter_tuning_job_name else { return refuse(&path, "it is required") };
        if parents.contains(&name) {
            return refuse(&path, &format!("the parent '{name}' is there twice"));
        }
        parents.push(name);
    }
    Ok(WarmStart { parents, identical: config.warm_start_type == "IdenticalDataAndAlgorithm" })
}

impl Input for CreateTuningJob {
    fn read(call: Call) -> Result<Self, Error> {
        create_tuning_job(call.input)
    }
}

impl Input for ListTrials {
    fn read(call: Call) -> Result<Self, Error> {
        let request: request::ListTrialsRequest = read(call.input)?;
        Ok(Self {
            tuning_job: request.hyper_parameter_tuning_job_name,
            next_token: request.next_token,
            max_results: request.max_results.unwrap_or(10),
            status_equals: request.status_equals,
            sort_by: request.sort_by.unwrap_or_default(),
            sort_order: request.sort_order.unwrap_or(crate::SortOrder::Ascending),
        })
    }
}
