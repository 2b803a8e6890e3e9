//! What needs no storage: objectives, hyperparameters, ends, roles.

use serde_json::{Value, json};
use shoal_wire::{Goal, Stored as _};

use super::*;
use crate::{ImageError, tuning::designs, tuning::tests::request};

/// One built-in algorithm, with a validation metric and one that the training data has.
struct Trees;

fn trees() -> Builtin {
    let objective = |metric: &str, goal, channel: Option<&str>| BuiltinObjective {
        objective: Objective { metric: metric.to_owned(), goal },
        channel: channel.map(str::to_owned),
        unless: channel.map(|_| "folds".to_owned()),
    };
    Builtin {
        name: "Trees".to_owned(),
        hyperparameters: ["x", "kind", "folds", "_objective", "rounds"].map(str::to_owned).to_vec(),
        objectives: vec![
            objective("train:loss", Goal::Minimize, None),
            objective("validation:auc", Goal::Maximize, Some("validation")),
        ],
        tunable: Vec::new(),
        resource: Some("rounds".to_owned()),
        resumes: true,
        library_dirs: Vec::new(),
        variables: Default::default(),
    }
}

impl Images for Trees {
    fn known(&self, image: &str) -> Result<Option<Image>, ImageError> {
        self.resolve(image).map(Some)
    }

    fn resolve(&self, image: &str) -> Result<Image, ImageError> {
        Ok(if image == "trees" { Image::Builtin(trees()) } else { Image::Host })
    }

    fn framework(&self, _: &str) -> Result<Option<shoal_link::PythonEnvironment>, ImageError> {
        Ok(None)
    }

    fn metric_definitions(&self, image: &str) -> Vec<(String, String)> {
        let all = if image == "trees" { &["train:loss", "validation:auc"][..] } else { &[] };
        all.iter().map(|name| ((*name).to_owned(), String::new())).collect()
    }

    fn resources(&self) -> Vec<String> {
        vec!["epochs".to_owned()]
    }
}

fn tuning(strategy: &str, changes: &Value) -> CreateTuningJob {
    let request = serde_json::from_slice(&request(strategy, changes)).unwrap();
    match CreateTuningJob::from_raw(request) {
        Ok(request) => request,
        Err(error) => panic!("{error:?}"),
    }
}

/// A tuning job of the built-in algorithm.
fn of_trees(goal: &str, metric: &str, fixed: &Value, channels: &[&str]) -> CreateTuningJob {
    let channel = |name: &&str| {
        json!({"ChannelName": name,
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data"}}})
    };
    let mut definition = json!({
        "AlgorithmSpecification": {"TrainingImage": "trees", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/tests",
        "StaticHyperParameters": fixed,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    });
    if !channels.is_empty() {
        definition["InputDataConfig"] = channels.iter().map(channel).collect();
    }
    let config = json!({
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": goal, "MetricName": metric},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 3},
        "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]},
    });
    tuning("Random", &json!({"TrainingJobDefinition": definition, "HyperParameterTuningJobConfig": config}))
}

fn message(checked: Result<(), Error>) -> String {
    checked.map_or_else(|error| error.message, |()| String::new())
}

#[test]
fn an_objective_is_one_that_the_algorithm_measures_on_what_it_gets() {
    let both = &["train", "validation"][..];
    for (goal, metric, fixed, channels, expected) in [
        ("Minimize", "train:loss", json!({}), &["train"][..], ""),
        ("Maximize", "validation:auc", json!({}), both, ""),
        ("Maximize", "validation:auc", json!({"folds": "5"}), &["train"][..], ""),
        ("Maximize", "validation:auc", json!({}), &["train"][..], "and trainingJobDefinition has only train: add it"),
        ("Maximize", "validation:auc", json!({}), &[][..], "and trainingJobDefinition has no channels: add it"),
        ("Minimize", "validation:auc", json!({}), both, "Objective.type': the objective metric type, [Minimize]"),
        ("Maximize", "validation:acu", json!({}), both, "Choose a valid objective metric: train:loss, validation:auc."),
        ("Minimize", "loss", json!({}), both, "[loss], isn't valid for the [trees] algorithm"),
    ] {
        let request = of_trees(goal, metric, &fixed, channels);
        let designs = designs(&request, 1, &Trees).unwrap();
        let message = message(check_objectives(&Trees, &request, &designs));
        let is_right = if expected.is_empty() { message.is_empty() } else { message.contains(expected) };
        assert!(is_right, "{goal} {metric} {fixed} {channels:?}: {message}");
    }
}

#[test]
fn an_objective_of_ones_own_is_among_the_metric_definitions() {
    let with = |metrics: &[&str]| {
        let mut request = tuning("Random", &json!({}));
        let definitions = metrics
            .iter()
            .map(|name| shoal_wire::MetricDefinition { name: (*name).to_owned(), regex: "x=(.*)".to_owned() });
        request.definitions[0].training.algorithm.metric_definitions = definitions.collect();
        let designs = designs(&request, 1, &Trees).unwrap();
        message(check_objectives(&Trees, &request, &designs))
    };
    assert_eq!(with(&["other", "loss"]), "");
    assert!(with(&[]).ends_with("of trainingJobDefinition: there are none."), "{}", with(&[]));
    let near = with(&["Loss", "accuracy"]);
    assert!(near.contains("those are Loss, accuracy") && near.ends_with('?'), "{near}");
    assert!(with(&["accuracy"]).ends_with("those are accuracy."), "{}", with(&["accuracy"]));
}

#[test]
fn every_objective_of_the_tag_is_measured() {
    let mut request = of_trees("Minimize", "train:loss", &json!({}), &["train"]);
    for (further, expected) in [("train:loss", ""), ("seconds", "'seconds' is not among")] {
        request.tags = vec![shoal_wire::Tag {
            key: shoal_wire::STRATEGY_TAG.to_owned(),
            value: json!({"objectives": [{"metric": further}]}).to_string(),
        }];
        let designs = designs(&request, 1, &Trees).unwrap();
        let message = message(check_objectives(&Trees, &request, &designs));
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{further}: {message}");
    }
}

#[test]
fn a_built_in_algorithm_has_the_hyperparameters_that_it_has() {
    let given = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        message(known_hyperparameters(&trees(), &names, "hyperParameters"))
    };
    assert_eq!(given(&["x", "_objective"]), "");
    let unknown = given(&["x", "round"]);
    assert!(unknown.contains("Trees has no such hyperparameter") && unknown.contains("rounds"), "{unknown}");
    let own = given(&["objective"]);
    assert!(!own.contains("_objective"), "the service's own are no proposals: {own}");
    // Ranges count, too.
    let mut request = of_trees("Minimize", "train:loss", &json!({}), &["train"]);
    request.definitions[0].ranges[0].name = "y".to_owned();
    let refused = message(check_definition(&Trees, &request, &request.definitions[0]));
    assert!(refused.starts_with("Invalid value at 'trainingJobDefinition.hyperParameterRanges'"), "{refused}");
}

#[test]
fn checkpoints_of_trials_have_room_for_their_names() {
    let room = |length: usize, name: &str| {
        let uri: S3Uri = format!("s3://bkt/{}", "k".repeat(length - "s3://bkt/".len())).parse().unwrap();
        message(room_below(&uri, name, "trainingJobDefinition"))
    };
    let longest = MOST_URI - BELOW - "tune".len();
    assert_eq!(room(longest, "tune"), "");
    let refused = room(longest + 1, "tune");
    assert!(refused.contains(&format!("at most {longest} are possible")), "{refused}");
    assert!(!room(longest, &"t".repeat(32)).is_empty(), "a longer name leaves less");
}

#[test]
fn something_ends_a_tuning_job_whose_strategy_only_the_tag_names() {
    let check = |tag: Option<&str>, change: fn(&mut CreateTuningJob)| {
        let mut request = tuning("Random", &json!({}));
        request.definitions[0].ranges.retain(|range| matches!(range.values, shoal_wire::RangeValues::Categorical(_)));
        request.tags.extend(
            tag.map(|value| shoal_wire::Tag { key: shoal_wire::STRATEGY_TAG.to_owned(), value: value.to_owned() }),
        );
        request.limits.max_jobs = None;
        change(&mut request);
        message(check_end(&request, &designs(&request, 1, &Trees).unwrap()))
    };
    let endless = "nothing would end the tuning job";
    for (tag, expected) in [(None, endless), (Some("tpe"), endless), (Some("grid"), ""), (Some(r#"{"grid":{}}"#), "")] {
        let message = check(tag, |_| {});
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{tag:?}: {message}");
    }
    assert_eq!(check(None, |request| request.limits.max_jobs = Some(1)), "");
    assert_eq!(check(None, |request| request.limits.max_runtime_s = Some(60)), "");
    assert_eq!(check(None, |request| request.completion.target = Some(0.5)), "");
    assert_eq!(check(None, |request| request.completion.convergence = true), "");
}

#[test]
fn a_role_is_of_the_partition_of_the_region() {
    for (region, role, is_right) in [
        ("us-east-1", "arn:aws:iam::123456789012:role/r", true),
        ("eu-central-1", "arn:aws-cn:iam::123456789012:role/r", false),
        ("cn-north-1", "arn:aws-cn:iam::123456789012:role/r", true),
        ("cn-north-1", "arn:aws:iam::123456789012:role/r", false),
        ("us-gov-west-1", "arn:aws-us-gov:iam::123456789012:role/r", true),
        ("us-gov-west-1", "arn:aws:iam::123456789012:role/r", false),
        // Whatever the table of constraints lets through, nothing panics.
        ("", "role", true),
    ] {
        let checked = partition(region, role);
        assert_eq!(checked.is_ok(), is_right, "{region} {role}: {checked:?}");
    }
}

#[test]
fn a_dry_run_refuses_what_a_server_would_refuse() {
    let check = |changes: &Value| {
        let request = serde_json::from_slice(&request("Random", changes)).unwrap();
        message(crate::check_tuning_request(request, &Trees))
    };
    let mut definition: Value =
        serde_json::from_slice::<Value>(&request("Random", &json!({}))).unwrap()["TrainingJobDefinition"].take();
    assert!(check(&json!({})).contains("'loss' is not among the metric definitions"), "{}", check(&json!({})));
    definition["AlgorithmSpecification"]["MetricDefinitions"] = json!([{"Name": "loss", "Regex": "loss=(.*)"}]);
    let with = |more: Value| {
        let mut changes = json!({"TrainingJobDefinition": definition});
        changes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check(&changes)
    };
    assert_eq!(with(json!({})), "");
    let tag = |value: &str| json!({"Tags": [{"Key": shoal_wire::STRATEGY_TAG, "Value": value}]});
    assert!(with(tag("newton")).contains("newton"), "{}", with(tag("newton")));
    assert!(check(&json!({"HyperParameterTuningJobName": "-"})).contains("hyperParameterTuningJobName"));
}
