//! The CreateTrainingJob request that flags and file make together.

use std::{fs, path::PathBuf};

use serde_json::{Map, Value, json};

use shoal_wire::{MIN_INSTANCES_TAG, NETWORK_TAG, TARGET_TAG};

use super::TrainArgs;
use crate::settings::Settings;

/// A role that every server knows; there is nothing to assume here, but the API wants one.
const ROLE: &str = "role/shoal";

/// A channel whose files lie on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upload {
    /// Channel's name.
    pub(crate) channel: String,
    /// File or directory.
    pub(crate) source: PathBuf,
}

/// The request, and what has to be uploaded for it.
///
/// # Errors
/// Flags or file make no sense; the text says which and why.
pub(crate) fn build(
    args: &TrainArgs,
    file: Option<Value>,
    settings: &Settings,
    now_ms: u64,
) -> Result<(Value, Vec<Upload>), String> {
    let Value::Object(mut request) = file.unwrap_or_else(|| json!({})) else {
        return Err("the file must hold one object, a CreateTrainingJob request".to_owned());
    };
    algorithm(args, &mut request)?;
    let image = request["AlgorithmSpecification"]["TrainingImage"].as_str().unwrap_or_default().to_owned();
    if let Some(name) = &args.name {
        request.insert("TrainingJobName".to_owned(), json!(name));
    }
    set_default(&mut request, "TrainingJobName", || json!(default_name(&image, now_ms)));
    set_default(&mut request, "RoleArn", || json!(format!("arn:aws:iam::{}:{ROLE}", settings.account)));
    if let Some(output) = &args.output {
        request.insert("OutputDataConfig".to_owned(), json!({"S3OutputPath": output}));
    }
    if let Some(uri) = &args.checkpoints {
        request.insert("CheckpointConfig".to_owned(), json!({"S3Uri": uri}));
    }
    set_default(
        &mut request,
        "OutputDataConfig",
        || json!({"S3OutputPath": format!("s3://{}/{}", settings.default_bucket, settings.default_prefix)}),
    );
    set_default(&mut request, "ResourceConfig", || json!({}));
    let resources = object(&mut request, "ResourceConfig")?;
    if let Some(instances) = args.instances {
        resources.insert("InstanceCount".to_owned(), json!(instances));
    }
    if let Some(instance_type) = &args.instance_type {
        resources.insert("InstanceType".to_owned(), json!(instance_type));
    }
    set_default(resources, "InstanceCount", || json!(1));
    set_default(resources, "InstanceType", || json!("ml.m5.large"));
    set_default(resources, "VolumeSizeInGB", || json!(1));
    if let Some(mode) = &args.network {
        set_tag(&mut request, NETWORK_TAG, mode)?;
    }
    if let Some(target) = &args.target {
        set_tag(&mut request, TARGET_TAG, target)?;
    }
    for tag in &args.tags {
        let (key, value) = pair("--tag", tag)?;
        set_tag(&mut request, key, value)?;
    }
    if let Some(experiment) = &args.experiment {
        set_default(&mut request, "ExperimentConfig", || json!({}));
        object(&mut request, "ExperimentConfig")?.insert("ExperimentName".to_owned(), json!(experiment));
    }
    if args.profile {
        let output = request["OutputDataConfig"]["S3OutputPath"].clone();
        set_default(&mut request, "ProfilerConfig", || json!({}));
        let profiler = object(&mut request, "ProfilerConfig")?;
        profiler.remove("DisableProfiler");
        set_default(profiler, "S3OutputPath", || output);
    }
    if let Some(least) = args.min_instances {
        set_tag(&mut request, MIN_INSTANCES_TAG, &least.to_string())?;
    }
    if let Some(seconds) = args.max_runtime {
        request.insert("StoppingCondition".to_owned(), json!({"MaxRuntimeInSeconds": seconds}));
    }
    set_default(&mut request, "StoppingCondition", || json!({"MaxRuntimeInSeconds": 86400}));
    if args.spot {
        request.insert("EnableManagedSpotTraining".to_owned(), json!(true));
        let condition = object(&mut request, "StoppingCondition")?;
        let longest = args.max_wait.map(|seconds| json!(seconds));
        let longest = longest.unwrap_or_else(|| condition.get("MaxRuntimeInSeconds").cloned().unwrap_or(json!(86400)));
        match args.max_wait {
            Some(_) => drop(condition.insert("MaxWaitTimeInSeconds".to_owned(), longest)),
            None => set_default(condition, "MaxWaitTimeInSeconds", || longest),
        }
    }
    if let Some(retries) = args.retries {
        request.insert("RetryStrategy".to_owned(), json!({"MaximumRetryAttempts": retries}));
    }
    pairs(&mut request, "HyperParameters", "--hp", &args.hyperparameters)?;
    pairs(&mut request, "Environment", "--env", &args.environment)?;
    let uploads = channels(args, &mut request)?;
    Ok((Value::Object(request), uploads))
}

fn algorithm(args: &TrainArgs, request: &mut Map<String, Value>) -> Result<(), String> {
    set_default(request, "AlgorithmSpecification", || json!({}));
    let algorithm = object(request, "AlgorithmSpecification")?;
    if let Some(image) = &args.image {
        algorithm.insert("TrainingImage".to_owned(), json!(image));
    }
    if let Some((program, arguments)) = args.command.split_first() {
        set_default(algorithm, "TrainingImage", || json!("shoal/host"));
        algorithm.insert("ContainerEntrypoint".to_owned(), json!([program]));
        if !arguments.is_empty() {
            algorithm.insert("ContainerArguments".to_owned(), json!(arguments));
        }
    }
    if !args.arguments.is_empty() {
        algorithm.insert("ContainerArguments".to_owned(), json!(args.arguments));
    }
    set_default(algorithm, "TrainingInputMode", || json!("File"));
    if !algorithm.contains_key("TrainingImage") && !algorithm.contains_key("AlgorithmName") {
        return Err(
            "what shall be trained? Give a script (shoal train train.py), --image xgboost, a command behind --, \
                    or a request file"
                .to_owned(),
        );
    }
    if !args.metrics.is_empty() {
        let definitions = args.metrics.iter().map(|metric| {
            let (name, regex) = pair("--metric", metric)?;
            Ok(json!({"Name": name, "Regex": regex}))
        });
        algorithm.insert("MetricDefinitions".to_owned(), Value::Array(definitions.collect::<Result<_, String>>()?));
    }
    Ok(())
}

/// Adds flags' pairs to a map of strings, and makes strings of the numbers and booleans that YAML
/// saw in the file's.
fn pairs(request: &mut Map<String, Value>, field: &str, flag: &str, typed: &[String]) -> Result<(), String> {
    if !request.contains_key(field) && typed.is_empty() {
        return Ok(());
    }
    set_default(request, field, || json!({}));
    let map = object(request, field)?;
    for value in map.values_mut().filter(|value| value.is_number() || value.is_boolean()) {
        *value = json!(value.to_string());
    }
    for text in typed {
        let (name, value) = pair(flag, text)?;
        map.insert(name.to_owned(), json!(value));
    }
    Ok(())
}

fn channels(args: &TrainArgs, request: &mut Map<String, Value>) -> Result<Vec<Upload>, String> {
    let mut uploads = Vec::new();
    for text in &args.channel {
        let (name, rest) = pair("--channel", text)?;
        let times =
            args.channel.iter().filter(|other| other.split_once('=').is_some_and(|(other, _)| other == name)).count();
        if times > 1 {
            return Err(format!(
                "--channel {name} is given {times} times; a channel of several files is a directory, or a prefix in S3 \
                 (--channel {name}=s3://BUCKET/PREFIX/)"
            ));
        }
        let mut words = rest.split(',');
        let source = words.next().unwrap_or_default();
        let (mut distribution, mut content_type) = ("FullyReplicated", content_type(source));
        for word in words {
            match word {
                "sharded" => distribution = "ShardedByS3Key",
                "replicated" => distribution = "FullyReplicated",
                word if word.contains('/') => content_type = Some(word),
                word => {
                    return Err(format!(
                        "--channel {text}: {word:?} is neither `sharded`, `replicated` nor a content type"
                    ));
                }
            }
        }
        if !source.starts_with("s3://") {
            uploads.push(Upload { channel: name.to_owned(), source: source.into() });
        }
        let s3 = json!({"S3DataType": "S3Prefix", "S3Uri": source, "S3DataDistributionType": distribution});
        let mut channel = json!({"ChannelName": name, "DataSource": {"S3DataSource": s3}});
        if let Some(content_type) = content_type {
            channel["ContentType"] = json!(content_type);
        }
        set_default(request, "InputDataConfig", || json!([]));
        let all = request["InputDataConfig"].as_array_mut().ok_or("InputDataConfig must be a list")?;
        all.retain(|other| other["ChannelName"] != name);
        all.push(channel);
    }
    Ok(uploads)
}

/// What a name's ending tells; for a directory, what all of its files' endings do.
fn content_type(source: &str) -> Option<&'static str> {
    let files = fs::read_dir(source).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut kinds = files.map(|name| name.to_str().and_then(ending_says));
    match kinds.next() {
        Some(first) => first.filter(|_| kinds.all(|kind| kind == first)),
        None => ending_says(source),
    }
}

fn ending_says(name: &str) -> Option<&'static str> {
    match name.rsplit('.').next() {
        Some("csv") => Some("text/csv"),
        Some("libsvm" | "svm") => Some("text/libsvm"),
        _ => None,
    }
}

/// `sagemaker-xgboost-2026-11-21-07-24-29-123`: as SDKs do it, from the image and the time.
pub(crate) fn default_name(image: &str, now_ms: u64) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let base: String = last
        .split([':', '@'])
        .next()
        .unwrap_or(last)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let base = base.trim_matches('-');
    let seconds = i64::try_from(now_ms / 1000).unwrap_or_default();
    let time = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let base = if base.is_empty() { "job" } else { base.get(..39).unwrap_or(base) };
    format!("{base}-{}-{:02}-{:02}-{:02}-{:03}", time.date(), time.hour(), time.minute(), time.second(), now_ms % 1000)
}

pub(crate) fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), String> {
    text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| format!("{flag} {text}: wanted NAME=VALUE"))
}

pub(crate) fn set_default(map: &mut Map<String, Value>, field: &str, value: impl FnOnce() -> Value) {
    map.entry(field).or_insert_with(value);
}

/// Gives the request this tag in place of another of the same key.
pub(crate) fn set_tag(request: &mut Map<String, Value>, key: &str, value: &str) -> Result<(), String> {
    set_default(request, "Tags", || json!([]));
    let tags = request["Tags"].as_array_mut().ok_or("Tags must be a list")?;
    tags.retain(|tag| tag["Key"] != key);
    tags.push(json!({"Key": key, "Value": value}));
    Ok(())
}

pub(crate) fn object<'a>(map: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>, String> {
    map.get_mut(field).and_then(Value::as_object_mut).ok_or_else(|| format!("{field} must be an object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let typed =
            crate::settings::Typed::gather(&std::collections::BTreeMap::new(), &|_| None, &|_| Ok(None)).unwrap();
        Settings::of(&typed).unwrap()
    }

    fn args(channel: &[&str], hyperparameters: &[&str], command: &[&str]) -> TrainArgs {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        TrainArgs {
            channel: own(channel),
            hyperparameters: own(hyperparameters),
            command: own(command),
            ..TrainArgs::default()
        }
    }

    #[test]
    fn tags_an_experiment_and_the_profiler_have_flags() {
        let args = TrainArgs {
            tags: vec!["team=vision".to_owned(), "note=a=b".to_owned()],
            experiment: Some("vision".to_owned()),
            profile: true,
            ..args(&[], &[], &["true"])
        };
        let file = json!({"ProfilerConfig": {"DisableProfiler": true}, "Tags": [{"Key": "team", "Value": "nlp"}]});
        let (request, _) = build(&args, Some(file), &settings(), 0).unwrap();
        let tags = json!([{"Key": "team", "Value": "vision"}, {"Key": "note", "Value": "a=b"}]);
        assert_eq!(request["Tags"], tags);
        assert_eq!(request["ExperimentConfig"], json!({"ExperimentName": "vision"}));
        let output = json!({"S3OutputPath": "s3://sagemaker-us-east-1-123456789012/"});
        assert_eq!(request["ProfilerConfig"], output);
        let wrong = TrainArgs { tags: vec!["team".to_owned()], ..TrainArgs::default() };
        assert!(build(&TrainArgs { command: vec!["true".to_owned()], ..wrong }, None, &settings(), 0).is_err());
    }

    #[test]
    fn a_command_is_a_host_program() {
        let (request, uploads) =
            build(&args(&["code=train.py"], &[], &["python3", "-u"]), None, &settings(), 1_795_245_869_123).unwrap();
        let expected = json!({
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "ContainerEntrypoint": ["python3"], "ContainerArguments": ["-u"], "TrainingInputMode": "File",
            },
            "TrainingJobName": "host-2026-11-21-07-24-29-123",
            "RoleArn": "arn:aws:iam::123456789012:role/shoal",
            "OutputDataConfig": {"S3OutputPath": "s3://sagemaker-us-east-1-123456789012/"},
            "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
            "InputDataConfig": [{
                "ChannelName": "code",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "train.py", "S3DataDistributionType": "FullyReplicated"}},
            }],
        });
        assert_eq!(request, expected);
        assert_eq!(uploads, [Upload { channel: "code".into(), source: "train.py".into() }]);
    }

    #[test]
    fn flags_go_before_the_file() {
        let file: Value = serde_saphyr::from_str(
            "TrainingJobName: from-file\nAlgorithmSpecification: {TrainingImage: xgboost}\nHyperParameters: {eta: 0.1, \
             num_round: 5, verbose: true}\n\
             InputDataConfig: [{ChannelName: train, ContentType: text/libsvm}]\n",
        )
        .unwrap();
        let mut args = args(&["train=s3://b/t/,sharded,text/csv"], &["num_round=7"], &[]);
        args.instances = Some(3);
        let (request, uploads) = build(&args, Some(file), &settings(), 0).unwrap();
        assert_eq!(request["TrainingJobName"], "from-file");
        assert_eq!(request["HyperParameters"], json!({"eta": "0.1", "num_round": "7", "verbose": "true"}));
        assert_eq!(request["ResourceConfig"]["InstanceCount"], 3);
        let channels = request["InputDataConfig"].as_array().unwrap();
        assert_eq!(channels.len(), 1);
        assert_eq!(channels[0]["ContentType"], "text/csv");
        assert_eq!(channels[0]["DataSource"]["S3DataSource"]["S3DataDistributionType"], "ShardedByS3Key");
        assert!(uploads.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (args, file, expected) in [
            (args(&[], &[], &[]), None, "what shall be trained?"),
            (args(&["train"], &[], &["x"]), None, "--channel train: wanted NAME=VALUE"),
            (args(&["train=a,fast"], &[], &["x"]), None, "--channel train=a,fast: \"fast\" is neither"),
            (
                args(&["train=a", "train=b"], &[], &["x"]),
                None,
                "--channel train is given 2 times; a channel of several files is a directory",
            ),
            (args(&[], &["eta"], &["x"]), None, "--hp eta: wanted NAME=VALUE"),
            (args(&[], &[], &["x"]), Some(json!([])), "the file must hold one object"),
            (args(&[], &[], &["x"]), Some(json!({"ResourceConfig": 1})), "ResourceConfig must be an object"),
        ] {
            let message = build(&args, file, &settings(), 0).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn names_fit_the_api() {
        for (image, expected) in [
            (
                "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
                "sagemaker-xgboost-1970-01-01-00-00-00-000",
            ),
            ("", "job-1970-01-01-00-00-00-000"),
        ] {
            assert_eq!(default_name(image, 0), expected);
        }
        assert!(default_name(&"x".repeat(300), 0).len() <= 63);
    }
}
