//! What of a training job is observed: tensors that a hook saves, rules that are evaluated over
//! them, and TensorBoard's event files.

use std::collections::BTreeMap;

use crate::{S3Uri, arn};

/// What a training job asks the Debugger for.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Debugger {
    /// `DebugHookConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<DebugHook>,
    /// `DebugRuleConfigurations`; names are unique.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfiguration>,
    /// `ProfilerRuleConfigurations`; names are unique.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiler_rules: Vec<RuleConfiguration>,
    /// `TensorBoardOutputConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_board: Option<TensorBoard>,
}

impl Debugger {
    /// Nothing is observed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `DebugHookConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DebugHook {
    /// Tensors go to `<job>/debug-output/` below it.
    pub uri: S3Uri,
    /// On the instance: absolute, without `.`, `..` and a `/` at its end.
    pub local_path: String,
    /// `HookParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// `CollectionConfigurations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<Collection>,
}

impl DebugHook {
    /// Where the tensors of a job go, as at AWS.
    pub fn place(&self, job: &str) -> S3Uri {
        arn::observed(&self.uri, job, "debug-output")
    }
}

/// A set of tensors that the hook saves.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Collection {
    /// `CollectionName`.
    pub name: String,
    /// `CollectionParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// `TensorBoardOutputConfig`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TensorBoard {
    /// Event files go to `<job>/tensorboard-output/` below it.
    pub uri: S3Uri,
    /// As in [`DebugHook::local_path`].
    pub local_path: String,
}

impl TensorBoard {
    /// Where the event files of a job go, as at AWS.
    pub fn place(&self, job: &str) -> S3Uri {
        arn::observed(&self.uri, job, "tensorboard-output")
    }
}

/// A rule that is evaluated while the job runs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RuleConfiguration {
    /// `RuleConfigurationName`.
    pub name: String,
    /// `rule_to_invoke` of its parameters: the rule's own name.
    pub rule: String,
    /// The other parameters, but `action_json`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// `action_json`: what is done once its condition is met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<RuleAction>,
    /// `S3OutputPath`: where its report goes, in place of the job's own output path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<S3Uri>,
}

impl RuleConfiguration {
    /// Whether the training is stopped once the rule's condition is met.
    pub fn stops(&self) -> bool {
        self.actions.contains(&RuleAction::StopTraining)
    }
}

/// How far the evaluation of a rule is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleStatus {
    /// `RuleConfigurationName`.
    pub name: String,
    /// `RuleEvaluationJobArn`.
    pub evaluation_arn: String,
    /// `InProgress`, `NoIssuesFound`, `IssuesFound`, `Error` or `Stopped`.
    pub status: String,
    /// At most 1024 characters.
    pub details: Option<String>,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
}

/// What is done when a rule's condition is met.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    /// `stoptraining`
    StopTraining,
    /// `email`, with its address.
    Email(String),
    /// `sms`, with its number.
    Sms(String),
}
