//! What the Debugger of a training job can only fail at later: places that do not exist, rules that
//! are not known or have wrong parameters.

use std::collections::BTreeMap;

use shoal_rules::Subject;
use shoal_store::{Objects, StoreError};
use shoal_wire::{
    DebugHook, Debugger, Error, RuleAction, RuleConfiguration, S3Uri, is_hook_parameter, nearest_hook_parameter,
};

use super::places::bucket;
use crate::internal::internal;

/// The member with the rules over tensors.
const DEBUG_RULES: &str = "debugRuleConfigurations";
/// The rule that compares tensors with those of other training jobs.
const COMPARING: &str = "SimilarAcrossRuns";
/// Where files of a training job's tensors are, below their place.
const INDEX: &str = "index/";
/// The parameter that names a rule.
const RULE: &str = "rule_to_invoke";
/// The variable that switches the hook off, with these values.
const SWITCH: &str = "USE_SMDEBUG";
const OFF: [&str; 2] = ["0", "false"];
/// How names of files end that can be the source of a user's own rule.
const SOURCES: [&str; 3] = [".py", ".tar.gz", ".tgz"];

/// Refuses what could only fail later.
pub(super) fn check(objects: &Objects, debugger: &Debugger) -> Result<(), Error> {
    if let Some(hook) = &debugger.hook {
        bucket(objects, "debugHookConfig.s3OutputPath", &hook.uri)?;
    }
    if let Some(board) = &debugger.tensor_board {
        bucket(objects, "tensorBoardOutputConfig.s3OutputPath", &board.uri)?;
    }
    rules(DEBUG_RULES, &debugger.rules, Subject::Tensors)?;
    for (at, rule) in debugger.rules.iter().enumerate() {
        let path = format!("{DEBUG_RULES}.{}.member.ruleParameters", at + 1);
        source(objects, &path, rule)?;
        other_runs(objects, &path, rule)?;
    }
    profiler_rules(&debugger.profiler_rules)
}

/// Likewise of these rules alone.
pub(crate) fn profiler_rules(given: &[RuleConfiguration]) -> Result<(), Error> {
    rules("profilerRuleConfigurations", given, Subject::System)
}

fn rules(path: &str, rules: &[RuleConfiguration], subject: Subject) -> Result<(), Error> {
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| !is_own(rule)) {
        let refused = |why: String| {
            Err(Error::validation(format!("Invalid value at '{path}.{}.member.ruleParameters': {why}.", at + 1)))
        };
        match shoal_rules::check(&rule.name, &parameters(rule)) {
            Err(error) => return refused(error.to_string()),
            Ok(declared) if declared.subject() != subject => {
                let (judges, member) = match declared.subject() {
                    Subject::Tensors => ("saved tensors", "DebugRuleConfigurations"),
                    Subject::System => ("system metrics", "ProfilerRuleConfigurations"),
                };
                return refused(format!("the rule {} judges {judges}; give it in {member}", declared.name));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether it is a class of the user's.
fn is_own(rule: &RuleConfiguration) -> bool {
    rule.source().is_some()
}

/// The source of a user's own rule is there.
fn source(objects: &Objects, path: &str, rule: &RuleConfiguration) -> Result<(), Error> {
    let Some(uri) = rule.source() else { return Ok(()) };
    let path = format!("{path}.source_s3_uri");
    let place = place(&path, uri)?;
    bucket(objects, &path, &place)?;
    let is_file = objects.get(&place.bucket, &place.prefix).map_err(|error| internal(&error))?.is_some();
    if is_file && !SOURCES.iter().any(|ending| place.prefix.ends_with(ending)) {
        return Err(Error::validation(format!(
            "Invalid value at '{path}': {uri} must be a Python file, an archive (.tar.gz) or a folder of them."
        )));
    }
    if !is_file && !has_objects(objects, &place, "")? {
        return Err(Error::validation(format!(
            "Invalid value at '{path}': there is no object {uri}; upload the source of the rule first, as the SDK does."
        )));
    }
    Ok(())
}

/// The tensors of the training jobs with which it compares are there.
fn other_runs(objects: &Objects, path: &str, rule: &RuleConfiguration) -> Result<(), Error> {
    let runs = rule.other_runs();
    if runs.is_empty() && rule.rule == COMPARING && !is_own(rule) {
        return Err(Error::validation(format!(
            "Invalid value at '{path}': {COMPARING} compares with other training jobs; give the S3 path of the tensors of \
             one as other_trial_0."
        )));
    }
    for uri in runs {
        let path = format!("{path}.other_trials");
        let place = place(&path, uri)?;
        bucket(objects, &path, &place)?;
        if !has_objects(objects, &place, INDEX)? {
            return Err(Error::validation(format!(
                "Invalid value at '{path}': there are no tensors of a training job below {uri}; give the path below which \
                 its folders index and events are, such as s3://BUCKET/PREFIX/JOB/debug-output."
            )));
        }
    }
    Ok(())
}

fn place(path: &str, uri: &str) -> Result<S3Uri, Error> {
    uri.parse().map_err(|error| Error::validation(format!("Invalid value at '{path}': {uri}: {error}.")))
}

/// Whether a folder has objects, in this one below it.
fn has_objects(objects: &Objects, folder: &S3Uri, below: &str) -> Result<bool, Error> {
    let prefix = format!("{}{below}", folder.folder());
    match objects.list(&folder.bucket, &prefix, None, None, 1) {
        Ok(page) => Ok(!page.objects.is_empty()),
        Err(StoreError::NoSuchBucket(_)) => Ok(false),
        Err(error) => Err(internal(&error)),
    }
}

/// As the request has them.
fn parameters(rule: &RuleConfiguration) -> BTreeMap<String, String> {
    let named = (RULE.to_owned(), rule.rule.clone());
    rule.parameters.clone().into_iter().chain([named]).collect()
}

/// What the hook does with settings that may be meant otherwise.
fn hook_notes(hook: &DebugHook, notes: &mut Vec<String>) {
    let mut unknown = |of: &str, parameters: &BTreeMap<String, String>| {
        for name in parameters.keys().filter(|name| !is_hook_parameter(name)) {
            let near = nearest_hook_parameter(name);
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            notes.push(format!("DebugHookConfig: {of} has {name}, which the hook does not know{near}"));
        }
    };
    unknown("HookParameters", &hook.parameters);
    let mut times = BTreeMap::<&str, u32>::new();
    for collection in &hook.collections {
        unknown(&format!("CollectionParameters of {}", collection.name), &collection.parameters);
        *times.entry(&collection.name).or_default() += 1;
    }
    for (name, times) in times.into_iter().filter(|(_, times)| *times > 1) {
        notes.push(format!(
            "DebugHookConfig: the collection {name} is configured {times} times (a rule of the SDK may bring its own \
             configuration): it is saved at the smallest interval and at all steps of them"
        ));
    }
}

/// What of the Debugger's configuration has no effect, or another one than may be meant, for the
/// job's log. `environment` is the training program's.
pub(crate) fn notes(debugger: &Debugger, environment: &BTreeMap<String, String>, has_mail: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(hook) = &debugger.hook {
        hook_notes(hook, &mut notes);
        let switched = environment.get(SWITCH).map(|value| value.to_ascii_lowercase());
        if switched.is_some_and(|value| OFF.contains(&&*value)) {
            notes.push(format!("the environment has {SWITCH}={}: the Debugger's hook is off", environment[SWITCH]));
        }
    }
    for rule in debugger.rules.iter().chain(&debugger.profiler_rules) {
        let name = &rule.name;
        for action in &rule.actions {
            match action {
                RuleAction::StopTraining => {}
                RuleAction::Email(_) if has_mail => {}
                RuleAction::Email(to) => notes.push(format!(
                    "the rule '{name}' sends no mail to {to}: set notifications_smtp in shoal.toml; what the rule finds \
                     is in DescribeTrainingJob"
                )),
                RuleAction::Sms(to) => notes.push(format!(
                    "the rule '{name}' sends no message to {to}: Shoal sends no SMS; what the rule finds is in \
                     DescribeTrainingJob, and is sent by mail with the action email"
                )),
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use shoal_wire::Collection;

    use super::*;

    fn rule(rule: &str, parameters: &[(&str, &str)]) -> RuleConfiguration {
        RuleConfiguration {
            name: "r".to_owned(),
            rule: rule.to_owned(),
            parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            actions: Vec::new(),
            output: None,
        }
    }

    #[test]
    fn mistakes_in_rules_are_refused_at_creation() {
        let refused = |rule: RuleConfiguration, subject, hint: &str| {
            let message = rules("debugRuleConfigurations", &[rule], subject).expect_err(hint).message;
            assert!(message.contains("'debugRuleConfigurations.1.member.ruleParameters'"), "{message}");
            assert!(message.contains(hint), "{message}");
        };
        refused(rule("VanishingGradients", &[]), Subject::Tensors, "did you mean VanishingGradient?");
        refused(rule("VanishingGradient", &[("threshold", "small")]), Subject::Tensors, "threshold");
        refused(rule("CPUBottleneck", &[]), Subject::Tensors, "ProfilerRuleConfigurations");
        refused(rule("AllZero", &[]), Subject::System, "DebugRuleConfigurations");
        let sound =
            [rule("LossNotDecreasing", &[("num_steps", "5")]), rule("Mine", &[("source_s3_uri", "s3://b/mine.py")])];
        assert_eq!(rules("debugRuleConfigurations", &sound, Subject::Tensors), Ok(()));
    }

    #[test]
    fn settings_of_the_hook_that_may_be_meant_otherwise_are_noted() {
        let map =
            |given: &[(&str, &str)]| BTreeMap::from_iter(given.iter().map(|(a, b)| (a.to_string(), b.to_string())));
        let collection =
            |name: &str, given: &[(&str, &str)]| Collection { name: name.to_owned(), parameters: map(given) };
        let hook = |parameters: &[(&str, &str)], collections| DebugHook {
            uri: "s3://my-bucket/p".parse().unwrap(),
            local_path: "/opt/ml/output/tensors".to_owned(),
            parameters: map(parameters),
            collections,
        };
        let noted = |hook, environment: &[(&str, &str)]| {
            notes(&Debugger { hook: Some(hook), ..Debugger::default() }, &map(environment), true).join("\n")
        };
        let collections = vec![
            collection("gradients", &[("save_intervall", "5"), ("train.save_interval", "5")]),
            collection("losses", &[("of_another_library", "1")]),
        ];
        assert_eq!(
            noted(hook(&[("save_intrval", "3")], collections), &[]),
            "DebugHookConfig: HookParameters has save_intrval, which the hook does not know; did you mean save_interval?\n\
             DebugHookConfig: CollectionParameters of gradients has save_intervall, which the hook does not know; did you \
             mean save_interval?\n\
             DebugHookConfig: CollectionParameters of losses has of_another_library, which the hook does not know"
        );
        let twice = vec![collection("gradients", &[]), collection("gradients", &[("save_interval", "500")])];
        let text = noted(hook(&[], twice), &[("USE_SMDEBUG", "False")]);
        assert!(text.contains("the collection gradients is configured 2 times"), "{text}");
        assert!(text.contains("USE_SMDEBUG=False: the Debugger's hook is off"), "{text}");
        assert_eq!(noted(hook(&[("include_workers", "all")], Vec::new()), &[("USE_SMDEBUG", "1")]), "");
    }

    #[test]
    fn actions_that_reach_nobody_are_said() {
        let mut observed = Debugger { rules: vec![rule("AllZero", &[])], ..Debugger::default() };
        observed.rules[0].actions = vec![RuleAction::StopTraining, RuleAction::Email("me@here".to_owned())];
        let without = notes(&observed, &BTreeMap::new(), false);
        assert!(without.len() == 1 && without[0].contains("me@here"), "{without:?}");
        observed.rules[0].actions.push(RuleAction::Sms("+1".to_owned()));
        let with = notes(&observed, &BTreeMap::new(), true);
        assert!(with.len() == 1 && with[0].contains("+1"), "{with:?}");
    }
}
