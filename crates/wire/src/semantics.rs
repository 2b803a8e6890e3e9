//! Rules of `CreateTrainingJob` that a table of shapes cannot say and that need no state. What
//! passes becomes the typed job.
//!
//! Besides AWS's own rules this refuses, with the member's name and what to do instead, what Shoal
//! does not have. State (does the role, the input prefix, the image exist; is the name free) is
//! checked elsewhere.

mod observers;
mod script_mode;

pub(crate) use script_mode::{names_script, script};

use std::{collections::BTreeSet, str::FromStr as _};

use fancy_regex::RegexBuilder;
use serde_json::{Map, Value};

use crate::{
    Algorithm, Channel, CheckpointConfig, CreateTrainingJob, Distribution, Error, InputMode, InstanceGroup,
    MetricDefinition, Output, RecordWrapper, Resources, S3DataType, S3Uri, Stopping,
    call::read,
    tags::{self, MIN_INSTANCES_TAG},
    training_job::{CreateTrainingJobRequest, request},
};

/// `MaxRuntimeInSeconds` by default and at most (28 days).
const DEFAULT_RUNTIME_S: u64 = 86_400;
const LONGEST_RUNTIME_S: u64 = 28 * 86_400;
/// 16 TiB.
const LARGEST_VOLUME_GB: u32 = 16_384;
/// SDK v2's default; instances have no volume of their own.
const DEFAULT_VOLUME_GB: u32 = 30;
/// Steps that a metric's regex may take on one line.
const MOST_STEPS: usize = 1_000_000;
/// What is said to those who want to be fed.
const NO_PIPE: &str = "Shoal has no Pipe mode; use File or FastFile, which copy nothing here";
/// The image that runs the user's program on the machine's own `/usr`.
const HOST_IMAGE: &str = "shoal/host";

/// Checks a validated request.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn create_training_job(input: Value) -> Result<CreateTrainingJob, Error> {
    let request: CreateTrainingJobRequest = read(input.clone())?;
    let Value::Object(raw) = input else { return Err(Error::validation("The request is not an object.")) };
    if request.serverless_job_config.is_some() {
        return refuse(
            "serverlessJobConfig",
            "Shoal has no serverless training; give AlgorithmSpecification and ResourceConfig instead",
        );
    }
    if request.mlflow_config.is_some() {
        return refuse(
            "mlflowConfig",
            "Shoal has no MLflow servers; leave it out, and log metrics by MetricDefinitions",
        );
    }
    if request.model_package_config.is_some() {
        return refuse("modelPackageConfig", "Shoal has no model packages; leave it out, the model artifact is in S3");
    }
    refuse_nul("hyperParameters", request.hyper_parameters.iter().flat_map(|(name, value)| [name, value]))?;
    observers::check(&request.observers)?;
    if let Some(config) = request.algorithm_specification.as_ref().and_then(|it| it.training_image_config.as_ref()) {
        image_access(config, request.vpc_config.is_some())?;
    }
    let entrypoint = request.algorithm_specification.as_ref().map_or(&[][..], |it| &it.container_entrypoint);
    let script = script(entrypoint, &request.hyper_parameters, &request.environment)?;
    let algorithm = algorithm(request.algorithm_specification, script.is_some())?;
    let channel_groups = channel_groups(&request.input_data_config);
    if algorithm.input_mode == InputMode::Pipe && request.input_data_config.is_empty() {
        return refuse("algorithmSpecification.trainingInputMode", NO_PIPE);
    }
    let channels = channels(request.input_data_config, algorithm.input_mode)?;
    let resources = resources(request.resource_config)?;
    named_groups(&channel_groups, &resources.instance_groups)?;
    warm_pool(resources.keep_alive_s, request.enable_managed_spot_training)?;
    let stopping = stopping(&request.stopping_condition, request.enable_managed_spot_training)?;
    let output = output(request.output_data_config)?;
    refuse_nul("environment", request.environment.values())?;
    let checkpoint = request.checkpoint_config.map(checkpoint).transpose()?;
    let tags = tags::check(request.tags)?;
    let min_instances = tags::min_instances(&tags, resources.instance_count)?;
    if min_instances.is_some() {
        elastic(&resources, &channels)?;
    }
    Ok(CreateTrainingJob {
        name: request.training_job_name,
        role_arn: request.role_arn,
        hyperparameters: request.hyper_parameters,
        algorithm,
        script,
        channels,
        output,
        resources,
        stopping,
        environment: request.environment,
        tags,
        enable_network_isolation: request.enable_network_isolation,
        enable_inter_container_traffic_encryption: request.enable_inter_container_traffic_encryption,
        enable_managed_spot_training: request.enable_managed_spot_training,
        checkpoint,
        min_instances,
        retries: request.retry_strategy.map_or(0, |strategy| strategy.maximum_retry_attempts),
        raw,
    })
}

/// What a job cannot have that loses and gains instances.
fn elastic(resources: &Resources, channels: &[Channel]) -> Result<(), Error> {
    let of_job = format!("a job with the tag '{MIN_INSTANCES_TAG}'");
    if resources.instance_groups.len() > 1 {
        let path = "resourceConfig.instanceGroups";
        return refuse(
            path,
            &format!("{of_job} has one group of instances; give InstanceType and InstanceCount instead"),
        );
    }
    if resources.keep_alive_s > 0 {
        return refuse(
            "resourceConfig.keepAlivePeriodInSeconds",
            &format!("instances of {of_job} are not retained; leave it out"),
        );
    }
    if let Some(at) = channels.iter().position(|channel| channel.distribution == Distribution::ShardedByS3Key) {
        let path = format!("inputDataConfig.{}.member.dataSource.s3DataSource.s3DataDistributionType", at + 1);
        return refuse(
            &path,
            &format!("{of_job} would not read the shard of an instance that it lost; use FullyReplicated"),
        );
    }
    Ok(())
}

fn refuse<T>(path: &str, what: &str) -> Result<T, Error> {
    Err(Error::validation(format!("Invalid value at '{path}': {what}.")))
}

/// Programs cannot be given texts with a zero byte.
fn refuse_nul<'a>(path: &str, texts: impl IntoIterator<Item = &'a String>) -> Result<(), Error> {
    if texts.into_iter().any(|text| text.contains('\0')) {
        return refuse(path, "it has a NUL character, which no program can be given");
    }
    Ok(())
}

fn s3_uri(path: &str, text: &str) -> Result<S3Uri, Error> {
    S3Uri::from_str(text).or_else(|error| refuse(path, &format!("'{text}' is not an S3 location: {error}")))
}

fn output(config: request::OutputDataConfig) -> Result<Output, Error> {
    Ok(Output {
        s3_output_path: s3_uri("outputDataConfig.s3OutputPath", &config.s3_output_path)?,
        kms_key_id: config.kms_key_id.filter(|key| !key.is_empty()),
        compression: config.compression_type,
    })
}

fn is_host(image: &str) -> bool {
    image.split([':', '@']).next() == Some(HOST_IMAGE)
}

fn algorithm(specification: Option<request::AlgorithmSpecification>, has_script: bool) -> Result<Algorithm, Error> {
    let path = "algorithmSpecification";
    let Some(specification) = specification else {
        return refuse(path, "it is required; give at least TrainingImage and TrainingInputMode");
    };
    match (&specification.training_image, &specification.algorithm_name) {
        (Some(image), None) if image.is_empty() => return refuse(&format!("{path}.trainingImage"), "it is empty"),
        (Some(image), None) => {
            if is_host(image) && !has_script && specification.container_entrypoint.first().is_none_or(String::is_empty)
            {
                return refuse(
                    &format!("{path}.containerEntrypoint"),
                    "the image shoal/host has no program of its own; give the command to run, as in [\"python3\", \"train.py\"], or the \
                     hyperparameters sagemaker_program and sagemaker_submit_directory",
                );
            }
        }
        (None, Some(_)) => {}
        (Some(_), Some(_)) => {
            return refuse(path, "TrainingImage and AlgorithmName are alternatives; give one of them");
        }
        (None, None) => return refuse(path, "give one of TrainingImage and AlgorithmName"),
    }
    for (name, words) in [
        ("containerEntrypoint", &specification.container_entrypoint),
        ("containerArguments", &specification.container_arguments),
    ] {
        refuse_nul(&format!("{path}.{name}"), words)?;
    }
    let metric_definitions = metric_definitions(specification.metric_definitions)?;
    Ok(Algorithm {
        training_image: specification.training_image,
        algorithm_name: specification.algorithm_name,
        input_mode: specification.training_input_mode,
        metric_definitions,
        entrypoint: specification.container_entrypoint,
        arguments: specification.container_arguments,
    })
}

/// Registries in a network of the user's own.
fn image_access(config: &request::TrainingImageConfig, vpc: bool) -> Result<(), Error> {
    let path = "algorithmSpecification.trainingImageConfig";
    let own = config.training_repository_access_mode == "Vpc";
    if own && !vpc {
        return refuse(
            &format!("{path}.trainingRepositoryAccessMode"),
            "Vpc needs VpcConfig; use Platform, or give VpcConfig",
        );
    }
    if !own && config.training_repository_auth_config.is_some() {
        return refuse(
            &format!("{path}.trainingRepositoryAuthConfig"),
            "it is for the access mode Vpc only; leave it out",
        );
    }
    Ok(())
}

/// The instance groups that channels are for, with the paths that name them.
fn channel_groups(channels: &[request::Channel]) -> Vec<(String, String)> {
    let mut groups = Vec::new();
    for (at, channel) in channels.iter().enumerate() {
        let path = format!("inputDataConfig.{}.member.dataSource.s3DataSource.instanceGroupNames", at + 1);
        let names = channel.data_source.s3_data_source.iter().flat_map(|source| &source.instance_group_names);
        groups.extend(names.map(|name| (path.clone(), name.clone())));
    }
    groups
}

fn named_groups(named: &[(String, String)], groups: &[InstanceGroup]) -> Result<(), Error> {
    match named.iter().find(|(_, name)| !groups.iter().any(|group| group.name == *name)) {
        Some((path, name)) => refuse(path, &format!("resourceConfig.instanceGroups has no group '{name}'")),
        None => Ok(()),
    }
}

fn instance_groups(groups: Vec<request::InstanceGroup>) -> Result<Vec<InstanceGroup>, Error> {
    let mut checked: Vec<InstanceGroup> = Vec::with_capacity(groups.len());
    for (at, group) in groups.into_iter().enumerate() {
        let path = format!("resourceConfig.instanceGroups.{}.member", at + 1);
        let request::InstanceGroup { instance_type, instance_count, instance_group_name: name } = group;
        if checked.iter().any(|other| other.name == name) {
            return refuse(&format!("{path}.instanceGroupName"), &format!("the group '{name}' is there twice"));
        }
        if instance_count == 0 {
            return refuse(&format!("{path}.instanceCount"), "it must be at least 1");
        }
        checked.push(InstanceGroup { name, instance_type, instance_count });
    }
    Ok(checked)
}

fn metric_definitions(definitions: Vec<request::MetricDefinition>) -> Result<Vec<MetricDefinition>, Error> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(definitions.len());
    for (at, definition) in definitions.into_iter().enumerate() {
        let path = format!("algorithmSpecification.metricDefinitions.{}.member", at + 1);
        if !names.insert(definition.name.clone()) {
            return refuse(&format!("{path}.name"), &format!("the metric '{}' is defined twice", definition.name));
        }
        match RegexBuilder::new(&definition.regex).backtrack_limit(MOST_STEPS).build() {
            Ok(regex) if regex.captures_len() < 2 => {
                let hint = r"it has no group; put the number into parentheses, as in 'loss: ([0-9.]+)'";
                return refuse(&format!("{path}.regex"), hint);
            }
            Ok(_) => checked.push(MetricDefinition { name: definition.name, regex: definition.regex }),
            Err(error) => {
                return refuse(
                    &format!("{path}.regex"),
                    &format!("'{}' is not a regular expression: {error}", definition.regex),
                );
            }
        }
    }
    Ok(checked)
}

fn channels(channels: Vec<request::Channel>, default_mode: InputMode) -> Result<Vec<Channel>, Error> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(channels.len());
    for (at, channel) in channels.into_iter().enumerate() {
        let path = format!("inputDataConfig.{}.member", at + 1);
        if !names.insert(channel.channel_name.clone()) {
            return refuse(
                &format!("{path}.channelName"),
                &format!("the channel '{}' is there twice", channel.channel_name),
            );
        }
        if matches!(channel.channel_name.as_str(), "." | "..") {
            return refuse(&format!("{path}.channelName"), "a channel is a directory and cannot have this name");
        }
        checked.push(self::channel(channel, &path, default_mode)?);
    }
    Ok(checked)
}

fn channel(channel: request::Channel, path: &str, default_mode: InputMode) -> Result<Channel, Error> {
    let input_mode = channel.input_mode.unwrap_or(default_mode);
    if input_mode == InputMode::Pipe {
        let place = if channel.input_mode.is_some() {
            format!("{path}.inputMode")
        } else {
            "algorithmSpecification.trainingInputMode".to_owned()
        };
        return refuse(&place, NO_PIPE);
    }
    if channel.compression_type.as_deref() == Some("Gzip") {
        return refuse(
            &format!("{path}.compressionType"),
            "Gzip is for Pipe mode only; use None and let the program decompress",
        );
    }
    if channel.record_wrapper_type == RecordWrapper::RecordIO {
        return refuse(
            &format!("{path}.recordWrapperType"),
            "RecordIO is for Pipe mode only; leave it out and store the data as the program reads it",
        );
    }
    let source = format!("{path}.dataSource");
    let others = [
        (
            "fileSystemDataSource",
            channel.data_source.file_system_data_source.is_some(),
            "Shoal has no EFS or FSx file systems",
        ),
        ("datasetSource", channel.data_source.dataset_source.is_some(), "Shoal has no hub data sets"),
    ];
    let given = others.iter().filter(|(_, given, _)| *given).count()
        + usize::from(channel.data_source.s3_data_source.is_some());
    if given != 1 {
        return refuse(&source, "exactly one data source is needed; give S3DataSource");
    }
    if let Some((name, _, what)) = others.iter().find(|(_, given, _)| *given) {
        return refuse(
            &format!("{source}.{name}"),
            &format!("{what}; copy the data to S3 (`aws s3 cp --recursive`) and give S3DataSource"),
        );
    }
    let Some(s3) = channel.data_source.s3_data_source else { return refuse(&source, "give S3DataSource") };
    let source = format!("{source}.s3DataSource");
    let data_type = match s3.s3_data_type.as_str() {
        "S3Prefix" => S3DataType::S3Prefix,
        "ManifestFile" => S3DataType::ManifestFile,
        other => {
            return refuse(
                &format!("{source}.s3DataType"),
                &format!("Shoal does not read {other}; use S3Prefix or ManifestFile"),
            );
        }
    };
    if !s3.attribute_names.is_empty() {
        return refuse(&format!("{source}.attributeNames"), "they are for AugmentedManifestFile only; leave them out");
    }
    if s3.hub_access_config.is_some() {
        return refuse(&format!("{source}.hubAccessConfig"), "Shoal has no hubs; copy the data to S3 and leave it out");
    }
    Ok(Channel {
        name: channel.channel_name,
        data_type,
        uri: s3_uri(&format!("{source}.s3Uri"), &s3.s3_uri)?,
        distribution: s3.s3_data_distribution_type,
        content_type: channel.content_type,
        record_wrapper: channel.record_wrapper_type,
        input_mode,
        shuffle_seed: channel.shuffle_config.map(|shuffle| shuffle.seed),
        instance_groups: s3.instance_group_names,
    })
}

fn warm_pool(keep_alive_s: u32, spot: bool) -> Result<(), Error> {
    if spot && keep_alive_s > 0 {
        return refuse(
            "resourceConfig.keepAlivePeriodInSeconds",
            "a warm pool cannot be used with managed spot training; leave one of them out",
        );
    }
    Ok(())
}

/// Checks what `UpdateTrainingJob` changes: the profiler's members as they would be, and the warm
/// pool.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn update(observers: Map<String, Value>, keep_alive_s: u32, spot: bool) -> Result<(), Error> {
    observers::check(&read(Value::Object(observers))?)?;
    warm_pool(keep_alive_s, spot)
}

pub(crate) fn resources(config: Option<request::ResourceConfig>) -> Result<Resources, Error> {
    let path = "resourceConfig";
    let Some(config) = config else { return refuse(path, "it is required; give InstanceType and InstanceCount") };
    if !config.instance_preferences.is_empty() {
        return refuse(
            &format!("{path}.instancePreferences"),
            "Shoal takes one type; give InstanceType and InstanceCount",
        );
    }
    if config.instance_placement_config.is_some() {
        return refuse(&format!("{path}.instancePlacementConfig"), "Shoal has no UltraServers; leave it out");
    }
    if config.training_plan_arn.is_some() {
        return refuse(
            &format!("{path}.trainingPlanArn"),
            "Shoal has no training plans; leave it out, jobs wait in the queue",
        );
    }
    let instance_groups = instance_groups(config.instance_groups)?;
    let (instance_type, instance_count) = match (instance_groups.first(), config.instance_type, config.instance_count) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            return refuse(
                &format!("{path}.instanceGroups"),
                "groups and InstanceType with InstanceCount are alternatives; give one of them",
            );
        }
        (Some(first), None, None) => {
            let count = instance_groups.iter().fold(0_u32, |sum, group| sum.saturating_add(group.instance_count));
            (first.instance_type.clone(), count)
        }
        (None, Some(instance_type), Some(count)) => (instance_type, count),
        (None, None, _) => return refuse(&format!("{path}.instanceType"), "it is required"),
        (None, Some(_), None) => return refuse(&format!("{path}.instanceCount"), "it is required"),
    };
    if instance_count == 0 {
        return refuse(&format!("{path}.instanceCount"), "it must be at least 1");
    }
    let volume_gb = config.volume_size_in_gb.unwrap_or(DEFAULT_VOLUME_GB);
    if volume_gb > LARGEST_VOLUME_GB {
        return refuse(
            &format!("{path}.volumeSizeInGB"),
            &format!("{volume_gb} is more than the largest volume has, {LARGEST_VOLUME_GB}"),
        );
    }
    if config.volume_kms_key_id.is_some_and(|key| !key.is_empty()) && has_local_storage(&instance_type) {
        return refuse(
            &format!("{path}.volumeKmsKeyId"),
            &format!("{instance_type} has storage of its own, which is encrypted by the machine; leave it out"),
        );
    }
    Ok(Resources {
        instance_type,
        instance_count,
        volume_gb,
        keep_alive_s: config.keep_alive_period_in_seconds,
        instance_groups,
    })
}

/// Whether instances of a type have disks of their own instead of a volume: a `d` after the
/// generation says so, and some families all do.
fn has_local_storage(instance_type: &str) -> bool {
    let family = instance_type.split('.').nth(1).unwrap_or_default();
    let traits =
        family.trim_start_matches(char::is_alphabetic).trim_start_matches(|digit: char| digit.is_ascii_digit());
    traits.contains('d') || ["g5", "g6", "g7", "p5", "p6", "trn"].iter().any(|start| family.starts_with(start))
}

fn stopping(condition: &request::StoppingCondition, spot: bool) -> Result<Stopping, Error> {
    let max_runtime_s = condition.max_runtime_in_seconds.unwrap_or(DEFAULT_RUNTIME_S);
    if max_runtime_s > LONGEST_RUNTIME_S {
        return refuse(
            "stoppingCondition.maxRuntimeInSeconds",
            &format!("it must be at most {LONGEST_RUNTIME_S} (28 days)"),
        );
    }
    let path = "stoppingCondition.maxWaitTimeInSeconds";
    match (spot, condition.max_wait_time_in_seconds) {
        (false, Some(_)) => {
            return refuse(path, "it is for managed spot training only; set EnableManagedSpotTraining or leave it out");
        }
        (true, None) => {
            return refuse(
                path,
                "managed spot training needs it; it must be greater than or equal to MaxRuntimeInSeconds",
            );
        }
        (true, Some(wait)) if wait < max_runtime_s => {
            return refuse(
                path,
                &format!("{wait} must be greater than or equal to MaxRuntimeInSeconds, which is {max_runtime_s}"),
            );
        }
        _ => {}
    }
    Ok(Stopping {
        max_runtime_s,
        max_wait_s: condition.max_wait_time_in_seconds,
        max_pending_s: condition.max_pending_time_in_seconds,
    })
}

/// Directories of an instance that are not a program's own. Some are on the way to places that are.
const NOT_FOR_CHECKPOINTS: [&str; 16] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/ml/input",
    "/opt/shoal",
    "/proc",
    "/run/shoal",
    "/sbin",
    "/sys",
    "/usr",
    "/var/run",
];
const NOT_AS_A_WHOLE: [&str; 8] = ["/home", "/opt", "/opt/ml", "/root", "/run", "/tmp", "/var", "/var/tmp"];

/// `CheckpointConfig.LocalPath` by default.
pub(crate) const CHECKPOINTS: &str = "/opt/ml/checkpoints";

fn checkpoint(config: request::CheckpointConfig) -> Result<CheckpointConfig, Error> {
    let path = "checkpointConfig.localPath";
    let given = config.local_path.unwrap_or_else(|| CHECKPOINTS.to_owned());
    if !given.starts_with('/') {
        return refuse(path, "it must be an absolute path");
    }
    let names: Vec<&str> = given.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return refuse(path, "it must not contain '..'");
    }
    let local_path = format!("/{}", names.join("/"));
    let is_below = |directory: &str| {
        local_path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(directory) = NOT_FOR_CHECKPOINTS.into_iter().find(|directory| is_below(directory)) {
        return refuse(
            path,
            &format!(
                "{directory} is not for checkpoints; use /opt/ml/checkpoints or another directory of the program's own"
            ),
        );
    }
    if names.is_empty() || NOT_AS_A_WHOLE.contains(&local_path.as_str()) {
        return refuse(path, &format!("{local_path} holds more than checkpoints; name a directory in it"));
    }
    Ok(CheckpointConfig { uri: s3_uri("checkpointConfig.s3Uri", &config.s3_uri)?, local_path })
}
