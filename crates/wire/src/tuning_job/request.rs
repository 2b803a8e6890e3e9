//! Shapes of the requests about tuning jobs, member for member as the service model names them.
//! They are read after validation.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{SortOrder, Tag, call::plain_inputs};

use super::{Goal, ScalingType, Strategy, TrialSortBy};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateTuningJobRequest {
    pub(crate) hyper_parameter_tuning_job_name: String,
    pub(crate) hyper_parameter_tuning_job_config: Config,
    pub(crate) training_job_definition: Option<Map<String, Value>>,
    pub(crate) training_job_definitions: Option<Vec<Map<String, Value>>>,
    pub(crate) warm_start_config: Option<WarmStartConfig>,
    pub(crate) autotune: Option<Value>,
    #[serde(default)]
    pub(crate) tags: Vec<Tag>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Config {
    pub(crate) strategy: Strategy,
    #[serde(default)]
    pub(crate) strategy_config: StrategyConfig,
    pub(crate) hyper_parameter_tuning_job_objective: Option<Objective>,
    pub(crate) resource_limits: ResourceLimits,
    pub(crate) parameter_ranges: Option<ParameterRanges>,
    pub(crate) training_job_early_stopping_type: Option<String>,
    #[serde(default)]
    pub(crate) tuning_job_completion_criteria: CompletionCriteria,
    pub(crate) random_seed: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StrategyConfig {
    pub(crate) hyperband_strategy_config: Option<HyperbandConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HyperbandConfig {
    pub(crate) min_resource: Option<u32>,
    pub(crate) max_resource: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Objective {
    #[serde(rename = "Type")]
    pub(crate) goal: Goal,
    pub(crate) metric_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ResourceLimits {
    pub(crate) max_number_of_training_jobs: Option<u32>,
    pub(crate) max_parallel_training_jobs: u32,
    pub(crate) max_runtime_in_seconds: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CompletionCriteria {
    pub(crate) target_objective_metric_value: Option<f64>,
    pub(crate) best_objective_not_improving: Option<NotImproving>,
    pub(crate) convergence_detected: Option<Convergence>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NotImproving {
    pub(crate) max_number_of_training_jobs_not_improving: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Convergence {
    pub(crate) complete_on_convergence: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ParameterRanges {
    #[serde(default)]
    pub(crate) integer_parameter_ranges: Vec<NumericRange>,
    #[serde(default)]
    pub(crate) continuous_parameter_ranges: Vec<NumericRange>,
    #[serde(default)]
    pub(crate) categorical_parameter_ranges: Vec<CategoricalRange>,
    #[serde(default)]
    pub(crate) auto_parameters: Vec<AutoParameter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NumericRange {
    pub(crate) name: String,
    pub(crate) min_value: String,
    pub(crate) max_value: String,
    #[serde(default)]
    pub(crate) scaling_type: ScalingType,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CategoricalRange {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AutoParameter {
    pub(crate) name: String,
    pub(crate) value_hint: String,
}

/// Of a definition, what a training job does not have; all else goes into its trials' requests as
/// it is.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Definition {
    pub(crate) definition_name: Option<String>,
    pub(crate) tuning_objective: Option<Objective>,
    pub(crate) hyper_parameter_ranges: Option<ParameterRanges>,
    #[serde(default)]
    pub(crate) static_hyper_parameters: BTreeMap<String, String>,
    pub(crate) hyper_parameter_tuning_resource_config: Option<TuningResourceConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TuningResourceConfig {
    pub(crate) instance_type: Option<String>,
    pub(crate) instance_count: Option<u32>,
    #[serde(rename = "VolumeSizeInGB")]
    pub(crate) volume_size_in_gb: Option<u32>,
    pub(crate) volume_kms_key_id: Option<String>,
    #[serde(default)]
    pub(crate) instance_configs: Vec<InstanceConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InstanceConfig {
    pub(crate) instance_type: String,
    pub(crate) instance_count: u32,
    #[serde(rename = "VolumeSizeInGB")]
    pub(crate) volume_size_in_gb: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct WarmStartConfig {
    pub(crate) parent_hyper_parameter_tuning_jobs: Vec<Parent>,
    pub(crate) warm_start_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Parent {
    pub(crate) hyper_parameter_tuning_job_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListTrialsRequest {
    pub(crate) hyper_parameter_tuning_job_name: String,
    pub(crate) next_token: Option<String>,
    pub(crate) max_results: Option<u32>,
    pub(crate) status_equals: Option<String>,
    pub(crate) sort_by: Option<TrialSortBy>,
    pub(crate) sort_order: Option<SortOrder>,
}

/// The input of calls that name a tuning job and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedTuningJob {
    /// Tuning job's name.
    pub hyper_parameter_tuning_job_name: String,
}

plain_inputs!(NamedTuningJob);
