//! What creation of a training job refuses, as data against `check`: a sound request with one thing
//! changed.

use serde_json::{Value, json};
use shoal_wire::ErrorCode;

use crate::{
    calls::{create, sound},
    changes::changed,
};

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
    let metrics = "/AlgorithmSpecification/MetricDefinitions";
    let metric = |at: u32, member: &str| format!("algorithmSpecification.metricDefinitions.{at}.member.{member}");
    check(metrics, json!([{"Name": "a", "Regex": "(x)"}, {"Name": "a", "Regex": "(y)"}]), &metric(2, "name"), "twice");
    check(metrics, json!([{"Name": "a", "Regex": "x"}]), &metric(1, "regex"), "no group");
    check(metrics, json!([{"Name": "a", "Regex": "(?:x)"}]), &metric(1, "regex"), "no group");
    check(metrics, json!([{"Name": "a", "Regex": "(x"}]), &metric(1, "regex"), "not a regular expression");

    let channel = "inputDataConfig.1.member";
    check("/InputDataConfig/1/ChannelName", json!("train"), "inputDataConfig.2.member.channelName", "twice");
    check("/InputDataConfig/0/ChannelName", json!(".."), &format!("{channel}.channelName"), "directory");
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
    let of_efs = |member: &str, value: Value| {
        let mut efs = efs.clone();
        efs[member] = value;
        json!({"FileSystemDataSource": efs})
    };
    for (path, why) in [("d", "begin with '/'"), ("/a/../b", "'..'"), ("/a\0", "NUL")] {
        let directory = format!("{source}.fileSystemDataSource.directoryPath");
        check("/InputDataConfig/0/DataSource", of_efs("DirectoryPath", json!(path)), &directory, why);
    }
    check(
        "/InputDataConfig/0",
        json!({"ChannelName": "train", "InputMode": "Pipe", "DataSource": of_efs("DirectoryPath", json!("/"))}),
        &format!("{source}.fileSystemDataSource"),
        "InputMode to File",
    );
    check(
        "/InputDataConfig/0/DataSource",
        json!({"DatasetSource": {"DatasetArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/DataSet/set"}}),
        &format!("{source}.datasetSource"),
        "aws s3 cp",
    );
    let s3 = "/InputDataConfig/0/DataSource/S3DataSource";
    check(&format!("{s3}/S3DataType"), json!("Converse"), &format!("{source}.s3DataSource.s3DataType"), "S3Prefix");
    check(
        &format!("{s3}/S3DataType"),
        json!("AugmentedManifestFile"),
        &format!("{source}.s3DataSource.s3DataType"),
        "set InputMode to Pipe",
    );
    check(
        &format!("{s3}/AttributeNames"),
        json!(["a"]),
        &format!("{source}.s3DataSource.attributeNames"),
        "leave them out",
    );
    check(
        "/InputDataConfig/0",
        json!({"ChannelName": "train", "InputMode": "Pipe",
            "DataSource": {"S3DataSource": {"S3DataType": "AugmentedManifestFile", "S3Uri": "s3://my-bucket/m"}}}),
        &format!("{source}.s3DataSource.attributeNames"),
        "names of the attributes",
    );
    check(
        "/InputDataConfig",
        json!([
            {"ChannelName": "a_1", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/m"}}},
            {"ChannelName": "a", "InputMode": "Pipe", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/m"}}},
        ]),
        &format!("{channel}.channelName"),
        "a pipe of the channel a",
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

    let hook = json!({"S3OutputPath": "s3://my-bucket/d"});
    let rule = json!({
        "RuleConfigurationName": "r", "RuleEvaluatorImage": "i", "RuleParameters": {"rule_to_invoke": "VanishingGradient"}});
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
    let observed = changed(&sound(), "/DebugHookConfig", Some(&hook));
    let observed = changed(&observed, "/DebugRuleConfigurations", Some(&json!([rule])));
    create(&observed).expect("one of them");
    let error = create(&changed(&observed, "/ProfilerRuleConfigurations", Some(&json!([rule])))).expect_err("both");
    assert!(error.message.contains("is named 'r', too"), "{error}");
    let disabled = changed(&sound(), "/ProfilerConfig", Some(&json!({"DisableProfiler": true})));
    create(&disabled).expect("without rules");
    let error = create(&changed(&disabled, "/ProfilerRuleConfigurations", Some(&json!([rule])))).expect_err("disabled");
    assert!(error.message.contains("leave them out, or DisableProfiler"), "{error}");
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
