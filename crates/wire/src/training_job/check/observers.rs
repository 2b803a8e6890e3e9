//! Rules of what observes a training job: debugger, profiler, TensorBoard.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{hook_parameters, mirrored_directory::of_program};
use crate::{
    Collection, DebugHook, Debugger, Error, Profiler, RuleAction, RuleConfiguration, TensorBoard,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// The members of a request that are about it.
pub(crate) const OBSERVERS: [&str; 5] = [
    "DebugHookConfig",
    "DebugRuleConfigurations",
    "TensorBoardOutputConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
];

/// `ProfilingIntervalInMilliseconds` that there are.
const INTERVALS_MS: [i64; 6] = [100, 200, 500, 1000, 5000, 60_000];

/// `ProfilingIntervalInMilliseconds` without one.
const DEFAULT_INTERVAL_MS: u32 = 500;

/// Other training jobs with which a rule compares.
const MAX_OTHER_RUNS: usize = 20;

/// `DebugHookConfig.LocalPath` by default.
const TENSORS: &str = "/opt/ml/output/tensors";
/// `TensorBoardOutputConfig.LocalPath` by default.
const TENSOR_BOARD: &str = "/opt/ml/output/tensorboard";
/// The parameter that names a rule.
const RULE: &str = "rule_to_invoke";
/// The parameter with the place of the tensors that it judges.
const BASE_TRIAL: &str = "base_trial";
/// The parameter that has its actions.
const ACTIONS: &str = "action_json";

/// Checks all of them.
///
/// # Errors
/// The first rule that is broken.
pub(super) fn check(job: &str, request: request::Observers) -> Result<(Debugger, Option<Profiler>), Error> {
    if request.debug_hook_config.is_none() && !request.debug_rule_configurations.is_empty() {
        return refuse(
            "debugHookConfig",
            "DebugRuleConfigurations evaluate what the hook saves; give DebugHookConfig with them",
        );
    }
    let hook = request.debug_hook_config.map(hook).transpose()?;
    let tensor_board = request.tensor_board_output_config.map(tensor_board).transpose()?;
    if let (Some(hook), Some(board)) = (&hook, &tensor_board)
        && (is_within(&hook.local_path, &board.local_path) || is_within(&board.local_path, &hook.local_path))
    {
        return refuse(
            "tensorBoardOutputConfig.localPath",
            &format!("{} and DebugHookConfig's {} overlap; use two directories", board.local_path, hook.local_path),
        );
    }
    let rules = rules(job, "debugRuleConfigurations", request.debug_rule_configurations)?;
    if let Some(hook) = &hook {
        base_trials(hook, job, &rules)?;
    }
    let profiler_rules = self::rules(job, "profilerRuleConfigurations", request.profiler_rule_configurations)?;
    if let Some(name) = twice(&rules, &profiler_rules) {
        return refuse(
            "profilerRuleConfigurations",
            &format!("a rule of debugRuleConfigurations is named '{name}', too"),
        );
    }
    let profiler = request.profiler_config.as_ref().map(profiler).transpose()?;
    if !profiler_rules.is_empty() && profiler.as_ref().is_some_and(|it| it.is_disabled) {
        return refuse(
            "profilerRuleConfigurations",
            "they judge what the profiler measures; leave them out, or DisableProfiler",
        );
    }
    Ok((Debugger { hook, rules, profiler_rules, tensor_board }, profiler))
}

/// A name that a rule of either kind has: verdicts are kept by names.
pub(crate) fn twice<'a>(rules: &[RuleConfiguration], profiler_rules: &'a [RuleConfiguration]) -> Option<&'a str> {
    profiler_rules.iter().map(|it| &*it.name).find(|name| rules.iter().any(|rule| rule.name == *name))
}

/// A rule judges the tensors of its own training job; the SDK leaves this parameter out.
fn base_trials(hook: &DebugHook, job: &str, rules: &[RuleConfiguration]) -> Result<(), Error> {
    let place = hook.place(job).to_string();
    let is_other = |given: &&String| given.trim_end_matches('/') != place.trim_end_matches('/');
    for (at, rule) in rules.iter().enumerate() {
        if let Some(given) = rule.parameters.get(BASE_TRIAL).filter(is_other) {
            return refuse(
                &format!("debugRuleConfigurations.{}.member.ruleParameters.{BASE_TRIAL}", at + 1),
                &format!(
                    "'{given}' is not where this training job saves its tensors, {place}, which is what the rule \
                     judges; leave {BASE_TRIAL} out, and give tensors of other training jobs as other_trial_0 and so on"
                ),
            );
        }
    }
    Ok(())
}

fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn hook(config: request::DebugHookConfig) -> Result<DebugHook, Error> {
    hook_parameters::check("debugHookConfig.hookParameters", &config.hook_parameters)?;
    for (at, collection) in config.collection_configurations.iter().enumerate() {
        let path = format!("debugHookConfig.collectionConfigurations.{}.member", at + 1);
        if collection.collection_name.as_deref().is_none_or(str::is_empty) {
            return refuse(&format!("{path}.collectionName"), "it is required: the name of the collection");
        }
        hook_parameters::check(&format!("{path}.collectionParameters"), &collection.collection_parameters)?;
    }
    Ok(DebugHook {
        uri: s3_uri("debugHookConfig.s3OutputPath", &config.s3_output_path)?,
        local_path: of_program("debugHookConfig.localPath", config.local_path, TENSORS, "tensors")?,
        parameters: config.hook_parameters,
        collections: config
            .collection_configurations
            .into_iter()
            .map(|it| Collection { name: it.collection_name.unwrap_or_default(), parameters: it.collection_parameters })
            .collect(),
    })
}

fn tensor_board(config: request::TensorBoardOutputConfig) -> Result<TensorBoard, Error> {
    Ok(TensorBoard {
        uri: s3_uri("tensorBoardOutputConfig.s3OutputPath", &config.s3_output_path)?,
        local_path: of_program(
            "tensorBoardOutputConfig.localPath",
            config.local_path,
            TENSOR_BOARD,
            "TensorBoard's event files",
        )?,
    })
}

fn profiler(config: &request::ProfilerConfig) -> Result<Profiler, Error> {
    let path = "profilerConfig";
    if config.s3_output_path.is_none() && !config.disable_profiler {
        return refuse(&format!("{path}.s3OutputPath"), "it is required unless DisableProfiler is true");
    }
    let output = config.s3_output_path.as_deref().map(|uri| s3_uri(&format!("{path}.s3OutputPath"), uri));
    let output = output.transpose()?;
    let interval_ms = match config.profiling_interval_in_milliseconds {
        Some(interval) if !INTERVALS_MS.contains(&interval) => {
            let intervals = INTERVALS_MS.map(|ms| ms.to_string()).join(", ");
            let path = format!("{path}.profilingIntervalInMilliseconds");
            return refuse(&path, &format!("{interval} is none of [{intervals}]"));
        }
        given => given.and_then(|ms| u32::try_from(ms).ok()).unwrap_or(DEFAULT_INTERVAL_MS),
    };
    let parameters = config.profiling_parameters.clone();
    Ok(Profiler { output, interval_ms, parameters, is_disabled: config.disable_profiler })
}

fn rules(job: &str, path: &str, rules: Vec<request::RuleConfiguration>) -> Result<Vec<RuleConfiguration>, Error> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(rules.len());
    for (at, rule) in rules.into_iter().enumerate() {
        let path = format!("{path}.{}.member", at + 1);
        if !names.insert(rule.rule_configuration_name.clone()) {
            return refuse(
                &format!("{path}.ruleConfigurationName"),
                &format!("the rule '{}' is there twice", rule.rule_configuration_name),
            );
        }
        checked.push(self::rule(job, &path, rule)?);
    }
    Ok(checked)
}

fn rule(job: &str, path: &str, rule: request::RuleConfiguration) -> Result<RuleConfiguration, Error> {
    let output = rule.s3_output_path.as_deref().map(|s3| s3_uri(&format!("{path}.s3OutputPath"), s3)).transpose()?;
    if rule.local_path.is_some_and(|local| !local.starts_with('/')) {
        return refuse(&format!("{path}.localPath"), "it must be an absolute path");
    }
    let mut parameters = rule.rule_parameters;
    let Some(invoked) = parameters.remove(RULE).filter(|name| !name.is_empty()) else {
        return refuse(
            &format!("{path}.ruleParameters"),
            &format!("it needs {RULE}, the name of the rule, such as VanishingGradient"),
        );
    };
    let actions = parameters.remove(ACTIONS).map_or(Ok(Vec::new()), |text| actions(job, path, &text))?;
    let rule = RuleConfiguration { name: rule.rule_configuration_name, rule: invoked, parameters, actions, output };
    if let Some(source) = rule.source() {
        s3_uri(&format!("{path}.ruleParameters.source_s3_uri"), source)?;
        if !is_class(&rule.rule) {
            return refuse(
                &format!("{path}.ruleParameters.{RULE}"),
                &format!("'{}' is no name of a Python class; give that of the rule in source_s3_uri", rule.rule),
            );
        }
    }
    let other_runs = rule.other_runs();
    if other_runs.len() > MAX_OTHER_RUNS {
        return refuse(&format!("{path}.ruleParameters"), &format!("it compares with {MAX_OTHER_RUNS} runs at most"));
    }
    for uri in other_runs {
        s3_uri(&format!("{path}.ruleParameters.other_trials"), uri)?;
    }
    Ok(rule)
}

/// Whether Python takes it for a name.
fn is_class(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphabetic() || letter == '_';
    name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_numeric())
}

/// As SDKs send it: each action of an `ActionList`, or a single one as it is.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Actions {
    List(Vec<BTreeMap<String, Value>>),
    One(BTreeMap<String, Value>),
}

/// A list of objects with a name, or one of them; SDKs send it with each quote escaped.
fn actions(job: &str, path: &str, text: &str) -> Result<Vec<RuleAction>, Error> {
    let path = format!("{path}.ruleParameters.{ACTIONS}");
    let unescaped = text.replace("\\\"", "\"");
    let list = match serde_json::from_str(&unescaped) {
        Ok(Actions::List(list)) => list,
        Ok(Actions::One(action)) => vec![action],
        Err(_) => {
            return refuse(
                &path,
                "it is not an action or a list of actions as smdebug_rulesconfig writes them, such as \
                 [{\"name\": \"stoptraining\"}]",
            );
        }
    };
    let action = |action: BTreeMap<String, Value>| {
        let text = |key: &str| action.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let endpoint = || match text("endpoint") {
            empty if empty.is_empty() => refuse(&path, "an email or SMS needs its endpoint"),
            endpoint => Ok(endpoint),
        };
        match &*text("name") {
            "stoptraining" if job.starts_with(&text("training_job_prefix")) => Ok(RuleAction::StopTraining),
            "stoptraining" => refuse(
                &path,
                &format!(
                    "it stops the training job that it observes, whose name '{job}' does not begin with '{}'",
                    text("training_job_prefix")
                ),
            ),
            "email" => endpoint().map(RuleAction::Email),
            "sms" => endpoint().map(RuleAction::Sms),
            other => refuse(&path, &format!("'{other}' is none of [stoptraining, email, sms]")),
        }
    };
    list.into_iter().map(action).collect()
}
