//! Tuning jobs: what creation refuses and what it makes of what it accepts; trials' requests; warm
//! starts; what Describe adds.

use http::Request;
use serde_json::{Value, json};
use shoal_wire::{
    Call, Child, CreateTuningJob, Error, ErrorCode, Goal, ParameterRange, RangeValues, Reply, ScalingType, Service,
    Strategy, Tag, TrialSummary, TuningJobDescription, UpdateTuningJob, check_warm_start, operations, parse, respond,
};

use crate::{
    changes::{changed, check_with},
    golden::goldens,
};

pub(crate) fn create(body: &Value) -> Result<CreateTuningJob, Error> {
    let request = Request::post("/")
        .header("x-amz-target", "SageMaker.CreateHyperParameterTuningJob")
        .body(())
        .expect("a request");
    parse(Service::SageMaker, &request.into_parts().0, body.to_string().as_bytes())?.read()
}

fn definition() -> Value {
    json!({
        "StaticHyperParameters": {"objective": "binary:logistic", "num_round": "10"},
        "AlgorithmSpecification": {"TrainingImage": "sagemaker-xgboost:1.7-1", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/train"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://my-bucket/out/"},
        "HyperParameterTuningResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "Environment": {"A": "1"}
    })
}

pub(crate) fn sound() -> Value {
    json!({
        "HyperParameterTuningJobName": "titanic",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Bayesian",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "validation:auc"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 3, "MaxRuntimeInSeconds": 3600},
            "ParameterRanges": {
                "IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "1", "MaxValue": "10"}],
                "ContinuousParameterRanges": [{"Name": "eta", "MinValue": "0.010", "MaxValue": "1e0", "ScalingType": "Logarithmic"}],
                "CategoricalParameterRanges": [{"Name": "booster", "Values": ["gbtree", "dart"]}]
            },
            "TrainingJobEarlyStoppingType": "Auto",
            "TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": 0.99, "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
                "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}},
            "RandomSeed": 7
        },
        "TrainingJobDefinition": definition(),
        "Tags": [{"Key": "team", "Value": "trees"}, {"Key": "shoal:strategy", "Value": "tpe"}, {"Key": "shoal:network", "Value": "host"}]
    })
}

/// Two definitions, each with a name, an objective and ranges.
fn several() -> Value {
    let mut request = sound();
    let config = request["HyperParameterTuningJobConfig"].as_object_mut().expect("an object");
    let (objective, ranges) = (config.remove("HyperParameterTuningJobObjective"), config.remove("ParameterRanges"));
    let one = request.as_object_mut().expect("an object").remove("TrainingJobDefinition").expect("a definition");
    let named = |name: &str| {
        let mut one = one.clone();
        one["DefinitionName"] = json!(name);
        one["TuningObjective"] = objective.clone().expect("an objective");
        one["HyperParameterRanges"] = ranges.clone().expect("ranges");
        one
    };
    request["TrainingJobDefinitions"] = json!([named("a"), named("b")]);
    request
}

#[test]
fn a_sound_request_becomes_a_typed_job() {
    let job = create(&sound()).expect("a sound request");
    assert_eq!(
        (job.name.as_str(), job.strategy, job.early_stopping, job.seed),
        ("titanic", Strategy::Bayesian, true, Some(7))
    );
    assert_eq!((job.limits.max_jobs, job.limits.max_parallel, job.limits.max_runtime_s), (Some(9), 3, Some(3600)));
    assert_eq!(
        (job.completion.target, job.completion.not_improving, job.completion.convergence),
        (Some(0.99), Some(5), true)
    );
    let definition = &job.definitions[0];
    assert_eq!((definition.objective.goal, definition.objective.metric.as_str()), (Goal::Maximize, "validation:auc"));
    let range = |name: &str, values| ParameterRange { name: name.to_owned(), values };
    assert_eq!(
        definition.ranges,
        [
            range("max_depth", RangeValues::Integer { min: 1, max: 10, scaling: ScalingType::Auto }),
            range("eta", RangeValues::Continuous { min: 0.01, max: 1.0, scaling: ScalingType::Logarithmic }),
            range("booster", RangeValues::Categorical(vec!["gbtree".to_owned(), "dart".to_owned()])),
        ]
    );
    assert_eq!(Value::Object(job.raw), sound(), "numbers stay the strings that they were");
    let job = create(&several()).expect("a sound request");
    assert_eq!(job.definitions.iter().map(|it| it.name.as_deref()).collect::<Vec<_>>(), [Some("a"), Some("b")]);
}

#[test]
fn a_trial_is_an_ordinary_training_job() {
    let mut request = sound();
    request["TrainingJobDefinition"]["CheckpointConfig"] =
        json!({"S3Uri": "s3://my-bucket/checkpoints/", "LocalPath": "/opt/ml/checkpoints"});
    request["TrainingJobDefinition"]["RetryStrategy"] = json!({"MaximumRetryAttempts": 2});
    request["TrainingJobDefinition"]["EnableNetworkIsolation"] = json!(true);
    let job = create(&request).expect("a sound request");
    let tuned = [("eta".to_owned(), "0.30000000000000004".to_owned()), ("max_depth".to_owned(), "3".to_owned())];
    let own =
        Child { name: "titanic-001-0123abcd", tuned: &tuned, alternative: 0, tags: &job.tags, keeps_checkpoints: true };
    let child = job.definitions[0].child(&own).expect("a training job");
    let hyperparameters = json!({"objective": "binary:logistic", "num_round": "10", "eta": "0.30000000000000004", "max_depth": "3",
        "_tuning_objective_metric": "validation:auc"});
    assert_eq!(child.raw["HyperParameters"], hyperparameters);
    assert_eq!(
        child.raw["ResourceConfig"],
        json!({"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30})
    );
    assert_eq!(
        child.checkpoint.as_ref().map(|it| it.uri.to_string()).as_deref(),
        Some("s3://my-bucket/checkpoints/titanic-001-0123abcd")
    );
    let tags = [("team", "trees"), ("shoal:network", "host")]
        .map(|(key, value)| Tag { key: key.to_owned(), value: value.to_owned() });
    assert_eq!(child.tags, tags, "the tuning job's, but for its strategy");
    assert_eq!((child.retries, child.enable_network_isolation, child.environment["A"].as_str()), (2, true, "1"));
    let plain = create(&sound()).expect("a sound request");
    let checkpoint = |keeps_checkpoints| {
        let child = plain.definitions[0].child(&Child { keeps_checkpoints, ..own }).expect("a training job");
        child.checkpoint.map(|it| it.uri.to_string())
    };
    assert_eq!(checkpoint(true).as_deref(), Some("s3://my-bucket/out/titanic-001-0123abcd/checkpoints"));
    assert_eq!(checkpoint(false), None);
}

#[test]
fn a_script_of_the_user_s_is_run_on_the_host() {
    let mut request = sound();
    let definition = &mut request["TrainingJobDefinition"];
    definition["AlgorithmSpecification"] = json!({"TrainingImage": "shoal/host", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "validation:auc", "Regex": "auc=([0-9.]+)"}]});
    assert!(create(&changed(&request, "/Tags", None)).expect_err("no program").message.contains("sagemaker_program"));
    request["TrainingJobDefinition"]["StaticHyperParameters"] = json!({"sagemaker_program": "\"train.py\"", "n": "1", "b": "true",
        "sagemaker_submit_directory": "\"s3://my-bucket/source/sourcedir.tar.gz\"", "text": "\"16\""});
    let job = create(&request).expect("a sound request");
    let tuned = [("eta".to_owned(), "0.5".to_owned())];
    let child = Child { name: "t-001-0", tuned: &tuned, alternative: 0, tags: &[], keeps_checkpoints: false };
    let child = job.definitions[0].child(&child).expect("a training job");
    let script = child.script.expect("a script");
    assert_eq!(script.program, "train.py");
    assert_eq!(script.source.map(|it| it.to_string()).as_deref(), Some("s3://my-bucket/source/sourcedir.tar.gz"));
    assert_eq!((child.algorithm.entrypoint.len(), child.channels.len()), (0, 1));
    let mut with = |name: &str, value: &str| {
        request["TrainingJobDefinition"]["StaticHyperParameters"][name] = json!(value);
        create(&request)
    };
    for (directory, part) in [
        ("", "sagemaker_program needs it"),
        ("source", "neither an S3 location nor an absolute path"),
        ("s3://my-bucket/x", "no .tar.gz archive"),
    ] {
        let message = with("sagemaker_submit_directory", directory).expect_err(part).message;
        assert!(message.contains("sagemaker_submit_directory'") && message.contains(part), "{message}");
    }
    with("sagemaker_submit_directory", "/code").expect("a directory");
    for (output, expected) in [
        ("\"s3://my-bucket/out\"", Some("s3://my-bucket/out")),
        ("s3://my-bucket/out", Some("s3://my-bucket/out")),
        ("null", None),
        ("\"file:///tmp/out\"", None),
        ("\"\"", None),
    ] {
        let job = with("sagemaker_s3_output", output).expect("a sound request");
        let script = job.definitions[0].training.script.as_ref().expect("a script");
        assert_eq!(script.output.as_ref().map(ToString::to_string).as_deref(), expected, "{output}");
    }
    for output in ["out", "\"S3://my-bucket/out\"", "s3://x"] {
        let message = with("sagemaker_s3_output", output).expect_err(output).message;
        assert!(message.contains("yperParameters.sagemaker_s3_output'"), "{message}");
    }
    assert_eq!(child.raw["InputDataConfig"].as_array().map(Vec::len), Some(1), "the request stays as it was");
}

#[test]
fn rules_that_need_no_state_are_checked() {
    let refused = |request: &Value, code: ErrorCode, part: &str| {
        let error = create(request).expect_err(part);
        assert!(error.code == code && error.message.contains(part), "{part}: {error}");
    };
    let base = changed(&sound(), "/Tags", None);
    let check = |pointer: &str, value: Value, part: &str| {
        refused(
            &changed(&base, pointer, Some(&value).filter(|value| !value.is_null())),
            ErrorCode::ValidationException,
            part,
        );
    };
    let config = "/HyperParameterTuningJobConfig";
    check("/HyperParameterTuningJobName", json!("x".repeat(33)), "less than or equal to 32");
    check(&format!("{config}/Strategy"), json!("Genetic"), "[Bayesian, Random, Hyperband, Grid]");
    check(
        &format!("{config}/Strategy"),
        json!("baysian"),
        "[Bayesian, Random, Hyperband, Grid]; did you mean Bayesian?",
    );
    check(&format!("{config}/HyperParameterTuningJobObjective/Type"), json!("Maximum"), "; did you mean Maximize?");
    check(
        &format!("{config}/HyperParameterTuningJobObjective"),
        Value::Null,
        "'hyperParameterTuningJobConfig.hyperParameterTuningJobObjective'",
    );
    check(&format!("{config}/ResourceLimits/MaxRuntimeInSeconds"), json!(119), "greater than or equal to 120");
    check(&format!("{config}/ResourceLimits/MaxRuntimeInSeconds"), json!(15_768_001), "less than or equal to 15768000");
    check(
        &format!("{config}/TuningJobCompletionCriteria/BestObjectiveNotImproving/MaxNumberOfTrainingJobsNotImproving"),
        json!(2),
        "equal to 3",
    );
    check(&format!("{config}/RandomSeed"), json!(-1), "equal to 0");
    check(
        &format!("{config}/StrategyConfig"),
        json!({"HyperbandStrategyConfig": {"MinResource": 1}}),
        "for the strategy Hyperband only",
    );

    let ranges = format!("{config}/ParameterRanges");
    let path = "hyperParameterTuningJobConfig.parameterRanges";
    check(&ranges, Value::Null, "nothing to tune");
    let integer = |range: Value, part: &str| check(&format!("{ranges}/IntegerParameterRanges"), json!([range]), part);
    let at = format!("'{path}.integerParameterRanges.1.member");
    integer(
        json!({"Name": "d", "MinValue": "1.5", "MaxValue": "3"}),
        &format!("{at}.minValue': '1.5' is not a whole number"),
    );
    integer(json!({"Name": "d", "MinValue": "1", "MaxValue": "99999999999999999999"}), &format!("{at}.maxValue'"));
    integer(
        json!({"Name": "d", "MinValue": "4", "MaxValue": "3"}),
        "the minimum of 'd', 4, is greater than its maximum, 3",
    );
    integer(
        json!({"Name": "d", "MinValue": "0", "MaxValue": "3", "ScalingType": "Logarithmic"}),
        "values greater than 0",
    );
    integer(
        json!({"Name": "d", "MinValue": "0", "MaxValue": "3", "ScalingType": "ReverseLogarithmic"}),
        "for continuous parameters",
    );
    integer(json!({"Name": "eta", "MinValue": "0", "MaxValue": "3"}), "'eta' has a range already");
    integer(json!({"Name": "num_round", "MinValue": "1", "MaxValue": "3"}), "'num_round' is tuned, too");
    integer(json!({"Name": "_tuning_objective_metric", "MinValue": "1", "MaxValue": "3"}), "choose another name");
    let continuous =
        |range: Value, part: &str| check(&format!("{ranges}/ContinuousParameterRanges"), json!([range]), part);
    let at = format!("'{path}.continuousParameterRanges.1.member");
    continuous(
        json!({"Name": "x", "MinValue": "nan", "MaxValue": "1"}),
        &format!("{at}.minValue': 'nan' is not a finite number"),
    );
    continuous(json!({"Name": "x", "MinValue": "0", "MaxValue": "inf"}), &format!("{at}.maxValue'"));
    continuous(
        json!({"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Logarithmic"}),
        "values greater than 0",
    );
    continuous(
        json!({"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "ReverseLogarithmic"}),
        "0 <= values < 1",
    );
    continuous(
        json!({"Name": "x", "MinValue": "-0.1", "MaxValue": "0.5", "ScalingType": "ReverseLogarithmic"}),
        "0 <= values < 1",
    );
    let many: Vec<Value> =
        (0..29).map(|at| json!({"Name": format!("p{at}"), "MinValue": "0", "MaxValue": "1"})).collect();
    check(
        &format!("{ranges}/ContinuousParameterRanges"),
        json!(many),
        "31 ranges of all kinds together, and 30 are allowed",
    );
    check(
        &format!("{ranges}/CategoricalParameterRanges"),
        json!([{"Name": "c", "Values": ["a", "a"]}]),
        "the value 'a' is there twice",
    );
    check(
        &format!("{ranges}/CategoricalParameterRanges"),
        json!([{"Name": "c", "Values": []}]),
        "greater than or equal to 1",
    );
    check(&format!("{ranges}/AutoParameters"), json!([{"Name": "gamma", "ValueHint": "1"}]), "for Autotune only");

    let definition = "/TrainingJobDefinition";
    check(definition, Value::Null, "give TrainingJobDefinition or TrainingJobDefinitions");
    check("/TrainingJobDefinitions", several()["TrainingJobDefinitions"].clone(), "alternatives; give one of them");
    check(&format!("{definition}/TuningObjective"), json!({"Type": "Minimize", "MetricName": "m"}), "give it once");
    check(&format!("{definition}/HyperParameterRanges"), json!({}), "give the ranges once");
    check(&format!("{definition}/HyperParameterTuningResourceConfig"), Value::Null, "give it or ResourceConfig");
    check(
        &format!("{definition}/ResourceConfig"),
        json!({"InstanceType": "ml.m5.xlarge", "InstanceCount": 1}),
        "are alternatives",
    );
    let resources = "'trainingJobDefinition.hyperParameterTuningResourceConfig";
    check(
        &format!("{definition}/HyperParameterTuningResourceConfig/InstanceCount"),
        json!(0),
        &format!("{resources}.instanceCount'"),
    );
    let channels = format!("{definition}/InputDataConfig/0/InputMode");
    check(&channels, json!("Pipe"), "'trainingJobDefinition.inputDataConfig.1.member.inputMode'");
    check(
        &format!("{definition}/StaticHyperParameters/objective"),
        json!("a\0"),
        "'trainingJobDefinition.staticHyperParameters'",
    );
    let statics: serde_json::Map<_, _> = (0..98).map(|at| (format!("s{at}"), json!("1"))).collect();
    check(
        &format!("{definition}/StaticHyperParameters"),
        statics.into(),
        "101 static and tuned hyperparameters together",
    );

    let parents = |names: &[&str]| {
        let each: Value = names.iter().map(|name| json!({"HyperParameterTuningJobName": name})).collect();
        json!({"ParentHyperParameterTuningJobs": each, "WarmStartType": "TransferLearning"})
    };
    check("/WarmStartConfig", parents(&["a", "a"]), "the parent 'a' is there twice");
    check("/WarmStartConfig", parents(&[]), "greater than or equal to 1");
    check("/WarmStartConfig", parents(&["a", "b", "c", "d", "e", "f"]), "less than or equal to 5");

    let limits = format!("{config}/ResourceLimits");
    refused(
        &changed(&base, &format!("{limits}/MaxNumberOfTrainingJobs"), Some(&json!(100_001))),
        ErrorCode::ResourceLimitExceeded,
        "100000",
    );
    refused(
        &changed(&base, &format!("{limits}/MaxParallelTrainingJobs"), Some(&json!(1_001))),
        ErrorCode::ResourceLimitExceeded,
        "1000",
    );
    let mut endless = changed(
        &changed(&base, &limits, Some(&json!({"MaxParallelTrainingJobs": 1}))),
        &format!("{config}/TuningJobCompletionCriteria"),
        None,
    );
    refused(&endless, ErrorCode::ValidationException, "nothing would end the tuning job");
    endless["Autotune"] = json!({"Mode": "Enabled"});
    let ends = create(&endless).expect("Autotune finds the limits").completion;
    assert_eq!((ends.not_improving, ends.convergence), (Some(30), true));
}

#[test]
fn definitions_of_a_list_stand_for_themselves() {
    let base = changed(&several(), "/Tags", None);
    let check = |pointer: &str, value: Value, part: &str| {
        let request = changed(&base, pointer, Some(&value).filter(|value| !value.is_null()));
        let error = create(&request).expect_err(part);
        assert!(error.code == ErrorCode::ValidationException && error.message.contains(part), "{part}: {error}");
    };
    check("/TrainingJobDefinitions/1/DefinitionName", json!("a"), "the definition 'a' is there twice");
    check("/TrainingJobDefinitions/1/DefinitionName", Value::Null, "'trainingJobDefinitions.2.member.definitionName'");
    check(
        "/TrainingJobDefinitions/1/TuningObjective",
        Value::Null,
        "'trainingJobDefinitions.2.member.tuningObjective'",
    );
    check(
        "/TrainingJobDefinitions/1/TuningObjective/Type",
        json!("Minimize"),
        "one tuning job finds one best training job",
    );
    check(
        "/TrainingJobDefinitions/1/HyperParameterRanges",
        Value::Null,
        "'trainingJobDefinitions.2.member.hyperParameterRanges'",
    );
    let config = "/HyperParameterTuningJobConfig";
    check(
        &format!("{config}/ParameterRanges"),
        sound()["HyperParameterTuningJobConfig"]["ParameterRanges"].clone(),
        "give the ranges once",
    );
    let objective = sound()["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"].clone();
    check(&format!("{config}/HyperParameterTuningJobObjective"), objective, "give it once");
}

#[test]
fn hyperband_knows_how_long_a_training_job_is() {
    let mut base = changed(&sound(), "/Tags", None);
    base["HyperParameterTuningJobConfig"]["Strategy"] = json!("Hyperband");
    base["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] = json!("Off");
    let resource = |hyperband: Value, statics: Value| {
        let mut request = base.clone();
        request["HyperParameterTuningJobConfig"]["StrategyConfig"] = json!({"HyperbandStrategyConfig": hyperband});
        request["TrainingJobDefinition"]["StaticHyperParameters"] = statics;
        create(&request).map(|job| (job.min_resource, job.definitions[0].max_resource)).map_err(|error| error.message)
    };
    let none = json!({});
    assert_eq!(resource(json!({"MinResource": 2, "MaxResource": 20}), none.clone()), Ok((Some(2), Some(20))));
    for name in ["epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"] {
        assert_eq!(resource(json!({}), json!({name: "9"})), Ok((None, Some(9))), "{name}");
    }
    assert_eq!(resource(json!({}), json!({"epochs": "\"9\""})), Ok((None, Some(9))), "as SDK v2 writes texts");
    let fails = |hyperband: Value, statics: Value, part: &str| {
        let message = resource(hyperband, statics).expect_err(part);
        assert!(message.contains(part), "{part}: {message}");
    };
    let missing = "MaxResource parameter is not provided and could not be inferred from provided static hyperparameters of TrainingJobDefinition";
    fails(json!({}), json!({"num_round": "10"}), missing);
    fails(json!({}), json!({"epochs": "many"}), "'many' and not a whole number from 1 to 20000");
    fails(json!({"MaxResource": 20_001}), none.clone(), "20001 is more than 20000");
    fails(json!({"MinResource": 21, "MaxResource": 20}), none, "21 is greater than the MaxResource");
    base["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] = json!("Auto");
    assert!(
        create(&base).expect_err("two ways to stop early").message.contains("must be Off for the strategy Hyperband")
    );
}

#[test]
fn a_grid_has_as_many_training_jobs_as_combinations() {
    let grid = |jobs: Option<u32>, values: [usize; 2]| {
        let mut request = changed(&sound(), "/Tags", None);
        let names = |count: usize| (0..count).map(|at| format!("v{at}")).collect::<Vec<_>>();
        let config = &mut request["HyperParameterTuningJobConfig"];
        config["Strategy"] = json!("Grid");
        config["ParameterRanges"] = json!({"CategoricalParameterRanges": [{"Name": "a", "Values": names(values[0])}, {"Name": "b", "Values": names(values[1])}]});
        config["ResourceLimits"] = json!({"MaxParallelTrainingJobs": 1});
        if let Some(jobs) = jobs {
            config["ResourceLimits"]["MaxNumberOfTrainingJobs"] = json!(jobs);
        }
        create(&request).map(|job| job.limits.max_jobs).map_err(|error| error.message)
    };
    assert_eq!(grid(None, [3, 4]), Ok(Some(12)));
    assert_eq!(grid(Some(12), [3, 4]), Ok(Some(12)));
    let few = grid(Some(10), [3, 1]).expect_err("too many");
    assert_eq!(
        few,
        "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter combinations for the provided ranges [3.0] \
         must be equal or greater than the value of MaxNumberOfJobs, [10]."
    );
    assert!(grid(Some(11), [3, 4]).expect_err("too few").contains("give 12, or leave it out"));
    let mut request = changed(&sound(), "/Tags", None);
    request["HyperParameterTuningJobConfig"]["Strategy"] = json!("Grid");
    assert!(create(&request).expect_err("numbers").message.contains("for categorical parameters only"));
    request["HyperParameterTuningJobConfig"]["Strategy"] = json!("Random");
    request["HyperParameterTuningJobConfig"]["ParameterRanges"] =
        json!({"IntegerParameterRanges": [{"Name": "d", "MinValue": "1", "MaxValue": "3"}]});
    assert!(
        create(&request).expect_err("three whole numbers").message.contains("ranges [3.0] must be"),
        "not only a grid can be too small"
    );
}

#[test]
fn a_warm_start_keeps_what_its_parents_were_about() {
    let parent = create(&changed(&sound(), "/Tags", None)).expect("a sound request");
    let outcome = |kind: &str, change: &dyn Fn(&mut Value)| {
        let mut request = changed(&sound(), "/Tags", None);
        request["WarmStartConfig"] = json!({"WarmStartType": kind, "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "titanic"}]});
        change(&mut request);
        check_warm_start(&create(&request).expect("sound by itself"), &parent).map_err(|error| error.message)
    };
    let (identical, transfer) = ("IdenticalDataAndAlgorithm", "TransferLearning");
    let fails = |kind: &str, part: &str, change: &dyn Fn(&mut Value)| {
        let message = outcome(kind, change).expect_err(part);
        assert!(message.contains(part), "{part}: {message}");
    };
    let ranges = |request: &mut Value, kind: &str, value: Value| {
        request["HyperParameterTuningJobConfig"]["ParameterRanges"][kind] = value;
    };
    for kind in [identical, transfer] {
        assert_eq!(outcome(kind, &|_| {}), Ok(()), "{kind}");
        assert_eq!(
            outcome(kind, &|it| ranges(
                it,
                "IntegerParameterRanges",
                json!([{"Name": "max_depth", "MinValue": "2", "MaxValue": "40"}])
            )),
            Ok(())
        );
        assert_eq!(
            outcome(kind, &|it| it["TrainingJobDefinition"]["OutputDataConfig"]["S3OutputPath"] = json!("s3://other/")),
            Ok(())
        );
        assert_eq!(
            outcome(kind, &|it| {
                ranges(it, "CategoricalParameterRanges", json!([]));
                it["TrainingJobDefinition"]["StaticHyperParameters"]["booster"] = json!("dart");
            }),
            Ok(()),
            "from tuned to static"
        );
        fails(
            kind,
            "The set of tunable plus static HyperParameter names is not the same across current and parent tuning jobs.",
            &|it| {
                it["TrainingJobDefinition"]["StaticHyperParameters"]["more"] = json!("1");
            },
        );
        fails(kind, "the type (integer, continuous, categorical) of the hyperparameter 'max_depth'", &|it| {
            ranges(it, "IntegerParameterRanges", json!([]));
            ranges(
                it,
                "ContinuousParameterRanges",
                json!([{"Name": "max_depth", "MinValue": "1", "MaxValue": "9"}, {"Name": "eta", "MinValue": "0.1", "MaxValue": "1"}]),
            );
        });
        fails(kind, "the objective metric must be the same", &|it| {
            it["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"]["MetricName"] =
                json!("validation:error");
        });
        fails(kind, "Only the following fields in TrainingJobDefinition are allowed to change: [", &|it| {
            it["TrainingJobDefinition"]["Environment"]["A"] = json!("2");
        });
    }
    let data = |it: &mut Value| {
        it["TrainingJobDefinition"]["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] =
            json!("s3://my-bucket/new");
    };
    let image = |it: &mut Value| {
        it["TrainingJobDefinition"]["AlgorithmSpecification"]["TrainingImage"] = json!("sagemaker-xgboost:3.0-5");
    };
    assert_eq!((outcome(transfer, &data), outcome(transfer, &image)), (Ok(()), Ok(())));
    let only = "Only the following fields in TrainingJobDefinition are allowed to change: [outputDataConfig, staticHyperParameters, roleArn";
    fails(identical, only, &data);
    fails(identical, only, &image);

    let with = |values: &str| {
        let mut request = changed(&sound(), "/Tags", None);
        let statics = (0..11).map(|at| (format!("s{at}"), json!(values))).collect::<serde_json::Map<_, _>>();
        request["TrainingJobDefinition"]["StaticHyperParameters"] = statics.into();
        create(&request).expect("a sound request")
    };
    let error = check_warm_start(&with("1"), &with("2")).expect_err("eleven changes");
    assert!(error.message.contains("11 hyperparameters became static or have another static value"), "{error}");
}

#[test]
fn describe_gives_what_the_clients_read() {
    let answer = |request: &Value, description: TuningJobDescription| -> Value {
        let request = request.as_object().expect("an object").clone();
        let reply = Reply::describe_tuning_job(&request, &description);
        let describe =
            operations().find(|operation| operation.name == "DescribeHyperParameterTuningJob").expect("served");
        serde_json::from_slice(respond(describe, &reply, shoal_wire::Protocol::Json, "id").body()).expect("JSON")
    };
    let told = answer(
        &sound(),
        TuningJobDescription { status: "InProgress".to_owned(), created_ms: 1500, ..TuningJobDescription::default() },
    );
    let definition = &told["TrainingJobDefinition"];
    assert_eq!(definition["StaticHyperParameters"]["_tuning_objective_metric"], "validation:auc");
    assert_eq!(
        definition["ResourceConfig"],
        json!({"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30})
    );
    assert_eq!(
        definition["HyperParameterTuningResourceConfig"],
        self::definition()["HyperParameterTuningResourceConfig"]
    );
    assert_eq!(definition["AlgorithmSpecification"]["MetricDefinitions"], json!([]));
    assert_eq!(
        told["HyperParameterTuningJobConfig"]["ParameterRanges"]["ContinuousParameterRanges"][0]["MinValue"],
        "0.010"
    );
    assert_eq!(
        (&told["CreationTime"], &told["Tags"], &told["BestTrainingJob"]),
        (&json!(1.5), &Value::Null, &Value::Null)
    );
    let best = TrialSummary {
        name: "titanic-001-0".to_owned(),
        status: "Completed".to_owned(),
        tuned: vec![("eta".to_owned(), "0.5".to_owned())],
        objective: Some((shoal_wire::Objective { goal: Goal::Maximize, metric: "validation:auc".to_owned() }, 0.75)),
        objective_status: "Succeeded".to_owned(),
        ..TrialSummary::default()
    };
    let told = answer(
        &several(),
        TuningJobDescription { best: Some(best), runtime_s: Some(3), ..TuningJobDescription::default() },
    );
    for definition in told["TrainingJobDefinitions"].as_array().expect("definitions") {
        assert_eq!(definition["StaticHyperParameters"]["_tuning_objective_metric"], "validation:auc");
    }
    assert_eq!(told["BestTrainingJob"]["TunedHyperParameters"], json!({"eta": "0.5"}));
    let value = json!({"Type": "Maximize", "MetricName": "validation:auc", "Value": 0.75});
    assert_eq!(told["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"], value);
    assert_eq!(told["ConsumedResources"], json!({"RuntimeInSeconds": 3}));
}

#[test]
fn any_change_of_a_request_is_survived() {
    check_with("sound", &sound(), &|request| create(request).err());
    let Some(goldens) = goldens() else { return };
    for golden in goldens.iter().filter(|golden| golden.operation == "CreateHyperParameterTuningJob") {
        check_with(&golden.case, &serde_json::from_slice(&golden.body).expect("JSON"), &|request| {
            create(request).err()
        });
    }
}

#[test]
fn how_many_run_can_be_changed_within_limits() {
    let update = |parallel: u32| {
        let request = Request::post("/")
            .header("x-amz-target", "Shoal.UpdateHyperParameterTuningJob")
            .body(())
            .expect("a request");
        let body = json!({"HyperParameterTuningJobName": "titanic", "MaxParallelTrainingJobs": parallel});
        parse(Service::SageMaker, &request.into_parts().0, body.to_string().as_bytes())
            .and_then(Call::read::<UpdateTuningJob>)
    };
    for parallel in [1, 1000] {
        let Ok(update) = update(parallel) else { panic!("{parallel} may run") };
        assert_eq!(
            (update.hyper_parameter_tuning_job_name.as_str(), update.max_parallel_training_jobs),
            ("titanic", parallel)
        );
    }
    for parallel in [0, 1001] {
        let error = update(parallel).expect_err("too few or too many");
        assert!(error.code == ErrorCode::ValidationException && error.message.contains("from 1 to 1000"), "{error}");
    }
}
