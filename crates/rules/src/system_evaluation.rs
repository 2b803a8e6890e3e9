//! One rule of the profiler at work for a training job, or its report, which is all of them.

use std::collections::BTreeMap;

use crate::declaration::{Declaration, Make};
use crate::declarations::{named, parse};
use crate::evaluation::{Conclusion, Status};
use crate::finding::{Finding, shortened};
use crate::parameters::ParameterError;
use crate::profiler::{self, report_parameter};
use crate::system_rule::{Reading, StepTime, SystemRule};

/// See the module. After its conclusion it remembers nothing and observes nothing.
#[derive(Debug)]
pub struct SystemEvaluation {
    configuration: String,
    declared: &'static Declaration,
    rules: Vec<Running>,
    findings: Vec<(&'static str, Finding)>,
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    rule: Box<dyn SystemRule>,
}

impl SystemEvaluation {
    /// From `RuleConfigurationName` and `RuleParameters`.
    pub fn new(configuration: &str, given: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let declared = named(configuration, given)?;
        let parameters = parse(declared, given)?;
        let rules = match declared.make {
            Make::System(make) => vec![Running { name: declared.name, rule: make(&parameters) }],
            Make::Report => report_rules(given)?,
            Make::Tensors(_) => {
                let (configuration, rule) = (configuration.to_owned(), declared.name.to_owned());
                let known = "those of ProfilerRuleConfigurations; this one judges saved tensors".to_owned();
                return Err(ParameterError::UnknownRule { configuration, rule, near: String::new(), known });
            }
        };
        Ok(Self { configuration: configuration.to_owned(), declared, rules, findings: Vec::new() })
    }

    /// `RuleConfigurationName`.
    #[must_use]
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// What the rules found so far, with the names of the rules.
    #[must_use]
    pub fn findings(&self) -> &[(&'static str, Finding)] {
        &self.findings
    }

    /// The next reading of a host.
    pub fn observe(&mut self, reading: &Reading) -> Option<Conclusion> {
        self.pass(|rule| rule.observe(reading))
    }

    /// The next step of a host.
    pub fn observe_step(&mut self, step: &StepTime) -> Option<Conclusion> {
        self.pass(|rule| rule.observe_step(step))
    }

    /// Time passes, in milliseconds since any moment.
    pub fn pass_time(&mut self, now_ms: u64) -> Option<Conclusion> {
        self.pass(|rule| rule.pass_time(now_ms))
    }

    /// A rule ends with its first finding; the report when the job does.
    fn pass(&mut self, mut judge: impl FnMut(&mut dyn SystemRule) -> Option<Finding>) -> Option<Conclusion> {
        let findings = &mut self.findings;
        self.rules.retain_mut(|running| {
            let found = judge(running.rule.as_mut());
            let has_found = found.is_some();
            findings.extend(found.map(|finding| (running.name, finding)));
            !has_found
        });
        if self.is_report() || !self.rules.is_empty() || self.findings.is_empty() {
            return None;
        }
        self.conclude()
    }

    fn is_report(&self) -> bool {
        matches!(self.declared.make, Make::Report)
    }

    fn conclude(&mut self) -> Option<Conclusion> {
        let found = std::mem::take(&mut self.findings);
        let (_, first) = found.first()?.clone();
        let text = match &found[..] {
            [_] if !self.is_report() => first.text.clone(),
            all => {
                let names = Vec::from_iter(all.iter().map(|(name, _)| *name)).join(", ");
                let texts = Vec::from_iter(all.iter().map(|(name, finding)| format!("{name}: {}", finding.text)));
                format!("{} rules met their conditions ({names}). {}", all.len(), texts.join(" "))
            }
        };
        let details = Finding { text, ..first.clone() }.details(self.declared.name);
        Some(Conclusion { status: Status::IssuesFound, details, finding: Some(first), report: None })
    }

    /// The training job has ended. `None` if there was a conclusion before.
    pub fn end(&mut self) -> Option<Conclusion> {
        let is_report = self.is_report();
        let rules = std::mem::take(&mut self.rules);
        if !is_report && rules.is_empty() {
            return None;
        }
        if !self.findings.is_empty() {
            return self.conclude();
        }
        let mut summary = String::new();
        for mut running in rules {
            match running.rule.end() {
                Ok(text) => summary.push_str(&text),
                // What a rule of the report lacks, the others may have.
                Err(_) if is_report => {}
                Err(reason) => {
                    let details = shortened(format!("The rule {} was not evaluated: {reason}", running.name));
                    return Some(Conclusion { status: Status::Error, details, finding: None, report: None });
                }
            }
        }
        let details = shortened(summary.trim_end().to_owned());
        Some(Conclusion { status: Status::NoIssuesFound, details, finding: None, report: None })
    }
}

/// The rules that met their conditions, of the details of a report's conclusion.
#[must_use]
pub fn found_by_report(details: &str) -> Vec<&str> {
    let names = details.split_once(" rules met their conditions (").and_then(|(_, rest)| rest.split_once(')'));
    names.map(|(names, _)| names.split(", ").collect()).unwrap_or_default()
}

/// All rules but the report, each with its share of the parameters.
fn report_rules(given: &BTreeMap<String, String>) -> Result<Vec<Running>, ParameterError> {
    let mut rules = Vec::new();
    for declared in profiler::DECLARATIONS {
        let Make::System(make) = declared.make else { continue };
        let own = given.iter().filter_map(|(name, value)| {
            let (of, parameter) = report_parameter(name)?;
            (of.name == declared.name).then(|| (parameter.to_ascii_lowercase(), value.clone()))
        });
        rules.push(Running { name: declared.name, rule: make(&parse(declared, &own.collect())?) });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::testing::evaluation;

    #[test]
    fn the_report_runs_all_rules_to_the_end() {
        let mut report = evaluation("ProfilerReport", &[("LowGPUUtilization_patience", "50")]);
        for second in 0..1200 {
            let reading = Reading {
                at_ms: 1000 * second,
                host: "algo-1".into(),
                cpu: vec![95.0; 4],
                gpu: vec![3.0],
                gpu_memory: vec![80.0],
                ..Reading::default()
            };
            assert_eq!(report.observe(&reading), None);
        }
        let names = Vec::from_iter(report.findings().iter().map(|(name, _)| *name));
        assert_eq!(names, ["LowGPUUtilization", "CPUBottleneck"]);
        let ended = report.end().unwrap();
        assert_eq!(ended.status, Status::IssuesFound);
        assert!(ended.details.contains("2 rules met their conditions (LowGPUUtilization, CPUBottleneck)."));
        assert_eq!(found_by_report(&ended.details), ["LowGPUUtilization", "CPUBottleneck"]);
        assert_eq!(found_by_report("algo-1 CPU: p50 20 %"), [""; 0]);
    }

    #[test]
    fn a_report_that_finds_nothing_sums_up() {
        let mut report = evaluation("ProfilerReport", &[]);
        assert_eq!(report.observe(&Reading { host: "algo-1".into(), cpu: vec![20.0], ..Reading::default() }), None);
        let ended = report.end().unwrap();
        assert_eq!(ended.status, Status::NoIssuesFound);
        assert!(ended.details.contains("algo-1 CPU: p50 20 %"), "{}", ended.details);
    }

    #[test]
    fn rules_of_either_kind_are_not_the_other() {
        let given = BTreeMap::from([("rule_to_invoke".to_owned(), "AllZero".to_owned())]);
        let error = SystemEvaluation::new("a", &given).unwrap_err().to_string();
        assert!(error.contains("this one judges saved tensors"), "{error}");
    }
}
