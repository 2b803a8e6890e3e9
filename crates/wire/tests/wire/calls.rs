//! What `parse` refuses and what it makes of what it accepts, as data against `check`: a sound
//! request with one thing changed.

use std::fmt::Debug;

use http::{Request, request::Parts};
use serde_json::{Value, json};
use shoal_wire::{
    AddTags, Channel, CreateTrainingJob, DeleteTags, DescribeLogStreams, Error, ErrorCode, GetLogEvents, GetRole,
    Input, InputMode, ListTags, LogStreamOrder, NamedTrainingJob, OutputCompression, S3DataType, Service, Tag,
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
    let sources = Vec::from_iter(job.channels.iter().filter_map(Channel::s3));
    assert_eq!(job.algorithm.entrypoint, ["python3", "train.py"]);
    assert_eq!(job.algorithm.metric_definitions[0].regex, "loss: ([0-9.]+)");
    assert_eq!((sources[0].data_type, job.channels[0].input_mode), (S3DataType::S3Prefix, InputMode::File));
    assert_eq!((sources[1].data_type, job.channels[1].input_mode), (S3DataType::ManifestFile, InputMode::FastFile));
    assert_eq!(
        (sources[0].distribution.as_str(), sources[1].distribution.as_str()),
        ("FullyReplicated", "ShardedByS3Key")
    );
    assert_eq!((sources[1].uri.bucket.as_str(), sources[1].uri.prefix.as_str()), ("my-bucket", "list"));
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
        "GraniteServiceVersion20100801.PutDashboard",
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
            (Ok(rules), Ok(expected)) => {
                assert_eq!(rules, job.debugger.profiler_rules, "{changes}: the job has no others");
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
    let parameters = json!({"rule_to_invoke": "CPUBottleneck"});
    let rule = |name: usize| {
        json!({
        "RuleConfigurationName": format!("r{name}"), "RuleEvaluatorImage": "i", "RuleParameters": parameters})
    };
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
