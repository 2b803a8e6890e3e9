//! Reports of rules in S3, `<output>/<job>/rule-output/<rule configuration>/`, as AWS has them: one
//! JSON file for each rule, and the page of the profiler's report. They are made of what is stored
//! when the attempt of a job that is over is withdrawn: a crash writes the same files again.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shoal_profile::{Profile, page};
use shoal_rules::{Subject, declarations, found_by_report};
use shoal_store::{Attributes, ResourceKind};
use shoal_wire::{CreateTrainingJob, RuleConfiguration, S3Uri};

use crate::{attempts::Plan, error_chain::describe, profile::Profiles, requests};

/// The profiler's rule that runs all the others.
const REPORT: &str = "ProfilerReport";

impl Profiles {
    /// Writes the reports of the job's rules. The job is the same without them.
    pub(crate) fn write_reports(&self, plan: &Plan) {
        if let Err(reason) = self.try_write_reports(&plan.job) {
            tracing::warn!("training job {}: reports of its rules are not written: {reason}", plan.job);
        }
    }

    /// Stores a page that the evaluation of a rule made, beside its report: that of the first host
    /// and of another are the same file. It comes again if a crash comes before its number.
    pub(crate) fn store_page(&self, job: &str, rule: &str, name: &str, text: &str) {
        if let Err(reason) = self.try_store_page(job, rule, name, text) {
            tracing::warn!("training job {job}: {name} of rule {rule} is not stored: {reason}");
        }
    }

    fn try_store_page(&self, job: &str, rule: &str, name: &str, text: &str) -> Result<(), String> {
        let request = requests::of_training_job(&*self.rows, job)?;
        let rules = &request.debugger;
        let rule = rules.rules.iter().chain(&rules.profiler_rules).find(|it| it.name == rule);
        let rule = rule.ok_or("the job has no such rule")?;
        // It comes from an instance.
        if !name.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.')) {
            return Err("its name is none of a file".to_owned());
        }
        self.put(&folder(&request, rule).below(name), text)
    }

    fn put(&self, place: &S3Uri, text: &str) -> Result<(), String> {
        let kind = if place.prefix.ends_with(".html") { "text/html; charset=utf-8" } else { "application/json" };
        let attributes = Attributes { content_type: Some(kind.to_owned()), ..Attributes::default() };
        let stored = self.objects.put(&place.bucket, &place.prefix, text.as_bytes(), &attributes);
        stored.map(drop).map_err(|error| format!("{place}: {}", describe(&error)))
    }

    fn try_write_reports(&self, job: &str) -> Result<(), String> {
        let row = self.rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| describe(&error))?;
        let Some(row) = row.filter(|row| row.ended) else { return Ok(()) };
        let request = requests::training_job(&row).map_err(|error| error.message)?;
        if request.debugger.rules.is_empty() && request.debugger.profiler_rules.is_empty() {
            return Ok(());
        }
        // Of a job that is over, no file depends on the time.
        let Some(profile) = self.of(job, 0)? else { return Ok(()) };
        for (place, text) in files(&request, &profile) {
            self.put(&place, &text)?;
        }
        Ok(())
    }
}

/// Where the files of a rule go, as at AWS.
fn folder(request: &CreateTrainingJob, rule: &RuleConfiguration) -> S3Uri {
    let output = rule.output.as_ref().unwrap_or(&request.output.s3_output_path);
    output.below(&format!("{}/rule-output/{}", request.name, rule.name))
}

/// Places and texts of all reports. Pure.
fn files(request: &CreateTrainingJob, profile: &Profile) -> Vec<(S3Uri, String)> {
    let mut files = Vec::new();
    for rule in request.debugger.rules.iter().chain(&request.debugger.profiler_rules) {
        let folder = folder(request, rule);
        let outcome = profile.rules.iter().find(|it| it.name == rule.name);
        let (status, details) = outcome.map_or(("", ""), |it| (&*it.status, &*it.details));
        if !rule.rule.eq_ignore_ascii_case(REPORT) {
            let report = report(status == "IssuesFound", details, &rule.parameters, datapoints(rule, profile));
            files.push((folder.below(&format!("{}.json", rule.rule)), report));
            continue;
        }
        let folder = folder.below("profiler-output");
        files.push((folder.below("profiler-report.html"), page(profile)));
        let found = found_by_report(details);
        for declared in declarations().filter(|it| it.subject() == Subject::System && it.name != REPORT) {
            let is_met = found.contains(&declared.name);
            let parameters = of_rule(rule, declared.name);
            let details = if is_met { details } else { "" };
            let report = report(is_met, details, &parameters, datapoints(rule, profile));
            files.push((folder.below(&format!("profiler-reports/{}.json", declared.name)), report));
        }
    }
    files
}

/// The report's parameters of one of its rules, without that rule's name.
fn of_rule(report: &RuleConfiguration, rule: &str) -> BTreeMap<String, String> {
    let own = report.parameters.iter().filter_map(|(name, value)| {
        let (of, parameter) = name.split_once('_')?;
        of.eq_ignore_ascii_case(rule).then(|| (parameter.to_owned(), value.clone()))
    });
    own.collect()
}

/// Samples and steps that the profiler's rules judged; the tensors' steps are not counted here.
fn datapoints(rule: &RuleConfiguration, profile: &Profile) -> Option<u64> {
    let is_of_profiler =
        declarations().any(|it| it.name.eq_ignore_ascii_case(&rule.rule) && it.subject() == Subject::System);
    let steps = profile.ranks.iter().map(|rank| rank.steps).fold(0, u64::saturating_add);
    is_of_profiler.then(|| profile.samples.saturating_add(steps))
}

/// As AWS's evaluators write it.
fn report(is_met: bool, details: &str, parameters: &BTreeMap<String, String>, datapoints: Option<u64>) -> String {
    let given = Vec::from_iter(parameters.iter().map(|(name, value)| format!("{name}:{value}"))).join("\n");
    let met = u64::from(is_met);
    let details: Value = if details.is_empty() { json!({}) } else { json!({ "message": details }) };
    let report = json!({
        "RuleTriggered": met,
        "Violations": met,
        "Details": details,
        "Datapoints": datapoints,
        "RuleParameters": given,
    });
    format!("{report:#}\n")
}

#[cfg(test)]
mod tests {
    use shoal_profile::RuleOutcome;
    use shoal_wire::Stored;

    use super::*;

    fn request() -> CreateTrainingJob {
        let rule =
            |name: &str, rule: &str, parameters: Value| json!({"name": name, "rule": rule, "parameters": parameters});
        let raw = json!({
            "TrainingJobName": "job",
            "RoleArn": "arn:aws:iam::123456789012:role/tests",
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]
            },
            "OutputDataConfig": {"S3OutputPath": "s3://bkt/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        });
        let mut request = CreateTrainingJob::from_raw(serde_json::from_value(raw).unwrap()).unwrap();
        let rules = [rule("zeros", "AllZero", json!({"threshold": "90"}))];
        let mut profiler = [
            rule("ProfilerReport-1700000000", "ProfilerReport", json!({"StepOutlier_stddev": "4"})),
            rule("usage", "OverallSystemUsage", json!({})),
        ];
        profiler[1]["output"] = serde_json::to_value("s3://other/reports".parse::<S3Uri>().unwrap()).unwrap();
        request.debugger.rules = rules.map(|it| serde_json::from_value(it).unwrap()).to_vec();
        request.debugger.profiler_rules = profiler.map(|it| serde_json::from_value(it).unwrap()).to_vec();
        request
    }

    #[test]
    fn every_rule_has_its_file_and_the_report_a_page() {
        let found = "RuleEvaluationConditionMet: Evaluation of the rule ProfilerReport at step 9 resulted in the condition \
                     being met: 1 rules met their conditions (StepOutlier). StepOutlier: step 9 took long.";
        let outcome = |name: &str, status: &str, details: &str| RuleOutcome {
            name: name.to_owned(),
            status: status.to_owned(),
            details: details.to_owned(),
        };
        let profile = Profile {
            job: "job".to_owned(),
            samples: 40,
            rules: vec![
                outcome("zeros", "IssuesFound", "tensor a is zero"),
                outcome("ProfilerReport-1700000000", "IssuesFound", found),
                outcome("usage", "NoIssuesFound", ""),
            ],
            ..Profile::default()
        };
        let files = files(&request(), &profile);
        let text = |uri: &str| {
            let found = files.iter().find(|(place, _)| place.to_string() == uri);
            &found.unwrap_or_else(|| panic!("{uri} is not in {:?}", files.iter().map(|it| &it.0).collect::<Vec<_>>())).1
        };
        let of = |uri: &str| serde_json::from_str::<Value>(text(uri)).unwrap();
        let zeros = of("s3://bkt/out/job/rule-output/zeros/AllZero.json");
        assert_eq!(zeros["RuleTriggered"], 1);
        assert_eq!((&zeros["RuleParameters"], &zeros["Datapoints"]), (&json!("threshold:90"), &Value::Null));
        let folder = "s3://bkt/out/job/rule-output/ProfilerReport-1700000000/profiler-output";
        assert!(text(&format!("{folder}/profiler-report.html")).contains("<h1>Profile of job</h1>"));
        let outlier = of(&format!("{folder}/profiler-reports/StepOutlier.json"));
        assert_eq!((&outlier["RuleTriggered"], &outlier["RuleParameters"]), (&json!(1), &json!("stddev:4")));
        let usage = of(&format!("{folder}/profiler-reports/CPUBottleneck.json"));
        assert_eq!((&usage["RuleTriggered"], &usage["Datapoints"]), (&json!(0), &json!(40)));
        assert_eq!(of("s3://other/reports/job/rule-output/usage/OverallSystemUsage.json")["Violations"], 0);
    }
}
