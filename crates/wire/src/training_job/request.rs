//! Shapes of the requests about training jobs, member for member as the service model names them.
//! They are read after validation.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{Distribution, ExperimentConfig, InputMode, OutputCompression, RecordWrapper, Tag};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateTrainingJobRequest {
    pub(crate) training_job_name: String,
    pub(crate) role_arn: String,
    #[serde(default)]
    pub(crate) hyper_parameters: BTreeMap<String, String>,
    pub(crate) algorithm_specification: Option<AlgorithmSpecification>,
    #[serde(default)]
    pub(crate) input_data_config: Vec<Channel>,
    pub(crate) output_data_config: OutputDataConfig,
    pub(crate) resource_config: Option<ResourceConfig>,
    #[serde(default)]
    pub(crate) stopping_condition: StoppingCondition,
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) tags: Vec<Tag>,
    #[serde(default)]
    pub(crate) enable_network_isolation: bool,
    #[serde(default)]
    pub(crate) enable_inter_container_traffic_encryption: bool,
    #[serde(default)]
    pub(crate) enable_managed_spot_training: bool,
    pub(crate) checkpoint_config: Option<CheckpointConfig>,
    pub(crate) retry_strategy: Option<RetryStrategy>,
    pub(crate) vpc_config: Option<Value>,
    pub(crate) serverless_job_config: Option<Value>,
    pub(crate) mlflow_config: Option<Value>,
    pub(crate) model_package_config: Option<Value>,
    pub(crate) experiment_config: Option<ExperimentConfig>,
    #[serde(flatten)]
    pub(crate) observers: Observers,
}

/// What observes a training job.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Observers {
    pub(crate) debug_hook_config: Option<DebugHookConfig>,
    #[serde(default)]
    pub(crate) debug_rule_configurations: Vec<RuleConfiguration>,
    pub(crate) tensor_board_output_config: Option<TensorBoardOutputConfig>,
    pub(crate) profiler_config: Option<ProfilerConfig>,
    #[serde(default)]
    pub(crate) profiler_rule_configurations: Vec<RuleConfiguration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DebugHookConfig {
    pub(crate) s3_output_path: String,
    pub(crate) local_path: Option<String>,
    #[serde(default)]
    pub(crate) hook_parameters: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) collection_configurations: Vec<CollectionConfiguration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CollectionConfiguration {
    pub(crate) collection_name: Option<String>,
    #[serde(default)]
    pub(crate) collection_parameters: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TensorBoardOutputConfig {
    pub(crate) s3_output_path: String,
    pub(crate) local_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RuleConfiguration {
    pub(crate) rule_configuration_name: String,
    pub(crate) s3_output_path: Option<String>,
    pub(crate) local_path: Option<String>,
    #[serde(default)]
    pub(crate) rule_parameters: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ProfilerConfig {
    pub(crate) s3_output_path: Option<String>,
    pub(crate) profiling_interval_in_milliseconds: Option<i64>,
    #[serde(default)]
    pub(crate) profiling_parameters: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) disable_profiler: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AlgorithmSpecification {
    pub(crate) training_image: Option<String>,
    pub(crate) algorithm_name: Option<String>,
    pub(crate) training_input_mode: InputMode,
    #[serde(default)]
    pub(crate) metric_definitions: Vec<MetricDefinition>,
    #[serde(default)]
    pub(crate) container_entrypoint: Vec<String>,
    #[serde(default)]
    pub(crate) container_arguments: Vec<String>,
    pub(crate) training_image_config: Option<TrainingImageConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TrainingImageConfig {
    pub(crate) training_repository_access_mode: String,
    pub(crate) training_repository_auth_config: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MetricDefinition {
    pub(crate) name: String,
    pub(crate) regex: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Channel {
    pub(crate) channel_name: String,
    pub(crate) data_source: DataSource,
    pub(crate) content_type: Option<String>,
    pub(crate) compression_type: Option<String>,
    #[serde(default)]
    pub(crate) record_wrapper_type: RecordWrapper,
    pub(crate) input_mode: Option<InputMode>,
    pub(crate) shuffle_config: Option<ShuffleConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DataSource {
    pub(crate) s3_data_source: Option<S3DataSource>,
    pub(crate) file_system_data_source: Option<FileSystemDataSource>,
    pub(crate) dataset_source: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct S3DataSource {
    pub(crate) s3_data_type: String,
    pub(crate) s3_uri: String,
    #[serde(default)]
    pub(crate) s3_data_distribution_type: Distribution,
    #[serde(default)]
    pub(crate) attribute_names: Vec<String>,
    #[serde(default)]
    pub(crate) instance_group_names: Vec<String>,
    pub(crate) hub_access_config: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FileSystemDataSource {
    pub(crate) file_system_id: String,
    pub(crate) file_system_access_mode: String,
    pub(crate) directory_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ShuffleConfig {
    pub(crate) seed: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct OutputDataConfig {
    pub(crate) s3_output_path: String,
    pub(crate) kms_key_id: Option<String>,
    #[serde(default)]
    pub(crate) compression_type: OutputCompression,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ResourceConfig {
    pub(crate) instance_type: Option<String>,
    pub(crate) instance_count: Option<u32>,
    #[serde(rename = "VolumeSizeInGB")]
    pub(crate) volume_size_in_gb: Option<u32>,
    #[serde(default)]
    pub(crate) keep_alive_period_in_seconds: u32,
    #[serde(default)]
    pub(crate) instance_groups: Vec<InstanceGroup>,
    #[serde(default)]
    pub(crate) instance_preferences: Vec<Value>,
    pub(crate) instance_placement_config: Option<Value>,
    pub(crate) training_plan_arn: Option<String>,
    pub(crate) volume_kms_key_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InstanceGroup {
    pub(crate) instance_type: String,
    pub(crate) instance_count: u32,
    pub(crate) instance_group_name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StoppingCondition {
    pub(crate) max_runtime_in_seconds: Option<u64>,
    pub(crate) max_wait_time_in_seconds: Option<u64>,
    pub(crate) max_pending_time_in_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CheckpointConfig {
    pub(crate) s3_uri: String,
    pub(crate) local_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RetryStrategy {
    pub(crate) maximum_retry_attempts: u32,
}
