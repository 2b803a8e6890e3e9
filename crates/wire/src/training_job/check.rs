//! Rules of `CreateTrainingJob` that a table of shapes cannot say and that need no state. What
//! passes becomes the typed job.
//!
//! Besides AWS's own rules this refuses, with the member's name and what to do instead, what Shoal
//! does not have. State (does the role, the input prefix, the image exist; is the name free) is
//! checked elsewhere.

mod algorithm;
mod channels;
mod hook_parameters;
mod mirrored_directory;
mod observers;
mod resources;
mod script_mode;

pub use hook_parameters::{is_hook_parameter, nearest_hook_parameter};
pub(crate) use mirrored_directory::CHECKPOINTS;
pub(crate) use observers::OBSERVERS;
pub(super) use observers::twice;
pub(crate) use resources::resources;
pub(crate) use script_mode::{names_script, script};

use serde_json::{Map, Value};

use crate::{
    Channel, CreateTrainingJob, Debugger, Distribution, Error, Output, Profiler, Resources, Stopping,
    call::read,
    refusal::{refuse, refuse_nul, s3_uri},
    tags::{self, MIN_INSTANCES_TAG},
    training_job::request,
};

/// `MaxRuntimeInSeconds` by default and at most (28 days).
const DEFAULT_RUNTIME_S: u64 = 86_400;
const LONGEST_RUNTIME_S: u64 = 28 * 86_400;

/// Checks a validated request.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn create_training_job(input: Value) -> Result<CreateTrainingJob, Error> {
    let request: request::CreateTrainingJobRequest = read(input.clone())?;
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
    let (debugger, profiler) = observers::check(&request.training_job_name, request.observers)?;
    if let Some(config) = request.algorithm_specification.as_ref().and_then(|it| it.training_image_config.as_ref()) {
        algorithm::image_access(config, request.vpc_config.is_some())?;
    }
    let entrypoint = request.algorithm_specification.as_ref().map_or(&[][..], |it| &it.container_entrypoint);
    let script = script(entrypoint, &request.hyper_parameters, &request.environment)?;
    let algorithm = algorithm::algorithm(request.algorithm_specification, script.is_some())?;
    let named_groups = channels::named_groups(&request.input_data_config);
    let channels = channels::channels(request.input_data_config, algorithm.input_mode)?;
    let resources = resources(request.resource_config)?;
    resources::refuse_unknown_groups(&named_groups, &resources.instance_groups)?;
    resources::warm_pool(resources.keep_alive_s, request.enable_managed_spot_training)?;
    let stopping = stopping(&request.stopping_condition, request.enable_managed_spot_training)?;
    let output = output(request.output_data_config)?;
    refuse_nul("environment", request.environment.values())?;
    let checkpoint = request.checkpoint_config.map(mirrored_directory::checkpoint).transpose()?;
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
        debugger,
        profiler,
        experiment: request.experiment_config,
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
    if let Some(at) = channels.iter().position(|channel| channel.distribution() == Distribution::ShardedByS3Key) {
        let path = format!("inputDataConfig.{}.member.dataSource.s3DataSource.s3DataDistributionType", at + 1);
        return refuse(
            &path,
            &format!("{of_job} would not read the shard of an instance that it lost; use FullyReplicated"),
        );
    }
    Ok(())
}

fn output(config: request::OutputDataConfig) -> Result<Output, Error> {
    Ok(Output {
        s3_output_path: s3_uri("outputDataConfig.s3OutputPath", &config.s3_output_path)?,
        kms_key_id: config.kms_key_id.filter(|key| !key.is_empty()),
        compression: config.compression_type,
    })
}

/// Checks what `UpdateTrainingJob` changes: the profiler's members as they would be, which it
/// returns, and the warm pool.
///
/// # Errors
/// The first rule that is broken.
pub(crate) fn update(
    job: &str,
    observers: Map<String, Value>,
    keep_alive_s: u32,
    spot: bool,
) -> Result<(Debugger, Option<Profiler>), Error> {
    resources::warm_pool(keep_alive_s, spot)?;
    observers::check(job, read(Value::Object(observers))?)
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
