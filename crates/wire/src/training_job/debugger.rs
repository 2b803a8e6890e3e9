//! What of a training job is observed: tensors that a hook saves, rules that are evaluated over
//! them, and TensorBoard's event files.

use std::collections::BTreeMap;

use crate::{S3Uri, arn};

/// The parameter with the place of a rule's source.
const SOURCE: &str = "source_s3_uri";
/// The parameter with places of other training jobs' tensors.
const OTHER_RUNS: &str = "other_trials";
/// Before a number, the parameter with one of them.
const OTHER_RUN: &str = "other_trial_";

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
    /// `source_s3_uri`: where the source of a user's own rule is, whose class is the rule's name.
    pub fn source(&self) -> Option<&str> {
        self.parameters.get(SOURCE).map(String::as_str)
    }

    /// Where the tensors of other training jobs are, with which the rule compares: `other_trials`,
    /// separated by commas, then `other_trial_0` and so on in the order of their numbers.
    pub fn other_runs(&self) -> Vec<&str> {
        let listed = self.parameters.get(OTHER_RUNS).map_or("", String::as_str).split(',');
        let listed = listed.map(str::trim).filter(|uri| !uri.is_empty() && *uri != "None");
        let number = |name: &str| name.strip_prefix(OTHER_RUN)?.parse::<u32>().ok();
        let mut numbered: Vec<_> =
            self.parameters.iter().filter_map(|(name, uri)| Some((number(name)?, uri.trim()))).collect();
        numbered.sort_unstable();
        listed.chain(numbered.into_iter().map(|(_, uri)| uri)).collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_runs_are_in_the_order_of_their_numbers() {
        let parameters = [
            ("other_trial_10", "s3://b/eleven"),
            ("other_trial_2", "s3://b/three"),
            ("other_trials", "s3://b/one, s3://b/two,"),
            ("other_trial_x", "no number"),
        ];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let rule = RuleConfiguration {
            name: "r".to_owned(),
            rule: "SimilarAcrossRuns".to_owned(),
            parameters: parameters.into(),
            actions: Vec::new(),
            output: None,
        };
        assert_eq!(rule.other_runs(), ["s3://b/one", "s3://b/two", "s3://b/three", "s3://b/eleven"]);
        assert_eq!(rule.source(), None);
    }
}
