//! The rules of a training job in its description.

use serde_json::{Map, Value};
use shoal_plane::JobView;
use shoal_wire::{RuleConfiguration, RuleStatus, arn};

use crate::hex::sha256_hex;

/// Characters of a job's name in the name of a rule's evaluation, as at AWS.
const JOB_CHARACTERS: usize = 26;
/// Statuses.
const IN_PROGRESS: &str = "InProgress";
const STOPPED: &str = "Stopped";
const SWITCHED_OFF: &str = "The profiler was switched off (DisableProfiler) before the rule was evaluated to its end.";
/// Likewise of the rule's.
const RULE_CHARACTERS: usize = 26;

/// The statuses of these rules, in their order. `owner` is the ARN of the training job.
pub(super) fn statuses(rules: &[RuleConfiguration], view: &JobView, owner: &str) -> Vec<RuleStatus> {
    rules.iter().map(|rule| status(rule, view, owner)).collect()
}

/// Those of the profiler's rules of this request.
pub(super) fn of_profiler(
    rules: &[RuleConfiguration],
    view: &JobView,
    owner: &str,
    request: &Map<String, Value>,
) -> Vec<RuleStatus> {
    let is_disabled = request.get("ProfilerConfig").is_some_and(|profiler| profiler["DisableProfiler"] == true);
    let statuses = statuses(rules, view, owner);
    if is_disabled { stopped(statuses) } else { statuses }
}

/// Those of the profiler's rules where UpdateTrainingJob has switched the profiler off: nothing is
/// evaluated any more.
fn stopped(mut statuses: Vec<RuleStatus>) -> Vec<RuleStatus> {
    for status in statuses.iter_mut().filter(|it| it.status == IN_PROGRESS) {
        STOPPED.clone_into(&mut status.status);
        status.details = Some(SWITCHED_OFF.to_owned());
    }
    statuses
}

fn status(rule: &RuleConfiguration, view: &JobView, owner: &str) -> RuleStatus {
    let (status, details, at) = view.rule_status(&rule.name);
    RuleStatus {
        name: rule.name.clone(),
        evaluation_arn: evaluation_arn(owner, &rule.name),
        status: status.to_owned(),
        details: details.map(str::to_owned),
        modified_ms: at.0,
    }
}

/// At AWS each rule is a processing job; here the name stands for the evaluation alone.
fn evaluation_arn(owner: &str, rule: &str) -> String {
    let Some(job) = arn::resource(owner) else { return String::new() };
    let cut = |text: &str, characters: usize| -> String {
        let plain = text.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' });
        plain.take(characters).collect::<String>().trim_matches('-').to_owned()
    };
    let digest = sha256_hex(&format!("{owner} {rule}"));
    let words = [cut(job.name, JOB_CHARACTERS), cut(rule, RULE_CHARACTERS), digest[..8].to_owned()];
    let name = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    arn::sagemaker(job.region, job.account, "processing-job", &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "arn:aws:sagemaker:us-east-1:123456789012:training-job/a-training-job-with-a-long-name";

    #[test]
    fn rules_of_a_profiler_that_is_switched_off_are_stopped() {
        let status = |status: &str| RuleStatus {
            name: "r".to_owned(),
            evaluation_arn: String::new(),
            status: status.to_owned(),
            details: None,
            modified_ms: 1,
        };
        let shown = stopped(vec![status("InProgress"), status("IssuesFound")]);
        assert_eq!(shown.iter().map(|it| &*it.status).collect::<Vec<_>>(), ["Stopped", "IssuesFound"]);
        assert!(shown[0].details.is_some() && shown[1].details.is_none());
    }

    #[test]
    fn evaluations_have_names_of_processing_jobs() {
        let arn = evaluation_arn(OWNER, "Loss: not decreasing");
        let name = arn.strip_prefix("arn:aws:sagemaker:us-east-1:123456789012:processing-job/").expect("its kind");
        assert!(name.starts_with("a-training-job-with-a-long-loss--not-decreasing-"), "{name}");
        assert!(name.len() <= 63 && name != evaluation_arn(OWNER, "Loss"), "{name}");
        let bare = evaluation_arn(OWNER, "(((");
        assert!(bare.rsplit('/').next().is_some_and(|name| name.len() == 35), "{bare}");
    }
}
