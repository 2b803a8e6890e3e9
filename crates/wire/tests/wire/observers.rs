//! What observes a training job: hook, rules, TensorBoard.

use serde_json::{Value, json};
use shoal_wire::{CreateTrainingJob, Debugger, RuleAction, Stored as _};

use crate::calls::{create, sound};

fn observed(changes: &Value) -> Result<Debugger, String> {
    let mut request = sound();
    let members = changes.as_object().expect("members");
    request.as_object_mut().expect("an object").extend(members.clone());
    create(&request).map(|it| it.debugger).map_err(|error| error.message)
}

/// A request as SDK v2 sends it, with a rule of `parameters`.
fn with_rule(parameters: &Value) -> Value {
    json!({
        "DebugHookConfig": {"S3OutputPath": "s3://my-bucket/debug"},
        "DebugRuleConfigurations": [
            {"RuleConfigurationName": "r", "RuleEvaluatorImage": "i", "VolumeSizeInGB": 0, "RuleParameters": parameters}],
    })
}

#[test]
fn the_typed_job_has_what_is_observed() {
    let debugger = observed(&json!({
        "DebugHookConfig": {
            "S3OutputPath": "s3://my-bucket/debug",
            "LocalPath": "/opt/ml/./tensors/",
            "HookParameters": {"save_interval": "10"},
            "CollectionConfigurations": [
                {"CollectionName": "gradients", "CollectionParameters": {"train.save_interval": "5"}}, {"CollectionName": "weights"}],
        },
        "DebugRuleConfigurations": [{
            "RuleConfigurationName": "nan",
            "RuleEvaluatorImage": "i",
            "RuleParameters": {
                "rule_to_invoke": "ExplodingTensor",
                "only_nan": "True",
                "action_json": r#"[{\"training_job_prefix\": \"titanic\", \"name\": \"stoptraining\"}, {\"endpoint\": \"me@here\", \"name\": \"email\"}]"#,
            },
        }],
        "TensorBoardOutputConfig": {"S3OutputPath": "s3://my-bucket/board/"},
    }))
    .expect("a sound request");
    let hook = debugger.hook.as_ref().expect("a hook");
    assert_eq!(
        (&*hook.local_path, hook.place("job").to_string().as_str()),
        ("/opt/ml/tensors", "s3://my-bucket/debug/job/debug-output/")
    );
    assert_eq!((hook.parameters.len(), hook.collections.len(), &*hook.collections[1].name), (1, 2, "weights"));
    let rule = &debugger.rules[0];
    assert_eq!((&*rule.name, &*rule.rule, rule.parameters.len(), rule.stops()), ("nan", "ExplodingTensor", 1, true));
    assert_eq!(rule.actions[1], RuleAction::Email("me@here".to_owned()));
    let board = debugger.tensor_board.expect("TensorBoard");
    assert_eq!(board.local_path, "/opt/ml/output/tensorboard");
    assert_eq!(board.place("job").to_string(), "s3://my-bucket/board/job/tensorboard-output/");
    assert!(observed(&json!({})).expect("a sound request").is_empty());
}

#[test]
fn a_single_action_needs_no_list() {
    // What `str(StopTraining())` of smdebug_rulesconfig is; `ActionList` makes a list of it.
    let single = r#"{\"training_job_prefix\": \"titanic\", \"name\": \"stoptraining\"}"#;
    let parameters = json!({"rule_to_invoke": "ExplodingTensor", "action_json": single});
    assert_eq!(
        observed(&with_rule(&parameters)).expect("a sound request").rules[0].actions,
        [RuleAction::StopTraining]
    );
}

#[test]
fn mistakes_are_refused_where_they_are() {
    let refused = |changes: &Value, path: &str, hint: &str| {
        let message = observed(changes).expect_err(path);
        assert!(message.contains(&format!("'{path}'")) && message.contains(hint), "{changes}: {message}");
    };
    let parameters = "debugRuleConfigurations.1.member.ruleParameters";
    refused(&with_rule(&json!({})), parameters, "rule_to_invoke");
    let actions = format!("{parameters}.action_json");
    let with_actions = |text: &str| with_rule(&json!({"rule_to_invoke": "AllZero", "action_json": text}));
    refused(&with_actions("stop it"), &actions, "not an action or a list of actions");
    refused(&with_actions("[1]"), &actions, "not an action or a list of actions");
    refused(&with_actions(r#"[{"name": "call"}]"#), &actions, "'call' is none of [stoptraining, email, sms]");
    refused(&with_actions(r#"[{"name": "sms"}]"#), &actions, "endpoint");
    let of_another = r#"[{"name": "stoptraining", "training_job_prefix": "iris"}]"#;
    refused(&with_actions(of_another), &actions, "does not begin with 'iris'");
    let hook = |members: &Value| {
        let mut hook = json!({"S3OutputPath": "s3://my-bucket/d"});
        hook.as_object_mut().expect("an object").extend(members.as_object().expect("members").clone());
        json!({"DebugHookConfig": hook})
    };
    let often = hook(&json!({"HookParameters": {"train.save_interval": "often"}}));
    refused(&often, "debugHookConfig.hookParameters.train.save_interval", "whole number");
    let collection =
        |collection: Value| hook(&json!({"CollectionConfigurations": [{"CollectionName": "losses"}, collection]}));
    let second = "debugHookConfig.collectionConfigurations.2.member";
    refused(&collection(json!({"CollectionParameters": {}})), &format!("{second}.collectionName"), "required");
    let regex = collection(json!({"CollectionName": "mine", "CollectionParameters": {"include_regex": "(relu"}}));
    refused(&regex, &format!("{second}.collectionParameters.include_regex"), "not a regular expression");
    let own = |rule: &str, source: &str| with_rule(&json!({"rule_to_invoke": rule, "source_s3_uri": source}));
    refused(&own("Mine", "/home/me/mine.py"), &format!("{parameters}.source_s3_uri"), "not an S3 location");
    refused(
        &own("my rule", "s3://my-bucket/mine.py"),
        &format!("{parameters}.rule_to_invoke"),
        "no name of a Python class",
    );
    assert!(observed(&own("Mine_2", "s3://my-bucket/mine.py")).is_ok());
    let other = with_rule(&json!({"rule_to_invoke": "SimilarAcrossRuns", "other_trial_0": "run"}));
    refused(&other, &format!("{parameters}.other_trials"), "'run' is not an S3 location");
    let base = |uri: &str| with_rule(&json!({"rule_to_invoke": "AllZero", "base_trial": uri}));
    let base_trial = format!("{parameters}.base_trial");
    refused(&base("s3://my-bucket/debug/other/debug-output"), &base_trial, "leave base_trial out");
    let own_place = observed(&base("")).expect_err("no place");
    let own_place = own_place.split("saves its tensors, ").nth(1).and_then(|rest| rest.split(',').next());
    assert!(observed(&base(own_place.expect("the job's place"))).is_ok());
    let at = |path: &str| json!({"DebugHookConfig": {"S3OutputPath": "s3://my-bucket/d", "LocalPath": path}});
    refused(&at("/opt/ml/input/tensors"), "debugHookConfig.localPath", "/opt/ml/output/tensors");
    refused(&at("/tmp/../etc"), "debugHookConfig.localPath", "'..'");
    refused(&at("/opt/ml"), "debugHookConfig.localPath", "holds more than tensors");
    let mut both = at("/opt/ml/output/tensorboard/tensors");
    both["TensorBoardOutputConfig"] = json!({"S3OutputPath": "s3://my-bucket/b"});
    refused(&both, "tensorBoardOutputConfig.localPath", "overlap");
}

#[test]
fn a_job_of_a_version_that_observed_nothing_is_observed_by_none() {
    let mut raw = sound();
    raw.as_object_mut().expect("an object").extend(with_rule(&json!({})).as_object().expect("members").clone());
    let job = CreateTrainingJob::from_raw(raw.clone()).expect("every request that was ever accepted");
    assert!(job.debugger.is_empty());
    assert_eq!(Value::Object(job.raw), raw);
}
