//! The rows. docs/accepted.md is made of them.

use super::{
    FieldWithoutEffect,
    Values::{self, AllBut, Any, Required},
};
use crate::Service;

const TRAINING: &[&str] = &["CreateTrainingJob"];
const TUNING: &[&str] = &["CreateHyperParameterTuningJob"];
const UPDATE: &[&str] = &["UpdateTrainingJob"];
const MODEL: &[&str] = &["CreateModel"];

const ENCRYPTION: &str = "volumes are stored as they are; encrypt the disk that has the data directory";
const EVALUATED: &str =
    "rules are evaluated beside the job, without instances of their own; what they find is in DescribeTrainingJob";
const ROLE: &str =
    "only its name counts, where roles are declared; a job's keys open its own input, output and checkpoints";
const SHELL: &str = "`shoal jobs exec` opens a shell in each running training job";
const SIMULATION: &str =
    "policies of declared roles are simulated without it, and without those the owner may do everything";
const SESSION: &str = "no condition of a policy can look at it";
const NOT_RUN: &str = "a model is a record: it is kept and shown, and nothing here runs it";
const IMAGES: &str = "images come from this machine's container engine, by its own network";
const LOGINS: &str = "images come by the logins of this machine's container engine (`docker login`), on Kubernetes by `image_pull_secrets`";
const ACCOUNTS: &str = "there is one account";
const BILLING: &str = "what training costs here has no taxes, credits or subscriptions";
const OUTPUT: &str = "it belongs to answers; in a request it is not read";

const fn sagemaker(
    operations: &'static [&'static str],
    field: &'static str,
    values: Values,
    reason: &'static str,
) -> FieldWithoutEffect {
    FieldWithoutEffect { service: Service::SageMaker, operations, field, values, reason }
}

const fn assume_role(field: &'static str, reason: &'static str) -> FieldWithoutEffect {
    FieldWithoutEffect { service: Service::Sts, operations: &["AssumeRole"], field, values: Any, reason }
}

const fn simulate(field: &'static str) -> FieldWithoutEffect {
    FieldWithoutEffect {
        service: Service::Iam,
        operations: &["SimulatePrincipalPolicy"],
        field,
        values: Any,
        reason: SIMULATION,
    }
}

const fn budgets(operations: &'static [&'static str], field: &'static str, reason: &'static str) -> FieldWithoutEffect {
    FieldWithoutEffect { service: Service::Budgets, operations, field, values: Any, reason }
}

/// All fields that are accepted without effect, by service and operation.
pub const TABLE: &[FieldWithoutEffect] = &[
    sagemaker(TRAINING, "RoleArn", Required, ROLE),
    sagemaker(
        TRAINING,
        "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode",
        AllBut("Platform"),
        IMAGES,
    ),
    sagemaker(TRAINING, "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig", Any, LOGINS),
    sagemaker(
        TRAINING,
        "InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig",
        Any,
        "there are no gated models: a channel is what the S3 bucket has",
    ),
    sagemaker(
        TRAINING,
        "InputDataConfig[].DataSource.FileSystemDataSource.FileSystemType",
        Required,
        "a file system is a directory that the owner of the server allows",
    ),
    sagemaker(TRAINING, "ResourceConfig.VolumeKmsKeyId", Any, ENCRYPTION),
    sagemaker(TRAINING, "ResourceConfig.SelectedInstanceType", Any, "InstanceType says what the job runs on"),
    sagemaker(
        TRAINING,
        "ResourceConfig.SelectedInstanceCount",
        Any,
        "InstanceCount says how many instances the job has",
    ),
    sagemaker(
        TRAINING,
        "VpcConfig",
        Any,
        "a job is in a network of its own on this machine, and in its nodes' on a compute target",
    ),
    sagemaker(
        TRAINING,
        "EnableInterContainerTrafficEncryption",
        Any,
        "instances on this machine talk over a private bridge, those on a compute target over its network; neither is encrypted",
    ),
    sagemaker(TRAINING, "DebugRuleConfigurations[].RuleEvaluatorImage", Required, EVALUATED),
    sagemaker(TRAINING, "DebugRuleConfigurations[].InstanceType", Any, EVALUATED),
    sagemaker(TRAINING, "DebugRuleConfigurations[].VolumeSizeInGB", Any, EVALUATED),
    sagemaker(TRAINING, "DebugRuleConfigurations[].LocalPath", Any, EVALUATED),
    sagemaker(TRAINING, "ProfilerRuleConfigurations[].RuleEvaluatorImage", Required, EVALUATED),
    sagemaker(TRAINING, "ProfilerRuleConfigurations[].InstanceType", Any, EVALUATED),
    sagemaker(TRAINING, "ProfilerRuleConfigurations[].VolumeSizeInGB", Any, EVALUATED),
    sagemaker(TRAINING, "ProfilerRuleConfigurations[].LocalPath", Any, EVALUATED),
    sagemaker(TRAINING, "RemoteDebugConfig.EnableRemoteDebug", Any, SHELL),
    sagemaker(
        TRAINING,
        "InfraCheckConfig.EnableInfraCheck",
        Any,
        "nothing is checked before a job starts; `shoal doctor` checks this machine",
    ),
    sagemaker(TRAINING, "SessionChainingConfig.EnableSessionTagChaining", Any, ROLE),
    sagemaker(TUNING, "TrainingJobDefinition.RoleArn", Required, ROLE),
    sagemaker(TUNING, "TrainingJobDefinition.HyperParameterTuningResourceConfig.VolumeKmsKeyId", Any, ENCRYPTION),
    sagemaker(TUNING, "TrainingJobDefinitions[].HyperParameterTuningResourceConfig.VolumeKmsKeyId", Any, ENCRYPTION),
    sagemaker(UPDATE, "ProfilerRuleConfigurations[].RuleEvaluatorImage", Required, EVALUATED),
    sagemaker(UPDATE, "ProfilerRuleConfigurations[].InstanceType", Any, EVALUATED),
    sagemaker(UPDATE, "ProfilerRuleConfigurations[].VolumeSizeInGB", Any, EVALUATED),
    sagemaker(UPDATE, "ProfilerRuleConfigurations[].LocalPath", Any, EVALUATED),
    sagemaker(UPDATE, "ProfilerRuleConfigurations[].S3OutputPath", Any, EVALUATED),
    sagemaker(UPDATE, "RemoteDebugConfig.EnableRemoteDebug", Any, SHELL),
    sagemaker(MODEL, "ExecutionRoleArn", Required, ROLE),
    sagemaker(MODEL, "VpcConfig", Any, NOT_RUN),
    sagemaker(MODEL, "EnableNetworkIsolation", Any, NOT_RUN),
    sagemaker(MODEL, "InferenceExecutionConfig", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.ImageConfig.RepositoryAccessMode", AllBut("Platform"), IMAGES),
    sagemaker(MODEL, "PrimaryContainer.ImageConfig.RepositoryAuthConfig", Any, LOGINS),
    sagemaker(MODEL, "PrimaryContainer.ModelDataSource.S3DataSource.ModelAccessConfig", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.ModelDataSource.S3DataSource.HubAccessConfig", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.AdditionalModelDataSources", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.InferenceSpecificationName", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.MultiModelConfig", Any, NOT_RUN),
    sagemaker(MODEL, "PrimaryContainer.ContainerMetricsConfig", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].ImageConfig.RepositoryAccessMode", AllBut("Platform"), IMAGES),
    sagemaker(MODEL, "Containers[].ImageConfig.RepositoryAuthConfig", Any, LOGINS),
    sagemaker(MODEL, "Containers[].ModelDataSource.S3DataSource.ModelAccessConfig", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].ModelDataSource.S3DataSource.HubAccessConfig", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].AdditionalModelDataSources", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].InferenceSpecificationName", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].MultiModelConfig", Any, NOT_RUN),
    sagemaker(MODEL, "Containers[].ContainerMetricsConfig", Any, NOT_RUN),
    FieldWithoutEffect {
        service: Service::Sts,
        operations: &["AssumeRole"],
        field: "RoleArn",
        values: Required,
        reason: "where no roles are declared, the keys have the rights of the key that assumed it, whatever the role is called",
    },
    assume_role("Tags", SESSION),
    assume_role("TransitiveTagKeys", SESSION),
    assume_role("ExternalId", SESSION),
    assume_role("SourceIdentity", SESSION),
    assume_role("ProvidedContexts", SESSION),
    assume_role("SerialNumber", "there are no MFA devices"),
    assume_role("TokenCode", "there are no MFA devices"),
    assume_role("MinimumSessionTokenSize", "tokens have one size"),
    simulate("PolicyInputList"),
    simulate("PermissionsBoundaryPolicyInputList"),
    simulate("PolicyExclusionList"),
    simulate("ResourcePolicy"),
    simulate("ResourceOwner"),
    simulate("CallerArn"),
    simulate("ContextEntries"),
    simulate("ResourceHandlingOption"),
    FieldWithoutEffect {
        service: Service::Logs,
        operations: &["PutLogEvents"],
        field: "entity",
        values: Any,
        reason: "there is no Application Signals: lines belong to their stream alone",
    },
    FieldWithoutEffect {
        service: Service::Logs,
        operations: &["PutLogEvents"],
        field: "sequenceToken",
        values: Any,
        reason: "AWS ignores it, too: batches are stored in the order of their arrival",
    },
    FieldWithoutEffect {
        service: Service::Logs,
        operations: &["DescribeLogGroups"],
        field: "accountIdentifiers",
        values: Any,
        reason: ACCOUNTS,
    },
    FieldWithoutEffect {
        service: Service::Logs,
        operations: &["DescribeLogGroups"],
        field: "includeLinkedAccounts",
        values: Any,
        reason: ACCOUNTS,
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["ListMetrics"],
        field: "IncludeLinkedAccounts",
        values: Any,
        reason: ACCOUNTS,
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["ListMetrics"],
        field: "OwningAccount",
        values: Any,
        reason: ACCOUNTS,
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["GetMetricData"],
        field: "MetricDataQueries[].AccountId",
        values: Any,
        reason: ACCOUNTS,
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["GetMetricData"],
        field: "MetricDataQueries[].Period",
        values: Any,
        reason: "it is for metric math, which is not supported; the Period of MetricStat is used",
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["GetMetricData"],
        field: "LabelOptions.Timezone",
        values: Any,
        reason: "labels have no dates",
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["PutMetricData"],
        field: "StrictEntityValidation",
        values: Any,
        reason: "Shoal knows no entities; metrics with entities are refused",
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["PutMetricAlarm"],
        field: "Tags",
        values: Any,
        reason: "alarms have no tags here",
    },
    FieldWithoutEffect {
        service: Service::CloudWatch,
        operations: &["PutMetricAlarm"],
        field: "ActionConfiguration",
        values: Any,
        reason: "alarms have no tags here that actions could be given",
    },
    budgets(&["CreateBudget"], "Budget.CostTypes", BILLING),
    budgets(&["CreateBudget"], "Budget.CalculatedSpend", OUTPUT),
    budgets(&["CreateBudget"], "Budget.LastUpdatedTime", OUTPUT),
    budgets(&["CreateBudget"], "Budget.HealthStatus", OUTPUT),
    budgets(&["UpdateBudget"], "NewBudget.CostTypes", BILLING),
    budgets(&["UpdateBudget"], "NewBudget.CalculatedSpend", OUTPUT),
    budgets(&["UpdateBudget"], "NewBudget.LastUpdatedTime", OUTPUT),
    budgets(&["UpdateBudget"], "NewBudget.HealthStatus", OUTPUT),
    budgets(&["CreateBudget"], "NotificationsWithSubscribers[].Notification.NotificationState", OUTPUT),
];
