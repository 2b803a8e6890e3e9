//! What `parse` refuses and what it makes of what it accepts, as data against `check`: a sound
//! request with one thing changed.

use std::fmt::Debug;

use http::{Request, request::Parts};
use serde_json::{Value, json};
use shoal_wire::{
    AddTags, CreateTrainingJob, DeleteTags, DescribeLogStreams, Error, ErrorCode, GetLogEvents, GetRole, Input,
    InputMode, ListTags, LogStreamOrder, NamedTrainingJob, OutputCompression, S3DataType, Service, Tag,
    UpdateTrainingJob, parse,
};

use crate::changes::changed;

fn head(target: &str) -> Parts {
    Request::post("/").header("x-amz-target", target).body(()).expect("a request").into_parts().0
}

fn typed<I: Input>(service: Service, target: &str, body: &[u8]) -> Result<I, Error> {
    parse(service, &head(target), body)?.read()
}

pub(crate) fn create(body: &Value) -> Result<CreateTrainingJob, Error> {
    typed(Service::SageMaker, "SageMaker.CreateTrainingJob", body.to_string().as_bytes())
}

pub(crate) fn sound() -> Value {
    json!({
        "TrainingJobName": "titanic-1",
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["python3", "train.py"],
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}]},
        "InputDataConfig": [
            {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/train"}}},
            {"ChannelName": "validation", "DataSource": {"S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": "s3://my-bucket/list",
                "S3DataDistributionType": "ShardedByS3Key"}}, "InputMode": "FastFile", "ContentType": "text/csv", "ShuffleConfig": {"Seed": 7}}
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://my-bucket/out/", "CompressionType": "NONE", "KmsKeyId": ""},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 10, "KeepAlivePeriodInSeconds": 60},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "HyperParameters": {"num_round": "10"},
        "Environment": {"A": "b\nc"},
        "Tags": [{"Key": "team", "Value": "trees"}],
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "CheckpointConfig": {"S3Uri": "s3://my-bucket/checkpoints"}
    })
}

#[test]
fn a_sound_request_becomes_a_typed_job() {
    let job = create(&sound()).expect("a sound request");
    assert_eq!(job.algorithm.entrypoint, ["python3", "train.py"]);
    assert_eq!(job.algorithm.metric_definitions[0].regex, "loss: ([0-9.]+)");
    assert_eq!((job.channels[0].data_type, job.channels[0].input_mode), (S3DataType::S3Prefix, InputMode::File));
    assert_eq!(
        (job.channels[1].data_type, job.channels[1].input_mode),
        (S3DataType::ManifestFile, InputMode::FastFile)
    );
    assert_eq!(
        (job.channels[0].distribution.as_str(), job.channels[1].distribution.as_str()),
        ("FullyReplicated", "ShardedByS3Key")
    );
    assert_eq!((job.channels[1].uri.bucket.as_str(), job.channels[1].uri.prefix.as_str()), ("my-bucket", "list"));
    assert_eq!((job.channels[1].content_type.as_deref(), job.channels[1].shuffle_seed), (Some("text/csv"), Some(7)));
    assert_eq!((job.output.compression, &job.output.kms_key_id), (OutputCompression::None, &None));
    assert_eq!((job.resources.instance_count, job.resources.volume_gb, job.resources.keep_alive_s), (2, 10, 60));
    assert_eq!((job.stopping.max_runtime_s, job.stopping.max_wait_s, job.retries), (3600, None, 3));
    assert_eq!(job.checkpoint.as_ref().map(|it| it.local_path.as_str()), Some("/opt/ml/checkpoints"));
    assert_eq!((job.environment["A"].as_str(), job.tags[0].key.as_str()), ("b\nc", "team"));
    assert_eq!(Value::Object(job.raw), sound());
}

#[test]
fn absent_members_have_defaults() {
    let mut request = sound();
    for name in [
        "InputDataConfig",
        "HyperParameters",
        "Environment",
        "Tags",
        "RetryStrategy",
        "CheckpointConfig",
        "StoppingCondition",
    ] {
        request.as_object_mut().unwrap().remove(name);
    }
    request["OutputDataConfig"] = json!({"S3OutputPath": "s3://my-bucket"});
    request["ResourceConfig"] =
        json!({"InstanceGroups": [{"InstanceType": "ml.m5.large", "InstanceCount": 3, "InstanceGroupName": "all"}]});
    let job = create(&request).expect("a sound request");
    assert!(
        job.channels.is_empty() && job.hyperparameters.is_empty() && job.tags.is_empty() && job.checkpoint.is_none()
    );
    assert_eq!((job.stopping.max_runtime_s, job.retries, job.output.compression), (86_400, 0, OutputCompression::Gzip));
    assert_eq!((job.resources.instance_type.as_str(), job.resources.instance_count), ("ml.m5.large", 3));
    assert_eq!(job.resources.instance_groups.len(), 1);
    let group = |name: &str, kind: &str, count: u32| json!({"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count});
    request["ResourceConfig"] =
        json!({"InstanceGroups": [group("a", "ml.m5.large", 1), group("b", "ml.c5.xlarge", 2)]});
    let job = create(&request).expect("groups of several types");
    assert_eq!((job.resources.instance_type.as_str(), job.resources.instance_count), ("ml.m5.large", 3));
    assert_eq!(job.resources.types(), [("ml.m5.large", 1), ("ml.c5.xlarge", 2)]);
}

#[test]
fn rules_that_need_no_state_are_checked() {
    let check = |pointer: &str, value: Value, path: &str, hint: &str| {
        let request = changed(&sound(), pointer, Some(&value).filter(|value| !value.is_null()));
        let error = create(&request).expect_err(pointer);
        assert_eq!(error.code, ErrorCode::ValidationException, "{pointer} = {value}: {error}");
        assert!(
            error.message.contains(&format!("'{path}'")) && error.message.contains(hint),
            "{pointer} = {value}: {error}"
        );
    };
    let algorithm = "algorithmSpecification";
    check("/AlgorithmSpecification", Value::Null, algorithm, "required");
    check("/AlgorithmSpecification/TrainingImage", Value::Null, algorithm, "give one of");
    check("/AlgorithmSpecification/TrainingImage", json!(""), "algorithmSpecification.trainingImage", "empty");
    check("/AlgorithmSpecification/AlgorithmName", json!("my-algorithm"), algorithm, "alternatives");
    check(
        "/AlgorithmSpecification/ContainerEntrypoint",
        Value::Null,
        "algorithmSpecification.containerEntrypoint",
        "python3",
    );
    check(
        "/AlgorithmSpecification/ContainerEntrypoint",
        json!([""]),
        "algorithmSpecification.containerEntrypoint",
        "python3",
    );
    check(
        "/AlgorithmSpecification/ContainerArguments",
        json!(["a\0"]),
        "algorithmSpecification.containerArguments",
        "NUL",
    );
    check("/Environment/A", json!("\0"), "environment", "NUL");
    check(
        "/AlgorithmSpecification/TrainingInputMode",
        json!("Pipe"),
        "algorithmSpecification.trainingInputMode",
        "FastFile",
    );
    let metrics = "/AlgorithmSpecification/MetricDefinitions";
    let metric = |at: u32, member: &str| format!("algorithmSpecification.metricDefinitions.{at}.member.{member}");
    check(metrics, json!([{"Name": "a", "Regex": "(x)"}, {"Name": "a", "Regex": "(y)"}]), &metric(2, "name"), "twice");
    check(metrics, json!([{"Name": "a", "Regex": "x"}]), &metric(1, "regex"), "no group");
    check(metrics, json!([{"Name": "a", "Regex": "(?:x)"}]), &metric(1, "regex"), "no group");
    check(metrics, json!([{"Name": "a", "Regex": "(x"}]), &metric(1, "regex"), "not a regular expression");

    let channel = "inputDataConfig.1.member";
    check("/InputDataConfig/1/ChannelName", json!("train"), "inputDataConfig.2.member.channelName", "twice");
    check("/InputDataConfig/0/ChannelName", json!(".."), &format!("{channel}.channelName"), "directory");
    check("/InputDataConfig/0/InputMode", json!("Pipe"), &format!("{channel}.inputMode"), "File");
    check("/InputDataConfig/0/CompressionType", json!("Gzip"), &format!("{channel}.compressionType"), "None");
    check(
        "/InputDataConfig/0/RecordWrapperType",
        json!("RecordIO"),
        &format!("{channel}.recordWrapperType"),
        "leave it out",
    );
    let source = format!("{channel}.dataSource");
    check("/InputDataConfig/0/DataSource", json!({}), &source, "S3DataSource");
    let efs = json!({"FileSystemId": "fs-12345678", "FileSystemAccessMode": "ro", "FileSystemType": "EFS", "DirectoryPath": "/d"});
    check("/InputDataConfig/0/DataSource/FileSystemDataSource", efs.clone(), &source, "exactly one");
    check(
        "/InputDataConfig/0/DataSource",
        json!({"FileSystemDataSource": efs}),
        &format!("{source}.fileSystemDataSource"),
        "aws s3 cp",
    );
    let s3 = "/InputDataConfig/0/DataSource/S3DataSource";
    for kind in ["AugmentedManifestFile", "Converse"] {
        check(&format!("{s3}/S3DataType"), json!(kind), &format!("{source}.s3DataSource.s3DataType"), "S3Prefix");
    }
    check(
        &format!("{s3}/AttributeNames"),
        json!(["a"]),
        &format!("{source}.s3DataSource.attributeNames"),
        "leave them out",
    );
    for uri in ["https://bucket.s3.amazonaws.com/a", "s3://Bad_Bucket/a", "s3://ab/a", "s3://-ab/a"] {
        check(&format!("{s3}/S3Uri"), json!(uri), &format!("{source}.s3DataSource.s3Uri"), uri);
        check("/OutputDataConfig/S3OutputPath", json!(uri), "outputDataConfig.s3OutputPath", uri);
        check("/CheckpointConfig/S3Uri", json!(uri), "checkpointConfig.s3Uri", uri);
    }
    for (refused, why) in [
        ("relative", "absolute"),
        ("/opt/ml/../../etc/x", "'..'"),
        ("/", "/ holds more than checkpoints"),
        ("//tmp/.", "/tmp holds more than checkpoints"),
        ("/opt/ml/", "/opt/ml holds more"),
        ("/opt/ml/input/data/train", "/opt/ml/input is not for checkpoints"),
        ("/usr/local/x", "/usr is not for checkpoints"),
    ] {
        check("/CheckpointConfig/LocalPath", json!(refused), "checkpointConfig.localPath", why);
    }

    check("/ResourceConfig", Value::Null, "resourceConfig", "InstanceCount");
    check("/ResourceConfig/InstanceType", Value::Null, "resourceConfig.instanceType", "required");
    check("/ResourceConfig/InstanceCount", Value::Null, "resourceConfig.instanceCount", "required");
    check("/ResourceConfig/InstanceCount", json!(0), "resourceConfig.instanceCount", "at least 1");
    let group = json!({"InstanceType": "ml.m5.large", "InstanceCount": 1, "InstanceGroupName": "a"});
    check("/ResourceConfig/InstanceGroups", json!([group]), "resourceConfig.instanceGroups", "alternatives");
    let groups = "resourceConfig.instanceGroups";
    check(
        "/ResourceConfig",
        json!({"InstanceGroups": [group, group]}),
        &format!("{groups}.2.member.instanceGroupName"),
        "twice",
    );
    let none = json!({"InstanceType": "ml.m5.large", "InstanceCount": 0, "InstanceGroupName": "b"});
    check(
        "/ResourceConfig",
        json!({"InstanceGroups": [group, none]}),
        &format!("{groups}.2.member.instanceCount"),
        "at least 1",
    );
    check(
        "/ResourceConfig/InstancePreferences",
        json!([{"InstanceType": "ml.m5.large"}]),
        "resourceConfig.instancePreferences",
        "one type",
    );

    check("/ResourceConfig/VolumeSizeInGB", json!(16_385), "resourceConfig.volumeSizeInGB", "16384");
    check(
        "/ResourceConfig/TrainingPlanArn",
        json!("arn:aws:sagemaker:us-east-1:123456789012:training-plan/a"),
        "resourceConfig.trainingPlanArn",
        "queue",
    );
    check(
        "/ResourceConfig/InstancePlacementConfig",
        json!({"EnableMultipleJobs": true}),
        "resourceConfig.instancePlacementConfig",
        "leave it out",
    );
    let encrypted = |kind: &str| json!({"InstanceType": kind, "InstanceCount": 1, "VolumeKmsKeyId": "key"});
    for kind in ["ml.g4dn.xlarge", "ml.p4d.24xlarge", "ml.g5.xlarge", "ml.p5.48xlarge", "ml.r5d.large", "ml.g6e.xlarge"]
    {
        check("/ResourceConfig", encrypted(kind), "resourceConfig.volumeKmsKeyId", kind);
    }
    for kind in ["ml.m5.large", "ml.p3.2xlarge", "ml.c5n.xlarge"] {
        create(&changed(&sound(), "/ResourceConfig", Some(&encrypted(kind)))).expect(kind);
    }
    let group_names = format!("{source}.s3DataSource.instanceGroupNames");
    check(&format!("{s3}/InstanceGroupNames"), json!(["a"]), &group_names, "'a'");
    let hub = json!({"HubContentArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/h/Model/m/1.0.0"});
    check(&format!("{s3}/HubAccessConfig"), hub, &format!("{source}.s3DataSource.hubAccessConfig"), "copy the data");
    let access = "algorithmSpecification.trainingImageConfig.trainingRepository";
    let image = "/AlgorithmSpecification/TrainingImageConfig";
    check(image, json!({"TrainingRepositoryAccessMode": "Vpc"}), &format!("{access}AccessMode"), "VpcConfig");
    let auth = json!({"TrainingRepositoryAccessMode": "Platform", "TrainingRepositoryAuthConfig":
        {"TrainingRepositoryCredentialsProviderArn": "arn:aws:lambda:us-east-1:123456789012:function:f"}});
    check(image, auth, &format!("{access}AuthConfig"), "leave it out");

    let (hook, rule) =
        (json!({"S3OutputPath": "s3://my-bucket/d"}), json!({"RuleConfigurationName": "r", "RuleEvaluatorImage": "i"}));
    check("/DebugRuleConfigurations", json!([rule]), "debugHookConfig", "give DebugHookConfig");
    check("/DebugHookConfig", json!({"S3OutputPath": "https://b/d"}), "debugHookConfig.s3OutputPath", "https://b/d");
    check(
        "/DebugHookConfig",
        json!({"S3OutputPath": hook["S3OutputPath"], "LocalPath": "d"}),
        "debugHookConfig.localPath",
        "absolute",
    );
    check(
        "/ProfilerRuleConfigurations",
        json!([rule, rule]),
        "profilerRuleConfigurations.2.member.ruleConfigurationName",
        "twice",
    );
    check("/ProfilerConfig", json!({"DisableProfiler": false}), "profilerConfig.s3OutputPath", "DisableProfiler");
    check("/ProfilerConfig", json!({"S3OutputPath": "https://b/p"}), "profilerConfig.s3OutputPath", "https://b/p");
    let interval = json!({"S3OutputPath": "s3://my-bucket/p", "ProfilingIntervalInMilliseconds": 123});
    check("/ProfilerConfig", interval, "profilerConfig.profilingIntervalInMilliseconds", "500");
    check(
        "/TensorBoardOutputConfig",
        json!({"S3OutputPath": "https://b/t"}),
        "tensorBoardOutputConfig.s3OutputPath",
        "https://b/t",
    );
    check("/HyperParameters/num_round", json!("1\0"), "hyperParameters", "NUL");
    check(
        "/MlflowConfig",
        json!({"MlflowResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/a"}),
        "mlflowConfig",
        "MetricDefinitions",
    );
    let package = json!({"ModelPackageGroupArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/g"});
    check("/ModelPackageConfig", package, "modelPackageConfig", "leave it out");

    let wait = "stoppingCondition.maxWaitTimeInSeconds";
    check(
        "/StoppingCondition/MaxRuntimeInSeconds",
        json!(2_419_201),
        "stoppingCondition.maxRuntimeInSeconds",
        "28 days",
    );
    check("/StoppingCondition/MaxWaitTimeInSeconds", json!(7200), wait, "EnableManagedSpotTraining");
    check("/EnableManagedSpotTraining", json!(true), "resourceConfig.keepAlivePeriodInSeconds", "warm pool");
    check("/Tags", json!([{"Key": "aws:a", "Value": "1"}]), "tags.1.member.key", "reserved");
    check("/Tags", json!([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]), "tags", "twice");
    check(
        "/Tags",
        json!([{"Key": "shoal:min-instances", "Value": "3"}]),
        "shoal:min-instances",
        "from 1 to the InstanceCount, which is 2",
    );
    check("/Tags", json!([{"Key": "shoal:min-instances", "Value": "one"}]), "shoal:min-instances", "'one'");
    check(
        "/Tags",
        json!([{"Key": "shoal:min-instances", "Value": "1"}]),
        "resourceConfig.keepAlivePeriodInSeconds",
        "not retained",
    );
    check(
        "/ServerlessJobConfig",
        json!({"BaseModelArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/h/Model/m", "JobType": "FineTuning"}),
        "serverlessJobConfig",
        "serverless",
    );
}

#[test]
fn a_job_that_loses_instances_reads_all_of_its_data_on_each() {
    let mut request = sound();
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = json!(0);
    request["Tags"] = json!([{"Key": "shoal:min-instances", "Value": "1"}]);
    let error = create(&request).expect_err("its second channel is sharded");
    assert!(error.message.contains("inputDataConfig.2.member") && error.message.contains("FullyReplicated"), "{error}");
    request["InputDataConfig"][1]["DataSource"]["S3DataSource"]["S3DataDistributionType"] = json!("FullyReplicated");
    assert_eq!(create(&request).expect("it is sound").min_instances, Some(1));
}

#[test]
fn spot_training_waits_at_least_as_long_as_it_runs() {
    let check = |wait: Option<u64>, expected: Result<Option<u64>, &str>| {
        let mut request = sound();
        request["EnableManagedSpotTraining"] = json!(true);
        request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = json!(0);
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = json!(wait);
        match (create(&request), expected) {
            (Ok(job), Ok(expected)) => assert_eq!(job.stopping.max_wait_s, expected),
            (Err(error), Err(hint)) => assert!(error.message.contains(hint), "{error}"),
            (outcome, expected) => panic!("{wait:?}: {outcome:?}, not {expected:?}"),
        }
    };
    check(None, Err("needs it"));
    check(Some(3599), Err("3600"));
    check(Some(3600), Ok(Some(3600)));
}

#[test]
fn the_constraint_table_is_applied() {
    let check = |pointer: &str, value: Option<Value>, code: ErrorCode, hint: &str| {
        let error = create(&changed(&sound(), pointer, value.as_ref())).expect_err(pointer);
        assert!(error.code == code && error.message.contains(hint), "{pointer} = {value:?}: {error}");
    };
    let violation = ErrorCode::ValidationException;
    check(
        "/TrainingJobName",
        None,
        violation,
        "Value null at 'trainingJobName' failed to satisfy constraint: Member must not be null",
    );
    check(
        "/TrainingJobName",
        Some(json!("a_b")),
        violation,
        "Value 'a_b' at 'trainingJobName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}",
    );
    check("/RoleArn", Some(json!("SageMakerRole")), violation, "'roleArn'");
    check(
        "/ResourceConfig/InstanceType",
        Some(json!("ml.m5.xlrge")),
        violation,
        "Member must satisfy enum value set: [ml.m5.xlarge, ",
    );
    check(
        "/HyperParameters/long",
        Some(json!("x".repeat(2501))),
        violation,
        "at 'hyperParameters' failed to satisfy constraint: Map value must satisfy constraint: [",
    );
    check("/StoppingCondition/MaxRuntimeInSeconds", Some(json!(0)), violation, "greater than or equal to 1");
    check("/InputDataConfig", Some(json!([])), violation, "'inputDataConfig'");
    check("/HyperParameters/count", Some(json!(3)), ErrorCode::SerializationException, "'hyperParameters.count'");
    check(
        "/ResourceConfig/InstanceCount",
        Some(json!("1")),
        ErrorCode::SerializationException,
        "can not be converted to an Integer",
    );
}

#[test]
fn what_is_no_call_is_told() {
    let check = |service: Service, target: &str, body: &[u8], code: ErrorCode| {
        let error = parse(service, &head(target), body).expect_err(target);
        assert_eq!(error.code, code, "{target}: {error}");
    };
    check(Service::SageMaker, "SageMaker.CreateTrainingJob", b"{", ErrorCode::SerializationException);
    check(Service::SageMaker, "SageMaker.CreateTrainingJob", b"[]", ErrorCode::SerializationException);
    check(Service::SageMaker, "SageMaker.CreateTrainingJob", b"\xff", ErrorCode::SerializationException);
    check(
        Service::SageMaker,
        "SageMaker.CreateTrainingJob",
        "[".repeat(100_000).as_bytes(),
        ErrorCode::SerializationException,
    );
    check(Service::SageMaker, "SageMaker.CreateTrainingJob", b"", ErrorCode::ValidationException);
    check(
        Service::SageMaker,
        "SageMaker.CreateTrainingJob",
        &vec![b' '; shoal_wire::MAX_REQUEST_BYTES + 1],
        ErrorCode::RequestTooLarge,
    );
    for target in ["SageMaker.NoSuch", "Logs_20140328.GetLogEvents", "CreateTrainingJob", "", "SageMaker."] {
        check(Service::SageMaker, target, b"{}", ErrorCode::UnknownOperationException);
    }
    check(
        Service::CloudWatch,
        "GraniteServiceVersion20100801.PutMetricData",
        b"{}",
        ErrorCode::UnknownOperationException,
    );
    for form in ["Action=AssumeSomething&Version=2011-06-15", "Version=2011-06-15", ""] {
        check(Service::Sts, "", form.as_bytes(), ErrorCode::UnknownOperationException);
    }
    check(Service::Iam, "", b"Action=GetRole", ErrorCode::ValidationException);
    check(Service::Iam, "", b"Action=GetRole&RoleName=%FF", ErrorCode::SerializationException);
    check(Service::Logs, "Logs_20140328.GetLogEvents", br#"{"logGroupName": "g"}"#, ErrorCode::ValidationException);
    let no_group = typed::<GetLogEvents>(Service::Logs, "Logs_20140328.GetLogEvents", br#"{"logStreamName": "s"}"#);
    let both = br#"{"logGroupName": "g", "logStreamNamePrefix": "p", "orderBy": "LastEventTime"}"#;
    let both = typed::<DescribeLogStreams>(Service::Logs, "Logs_20140328.DescribeLogStreams", both);
    for error in [no_group.expect_err("no group"), both.expect_err("a prefix ordered by time")] {
        assert_eq!(error.code, ErrorCode::ValidationException, "{error}");
    }
}

#[test]
fn other_calls_are_read() {
    fn check<I: Input + Debug + PartialEq>(service: Service, target: &str, body: &str, expected: I) {
        assert_eq!(typed(service, target, body.as_bytes()), Ok(expected), "{body}");
    }
    let named = r#"{"TrainingJobName": "a-1"}"#;
    for target in ["SageMaker.DescribeTrainingJob", "SageMaker.StopTrainingJob", "SageMaker.DeleteTrainingJob"] {
        check(Service::SageMaker, target, named, NamedTrainingJob { training_job_name: "a-1".to_owned() });
    }
    let resource_arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/a-1".to_owned();
    let tag = Tag { key: "k".to_owned(), value: String::new() };
    let body = format!(
        r#"{{"ResourceArn": "{resource_arn}", "Tags": [{{"Key": "k", "Value": ""}}], "TagKeys": ["k"], "NextToken": "t"}}"#
    );
    let arn = || resource_arn.clone();
    check(Service::SageMaker, "SageMaker.AddTags", &body, AddTags { resource_arn: arn(), tags: vec![tag] });
    check(
        Service::SageMaker,
        "SageMaker.ListTags",
        &body,
        ListTags { resource_arn: arn(), next_token: Some("t".to_owned()) },
    );
    check(
        Service::SageMaker,
        "SageMaker.DeleteTags",
        &body,
        DeleteTags { resource_arn: arn(), tag_keys: vec!["k".to_owned()] },
    );
    let update = UpdateTrainingJob {
        name: "a-1".to_owned(),
        profiler: None,
        profiler_rules: None,
        keep_alive_s: Some(7),
        remote_debug: None,
    };
    let body = r#"{"TrainingJobName": "a-1", "ResourceConfig": {"KeepAlivePeriodInSeconds": 7}}"#;
    check(Service::SageMaker, "SageMaker.UpdateTrainingJob", body, update);
    check(Service::Sts, "", "Action=GetCallerIdentity&Version=2011-06-15", ());
    check(
        Service::Iam,
        "",
        "Action=GetRole&Version=2010-05-08&RoleName=a%2Bb%40c",
        GetRole { role_name: "a+b@c".to_owned() },
    );
    let streams = DescribeLogStreams {
        group: "/aws/sagemaker/TrainingJobs".to_owned(),
        prefix: Some("a-1/".to_owned()),
        order: LogStreamOrder::LogStreamName,
        descending: false,
        limit: Some(2),
        next_token: None,
    };
    let body = r#"{"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": "a-1/", "orderBy": "LogStreamName", "limit": 2}"#;
    check(Service::Logs, "Logs_20140328.DescribeLogStreams", body, streams);
    let events = GetLogEvents {
        group: "/aws/sagemaker/TrainingJobs".to_owned(),
        stream: "a-1/algo-1-1".to_owned(),
        start_ms: Some(0),
        end_ms: None,
        next_token: Some("f/1".to_owned()),
        limit: 10_000,
        from_head: true,
    };
    let body = r#"{"logGroupIdentifier": "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs", "logStreamName": "a-1/algo-1-1",
        "startTime": 0, "startFromHead": true, "nextToken": "f/1"}"#;
    check(Service::Logs, "Logs_20140328.GetLogEvents", body, events);
}

#[test]
fn an_update_changes_what_it_names_and_keeps_the_rules_of_creation() {
    let update = |changes: Value| {
        let mut body = changes;
        body["TrainingJobName"] = json!("a-1");
        typed::<UpdateTrainingJob>(Service::SageMaker, "SageMaker.UpdateTrainingJob", body.to_string().as_bytes())
            .expect("an update")
    };
    let check = |changes: Value, pointer: &str, expected: Result<Value, &str>| {
        let mut request = sound();
        request["ProfilerConfig"] = json!({"S3OutputPath": "s3://my-bucket/p", "DisableProfiler": false});
        let before = request.clone();
        let mut job = create(&request).expect("a sound request");
        match (update(changes.clone()).apply(&mut job), expected) {
            (Ok(()), Ok(expected)) => {
                let now = Value::Object(job.raw.clone());
                assert_eq!(create(&now).as_ref(), Ok(&job), "{changes}: the typed value follows");
                assert_eq!(now.pointer(pointer), Some(&expected), "{changes}");
                assert_eq!(
                    changed(&now, pointer, Some(&Value::Null)),
                    changed(&before, pointer, Some(&Value::Null)),
                    "{changes}: nothing else"
                );
            }
            (Err(error), Err(hint)) => assert!(error.message.contains(hint), "{error}"),
            (outcome, expected) => panic!("{changes}: {outcome:?}, not {expected:?}"),
        }
    };
    check(json!({"ProfilerConfig": {"DisableProfiler": true}}), "/ProfilerConfig/DisableProfiler", Ok(json!(true)));
    check(
        json!({"ResourceConfig": {"KeepAlivePeriodInSeconds": 9}}),
        "/ResourceConfig/KeepAlivePeriodInSeconds",
        Ok(json!(9)),
    );
    check(
        json!({"RemoteDebugConfig": {"EnableRemoteDebug": true}}),
        "/RemoteDebugConfig",
        Ok(json!({"EnableRemoteDebug": true})),
    );
    let rule = |name: usize| json!({"RuleConfigurationName": format!("r{name}"), "RuleEvaluatorImage": "i"});
    check(json!({"ProfilerRuleConfigurations": [rule(1)]}), "/ProfilerRuleConfigurations", Ok(json!([rule(1)])));
    let many: Vec<Value> = (0..20).map(rule).chain([rule(3)]).collect();
    check(json!({"ProfilerRuleConfigurations": many[..20]}), "/ProfilerRuleConfigurations", Ok(json!(many[..20])));
    check(
        json!({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 7}}),
        "",
        Err("profilingIntervalInMilliseconds"),
    );
    check(json!({"ProfilerConfig": {"S3OutputPath": "https://b/p"}}), "", Err("profilerConfig.s3OutputPath"));
}

#[test]
fn a_get_carries_its_form_in_the_query() {
    let (head, ()) = Request::get("/?Action=GetCallerIdentity&Version=2011-06-15").body(()).unwrap().into_parts();
    assert_eq!(parse(Service::Sts, &head, b"").map(|call| call.operation.name), Ok("GetCallerIdentity"));
}
