//! One rule of the Debugger at work for a training job.

use std::collections::BTreeMap;

use crate::catalogue::Catalogue;
use crate::declaration::{Declaration, Make};
use crate::declarations::{named, parse};
use crate::finding::{Finding, shortened};
use crate::parameters::ParameterError;
use crate::rule::Rule;
use crate::selection::Groups;
use crate::step::Step;

/// `RuleEvaluationStatus`, as far as rules decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The condition was met.
    IssuesFound,
    /// The training job has ended without.
    NoIssuesFound,
    /// The rule could not be evaluated.
    Error,
}

impl Status {
    /// AWS's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IssuesFound => "IssuesFound",
            Self::NoIssuesFound => "NoIssuesFound",
            Self::Error => "Error",
        }
    }
}

/// How an evaluation has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Its status.
    pub status: Status,
    /// `StatusDetails`; empty where nothing was found.
    pub details: String,
    /// What met the condition.
    pub finding: Option<Finding>,
    /// A file for `rule-output/<rule>/`, with its name.
    pub report: Option<(&'static str, String)>,
}

/// See the module. After its conclusion it remembers nothing and observes nothing.
#[derive(Debug)]
pub struct Evaluation {
    configuration: String,
    declared: &'static Declaration,
    rule: Option<Box<dyn Rule>>,
    first_step: u64,
    end_step: Option<u64>,
    /// Which of the rule's needs were met.
    has_seen: Vec<bool>,
    stops_training: bool,
}

impl Evaluation {
    /// From `RuleConfigurationName` and `RuleParameters`.
    pub fn new(configuration: &str, given: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let declared = named(configuration, given)?;
        let parameters = parse(declared, given)?;
        let Make::Tensors(make) = declared.make else {
            let (configuration, rule) = (configuration.to_owned(), declared.name.to_owned());
            let known = "those of DebugRuleConfigurations; this one judges system metrics".to_owned();
            return Err(ParameterError::UnknownRule { configuration, rule, near: String::new(), known });
        };
        let rule = make(&parameters);
        let stops_training = declared.parameters.iter().any(|parameter| parameter.name == "stop_training_on_fire")
            && parameters.flag("stop_training_on_fire");
        Ok(Self {
            configuration: configuration.to_owned(),
            declared,
            has_seen: vec![false; rule.needs().len()],
            rule: Some(rule),
            first_step: parameters.integer("start_step"),
            end_step: parameters.optional_integer("end_step"),
            stops_training,
        })
    }

    /// `RuleConfigurationName`.
    #[must_use]
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// The rule.
    #[must_use]
    pub fn declaration(&self) -> &'static Declaration {
        self.declared
    }

    /// Whether it has a conclusion.
    #[must_use]
    pub fn is_concluded(&self) -> bool {
        self.rule.is_none()
    }

    /// Whether the rule itself asks for the training job's end when its condition is met
    /// (`stop_training_on_fire`).
    #[must_use]
    pub fn stops_training(&self) -> bool {
        self.stops_training
    }

    /// Whether the rule reads a tensor of a step: others need not be read from disk.
    #[must_use]
    pub fn reads(&self, step: u64, tensor: &str, groups: &Groups) -> bool {
        let is_needed = |rule: &dyn Rule| {
            rule.needs().iter().chain(rule.also_reads()).any(|selection| selection.includes(tensor, groups))
        };
        self.is_in_range(step) && self.rule.as_deref().is_some_and(is_needed)
    }

    fn is_in_range(&self, step: u64) -> bool {
        step >= self.first_step && self.end_step.is_none_or(|end| step < end)
    }

    /// The next step. Steps come in their order.
    pub fn observe(&mut self, step: &Step<'_>) -> Option<Conclusion> {
        if !self.is_in_range(step.step) {
            return None;
        }
        let rule = self.rule.as_mut()?;
        for (need, has_seen) in rule.needs().iter().zip(&mut self.has_seen) {
            *has_seen = *has_seen || step.saved().iter().any(|saved| need.includes(&saved.name, step.groups));
        }
        let found = rule.observe(step);
        self.conclude(found)
    }

    /// The next step of another run that the rule compares with, before the job's own of that
    /// number.
    pub fn observe_other(&mut self, run: usize, step: &Step<'_>) {
        if let Some(rule) = &mut self.rule {
            rule.observe_other(run, step);
        }
    }

    /// Time passes, in milliseconds since any moment.
    pub fn pass_time(&mut self, now_ms: u64) -> Option<Conclusion> {
        let found = self.rule.as_mut()?.pass_time(now_ms);
        self.conclude(found)
    }

    fn conclude(&mut self, found: Option<Finding>) -> Option<Conclusion> {
        let finding = found?;
        self.rule = None;
        let details = finding.details(self.declared.name);
        Some(Conclusion { status: Status::IssuesFound, details, finding: Some(finding), report: None })
    }

    /// The training job has ended. `None` if there was a conclusion before.
    pub fn end(&mut self, groups: &Groups, catalogue: &Catalogue) -> Option<Conclusion> {
        let mut rule = self.rule.take()?;
        let missing = rule.needs().iter().zip(&self.has_seen).find(|(_, has_seen)| !**has_seen).map(|(need, _)| need);
        let ended = match missing {
            Some(need) => Err(format!(
                "it needs {}, and there were none; {}; {}.",
                need.describe(),
                catalogue.describe(groups),
                need.advice(groups)
            )),
            None => rule.end(),
        };
        let (status, details) = match ended {
            Ok(Some(finding)) => return self.conclude(Some(finding)),
            Ok(None) => (Status::NoIssuesFound, String::new()),
            Err(reason) => {
                let details = format!("The rule {} was not evaluated: {reason}", self.declared.name);
                (Status::Error, shortened(details))
            }
        };
        let report = if status == Status::NoIssuesFound { rule.report() } else { None };
        Some(Conclusion { status, details, finding: None, report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluation, step};
    use shoal_contract::tensors::{Collection, Collections};

    #[test]
    fn a_rule_without_its_tensors_ends_with_what_there_is() {
        let mut evaluation = evaluation("VanishingGradient", &[]);
        let mut catalogue = Catalogue::default();
        let groups = Groups::default();
        for number in 0..3 {
            catalogue.add("CrossEntropyLoss_output_0");
            assert_eq!(evaluation.observe(&step(&groups, number, &[("CrossEntropyLoss_output_0", &[0.5])])), None);
        }
        assert!(!evaluation.reads(0, "CrossEntropyLoss_output_0", &groups));
        assert!(evaluation.reads(0, "gradient/w", &groups));
        let conclusion = evaluation.end(&groups, &catalogue).unwrap();
        assert_eq!(conclusion.status, Status::Error);
        assert_eq!(
            conclusion.details,
            "The rule VanishingGradient was not evaluated: it needs tensors of collection gradients, and there were \
             none; the training job saved 1 tensors (CrossEntropyLoss_output_0); add {\"CollectionName\": \
             \"gradients\"} to CollectionConfigurations."
        );
        assert!(evaluation.is_concluded());
        assert_eq!(evaluation.end(&groups, &catalogue), None);
    }

    #[test]
    fn advice_is_not_what_is_there_already() {
        let mut groups = Groups::default();
        let ended = |groups: &Groups, rule: &str, given: &[(&str, &str)]| {
            evaluation(rule, given).end(groups, &Catalogue::default()).unwrap().details
        };
        let unknown = ended(&groups, "AllZero", &[("collection_names", "wieghts")]);
        assert!(unknown.contains("no framework has a collection wieghts"), "{unknown}");
        let collections = ["relu_output", "weights"].map(|name| Collection::new(name, &["never"], &[]));
        groups.add(&Collections::new(1, collections));
        let unmatched = ended(&groups, "DeadRelu", &[]);
        assert!(unmatched.contains("the collection relu_output is there, and no tensor that was saved"), "{unmatched}");
        let unknown = ended(&groups, "AllZero", &[("collection_names", "wieghts")]);
        assert!(unknown.contains("one that there is (relu_output, weights)"), "{unknown}");
    }

    #[test]
    fn steps_outside_of_the_range_are_not_judged() {
        let groups = Groups::default();
        for (number, is_found) in [(4, false), (5, true), (7, true), (8, false)] {
            let mut evaluation = evaluation("ExplodingTensor", &[("start_step", "5"), ("end_step", "8")]);
            assert_eq!(evaluation.reads(number, "w", &groups), is_found);
            let conclusion = evaluation.observe(&step(&groups, number, &[("w", &[f32::NAN])]));
            assert_eq!(conclusion.is_some(), is_found, "step {number}");
            assert_eq!(evaluation.is_concluded(), is_found);
        }
    }

    #[test]
    fn the_first_finding_concludes() {
        let groups = Groups::default();
        let mut evaluation = evaluation("ExplodingTensor", &[]);
        let bad = step(&groups, 7, &[("w", &[1.0, f32::NAN])]);
        let conclusion = evaluation.observe(&bad).unwrap();
        assert_eq!(conclusion.status.name(), "IssuesFound");
        assert!(
            conclusion.details.starts_with(
                "RuleEvaluationConditionMet: Evaluation of the rule ExplodingTensor at step 7 resulted in the \
                 condition being met: "
            ),
            "{}",
            conclusion.details
        );
        assert_eq!(evaluation.observe(&bad), None);
        assert_eq!(evaluation.end(&groups, &Catalogue::default()), None);
    }
}
