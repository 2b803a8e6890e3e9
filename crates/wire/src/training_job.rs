//! Training jobs as the rest of the house sees them: what was asked for and what is told.

mod channel;
mod check;
mod debugger;
mod describe;
pub(crate) mod request;
mod update;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{Call, Error, Input, S3Uri, Tag, arn, call::plain_inputs};

pub use channel::{
    Channel, ChannelSource, Distribution, FileSystemSource, InputMode, RecordWrapper, S3DataType, S3Source,
};
pub(crate) use check::{CHECKPOINTS, OBSERVERS, create_training_job, names_script, resources, script};
pub use check::{is_hook_parameter, nearest_hook_parameter};
pub use debugger::{Collection, DebugHook, Debugger, RuleAction, RuleConfiguration, RuleStatus, TensorBoard};
pub(crate) use describe::describe;
pub use update::UpdateTrainingJob;

/// The input of calls that name a training job and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedTrainingJob {
    /// Training job's name.
    pub training_job_name: String,
}

plain_inputs!(NamedTrainingJob);

/// An `InterruptTrainingJob`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InterruptTrainingJob {
    /// Training job's name.
    pub training_job_name: String,
    /// Take this number of instances away, at least 1, and let the others continue. None: one of a
    /// job that can live with fewer, else all.
    pub instance_count: Option<std::num::NonZeroU32>,
}

plain_inputs!(InterruptTrainingJob);

impl Input for CreateTrainingJob {
    fn read(call: Call) -> Result<Self, Error> {
        create_training_job(call.input)
    }
}

/// A `CreateTrainingJob` that passed every check which needs no state. [`crate::Stored`] is its
/// stored form.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CreateTrainingJob {
    /// 1 to 63 characters.
    pub name: String,
    /// An IAM role's ARN.
    pub role_arn: String,
    /// Every value a string.
    pub hyperparameters: BTreeMap<String, String>,
    /// What to run.
    pub algorithm: Algorithm,
    /// The script that it brings, if the request names one and no command.
    pub script: Option<Script>,
    /// Inputs; names are unique.
    pub channels: Vec<Channel>,
    /// Where artifacts go.
    pub output: Output,
    /// On what.
    pub resources: Resources,
    /// For how long.
    pub stopping: Stopping,
    /// For the program.
    pub environment: BTreeMap<String, String>,
    /// Not echoed by Describe.
    pub tags: Vec<Tag>,
    /// No route out of the instances, not even to this server.
    pub enable_network_isolation: bool,
    /// Accepted, without effect.
    pub enable_inter_container_traffic_encryption: bool,
    /// The job may be interrupted.
    pub enable_managed_spot_training: bool,
    /// Directory that is kept in step with S3.
    pub checkpoint: Option<CheckpointConfig>,
    /// `RetryStrategy.MaximumRetryAttempts`; 0 without one.
    pub retries: u32,
    /// Tag `shoal:min-instances`: with how many instances it continues when it loses others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_instances: Option<u32>,
    /// What is saved and evaluated while it runs.
    #[serde(default, skip_serializing_if = "Debugger::is_empty")]
    pub debugger: Debugger,
    /// `ProfilerConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler: Option<Profiler>,
    /// `ExperimentConfig`: where its trial component goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<ExperimentConfig>,
    /// The whole request without null and unknown members, for the echo of Describe.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub raw: Map<String, Value>,
}

/// `ProfilerConfig`: the platform writes system metrics to S3.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Profiler {
    /// Below it and the job's name; none only where the profiler is off.
    pub output: Option<S3Uri>,
    /// Milliseconds between two samples.
    pub interval_ms: u32,
    /// For the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// `DisableProfiler`.
    pub is_disabled: bool,
}

impl Profiler {
    /// Where files go; none while it is off.
    pub fn active_output(&self) -> Option<&S3Uri> {
        self.output.as_ref().filter(|_| !self.is_disabled)
    }

    /// Where the files of a job go, as at AWS; none while it is off.
    pub fn place(&self, job: &str) -> Option<S3Uri> {
        self.active_output().map(|output| arn::observed(output, job, "profiler-output"))
    }
}

/// `ExperimentConfig`: the experiment, trial and run that a job belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExperimentConfig {
    /// An experiment that exists.
    pub experiment_name: Option<String>,
    /// The trial of the job's component; one is made if it is missing.
    pub trial_name: Option<String>,
    /// Display name of the job's component.
    pub trial_component_display_name: Option<String>,
    /// The trial component of a run, to which the job may add.
    pub run_name: Option<String>,
}

/// A script that a training job brings (script mode).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Script {
    /// `train.py`
    pub program: String,
    /// The archive with its files; `None` where they come by a channel.
    pub source: Option<S3Uri>,
    /// `sagemaker_s3_output`: below it and the job's name goes what the script writes to
    /// `/opt/ml/output/intermediate`.
    pub output: Option<S3Uri>,
}

/// `AlgorithmSpecification`: exactly one of image and name is there.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Algorithm {
    /// Image name.
    pub training_image: Option<String>,
    /// Name or ARN of an algorithm resource.
    pub algorithm_name: Option<String>,
    /// Default of the channels.
    pub input_mode: InputMode,
    /// Names are unique, patterns compile and have a group.
    pub metric_definitions: Vec<MetricDefinition>,
    /// `ContainerEntrypoint`; empty if absent.
    pub entrypoint: Vec<String>,
    /// `ContainerArguments`; empty if absent.
    pub arguments: Vec<String>,
}

/// A metric that is read from the program's output.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MetricDefinition {
    /// Metric's name.
    pub name: String,
    /// The first group is the value.
    pub regex: String,
}

/// `OutputDataConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Output {
    /// Artifacts go below it: [`crate::arn::output`].
    pub s3_output_path: S3Uri,
    /// Echoed; objects are not encrypted.
    pub kms_key_id: Option<String>,
    /// Of the model.
    pub compression: OutputCompression,
}

/// `OutputDataConfig.CompressionType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum OutputCompression {
    /// One `model.tar.gz`.
    #[default]
    #[serde(rename = "GZIP")]
    Gzip,
    /// Files below `model/`.
    #[serde(rename = "NONE")]
    None,
}

/// `ResourceConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resources {
    /// `ml.m5.xlarge`; whether the machine can be it, the core says. Of several groups, the first
    /// one's.
    pub instance_type: String,
    /// At least 1; of all groups together.
    pub instance_count: u32,
    /// GiB.
    pub volume_gb: u32,
    /// Warm pool; 0 without.
    pub keep_alive_s: u32,
    /// Instance groups, if the request has them: their instances come in this order.
    pub instance_groups: Vec<InstanceGroup>,
}

impl Resources {
    /// Types of instances and how many of each, in the order of the instances.
    pub fn types(&self) -> Vec<(&str, u32)> {
        match &self.instance_groups[..] {
            [] => vec![(&self.instance_type, self.instance_count)],
            groups => groups.iter().map(|group| (&*group.instance_type, group.instance_count)).collect(),
        }
    }
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InstanceGroup {
    /// No other group's.
    pub name: String,
    /// `ml.m5.xlarge`.
    pub instance_type: String,
    /// At least 1.
    pub instance_count: u32,
}

/// `StoppingCondition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stopping {
    /// Seconds; a day by default.
    pub max_runtime_s: u64,
    /// Seconds, waiting and running together; spot training only.
    pub max_wait_s: Option<u64>,
    /// Seconds in the queue.
    pub max_pending_s: Option<u64>,
}

/// `CheckpointConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckpointConfig {
    /// Where checkpoints are kept.
    pub uri: S3Uri,
    /// On the instance: absolute, without `.`, `..` and a `/` at its end; `/opt/ml/checkpoints` by
    /// default.
    pub local_path: String,
}

/// `SortOrder`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub enum SortOrder {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// What `DescribeTrainingJob` says beyond the request. Times are milliseconds since the epoch; what
/// is `None` is left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingJobDescription {
    /// `TrainingJobArn`.
    pub arn: String,
    /// `ModelArtifacts.S3ModelArtifacts`.
    pub model_artifacts: String,
    /// `TrainingJobStatus`.
    pub status: String,
    /// `SecondaryStatus`.
    pub secondary_status: String,
    /// `SecondaryStatusTransitions`, oldest first.
    pub transitions: Vec<StatusTransition>,
    /// `FailureReason`, cut at 1024 characters here.
    pub failure_reason: Option<String>,
    /// `CreationTime`.
    pub created_ms: u64,
    /// `LastModifiedTime`.
    pub modified_ms: u64,
    /// `TrainingStartTime`.
    pub training_start_ms: Option<u64>,
    /// `TrainingEndTime`.
    pub training_end_ms: Option<u64>,
    /// `TrainingTimeInSeconds`.
    pub training_s: Option<u64>,
    /// `BillableTimeInSeconds`.
    pub billable_s: Option<u64>,
    /// `FinalMetricDataList`.
    pub final_metrics: Vec<FinalMetric>,
    /// Metric definitions of a built-in algorithm, shown if the request has none.
    pub metric_definitions: Vec<MetricDefinition>,
    /// `WarmPoolStatus`.
    pub warm_pool: Option<WarmPool>,
    /// `DebugRuleEvaluationStatuses`
    pub debug_rules: Vec<RuleStatus>,
    /// `ProfilerRuleEvaluationStatuses`
    pub profiler_rules: Vec<RuleStatus>,
    /// `TuningJobArn` of a trial's training job.
    pub tuning_job_arn: Option<String>,
}

/// One entry of `SecondaryStatusTransitions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTransition {
    /// `SecondaryStatus` that was entered.
    pub status: String,
    /// Milliseconds since the epoch.
    pub start_ms: u64,
    /// Milliseconds since the epoch; `None` while it lasts.
    pub end_ms: Option<u64>,
    /// SDKs print it.
    pub message: String,
}

/// The last value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalMetric {
    /// Metric definition's name.
    pub name: String,
    /// Values that JSON cannot carry are left out.
    pub value: f64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

/// `WarmPoolStatus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmPool {
    /// `Available`, `Terminated`, `Reused` or `InUse`.
    pub status: String,
    /// `ResourceRetainedBillableTimeInSeconds`.
    pub retained_s: Option<u64>,
    /// `ReusedByJob`.
    pub reused_by: Option<String>,
}

/// A line of `ListTrainingJobs`. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingJobSummary {
    /// `TrainingJobName`.
    pub name: String,
    /// `TrainingJobArn`.
    pub arn: String,
    /// `CreationTime`.
    pub created_ms: u64,
    /// `TrainingEndTime`.
    pub training_end_ms: Option<u64>,
    /// `LastModifiedTime`.
    pub modified_ms: u64,
    /// `TrainingJobStatus`.
    pub status: String,
    /// `SecondaryStatus`.
    pub secondary_status: String,
    /// `WarmPoolStatus`.
    pub warm_pool: Option<WarmPool>,
}
