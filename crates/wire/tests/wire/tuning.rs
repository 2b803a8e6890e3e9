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
pub(crate) fn several() -> Value {
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
