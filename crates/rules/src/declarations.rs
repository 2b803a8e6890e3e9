//! The table of all rules.

use std::collections::BTreeMap;

use crate::debugger::{self, Rule};
use crate::evaluation::Evaluation;
use crate::parameters::{Parameter, ParameterError, Parameters};
use crate::profiler::{self, SystemRule};
use crate::system_evaluation::SystemEvaluation;

/// A rule as it is declared.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// AWS's name, the value of `rule_to_invoke`.
    pub name: &'static str,
    /// What it judges.
    pub summary: &'static str,
    /// Its own parameters; each rule has `start_step`, `end_step` and `action_json` as well.
    pub parameters: &'static [Parameter],
    /// Collections that it reads with its defaults.
    pub collections: &'static [&'static str],
    pub(crate) make: Make,
}

/// What a rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Saved tensors: `DebugRuleConfigurations`.
    Tensors,
    /// System metrics: `ProfilerRuleConfigurations`.
    System,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Make {
    Tensors(fn(&Parameters) -> Box<dyn Rule>),
    System(fn(&Parameters) -> Box<dyn SystemRule>),
    /// Runs all other rules of the profiler.
    Report,
}

impl Declaration {
    /// What it judges.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self.make {
            Make::Tensors(_) => Subject::Tensors,
            Make::System(_) | Make::Report => Subject::System,
        }
    }

    /// `SimilarAcrossRuns` names other runs as `other_trial_0` and so on; the report has the
    /// parameters of all rules as `CPUBottleneck_threshold`.
    pub(crate) fn parse(&self, given: &BTreeMap<String, String>) -> Result<Parameters, ParameterError> {
        let is_further = |name: &str| match self.make {
            Make::Report => profiler::report_parameter(name).is_some(),
            Make::Tensors(_) => {
                let number = name.strip_prefix("other_trial_");
                self.name == "SimilarAcrossRuns" && number.is_some_and(|number| number.parse::<u32>().is_ok())
            }
            Make::System(_) => false,
        };
        Parameters::check(self.name, self.parameters, given, is_further)
    }
}

/// All rules, the Debugger's first.
pub fn declarations() -> impl Iterator<Item = &'static Declaration> {
    debugger::DECLARATIONS.iter().chain(profiler::DECLARATIONS).copied()
}

/// The rule of a name, in any case.
#[must_use]
pub fn declaration(name: &str) -> Option<&'static Declaration> {
    declarations().find(|declared| declared.name.eq_ignore_ascii_case(name))
}

/// The rule that a request's parameters name.
pub(crate) fn named(
    configuration: &str,
    given: &BTreeMap<String, String>,
) -> Result<&'static Declaration, ParameterError> {
    let configuration = configuration.to_owned();
    let Some(rule) = given.get("rule_to_invoke") else { return Err(ParameterError::NoRule { configuration }) };
    declaration(rule).ok_or_else(|| {
        let known = Vec::from_iter(declarations().map(|declared| declared.name));
        let letters = |name: &str| name.to_lowercase().replace(['_', '-', ' '], "");
        let wanted = letters(rule);
        let near = known.iter().find(|name| {
            let name = letters(name);
            name == wanted || name.contains(&wanted) || wanted.contains(&name)
        });
        let near = near.map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
        ParameterError::UnknownRule { configuration, rule: rule.clone(), near, known: known.join(", ") }
    })
}

/// Whether the parameters of a configuration are those of a built-in rule; for `CreateTrainingJob`.
pub fn check(configuration: &str, given: &BTreeMap<String, String>) -> Result<&'static Declaration, ParameterError> {
    let declared = named(configuration, given)?;
    match declared.subject() {
        Subject::Tensors => Evaluation::new(configuration, given).map(drop)?,
        Subject::System => SystemEvaluation::new(configuration, given).map(drop)?,
    }
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_rule_can_be_created_with_its_defaults() {
        let mut names = Vec::new();
        for declared in declarations() {
            check("a", &given(&[("rule_to_invoke", declared.name)]))
                .unwrap_or_else(|error| panic!("{}: {error}", declared.name));
            assert!(declared.summary.ends_with('.'), "{}", declared.name);
            for parameter in declared.parameters {
                assert!(parameter.doc.ends_with('.'), "{} {}", declared.name, parameter.name);
            }
            names.push(declared.name);
        }
        // Those of smdebug-rulesconfig 1.0.1.
        for name in [
            "VanishingGradient LossNotDecreasing WeightUpdateRatio CheckInputImages DeadRelu AllZero ExplodingTensor",
            "UnchangedTensor SimilarAcrossRuns TreeDepth ClassImbalance Confusion Overfit TensorVariance Overtraining",
            "PoorWeightInitialization SaturatedActivation NLPSequenceRatio StalledTrainingRule",
            "FeatureImportanceOverweight CreateXgboostReport BatchSize CPUBottleneck Dataloader GPUMemoryIncrease",
            "IOBottleneck LoadBalancing LowGPUUtilization MaxInitializationTime OverallSystemUsage StepOutlier",
            "ProfilerReport",
        ]
        .iter()
        .flat_map(|line| line.split(' '))
        {
            assert!(names.contains(&name), "{name}");
        }
        assert_eq!(names.len(), 32);
    }

    #[test]
    fn mistakes_are_explained() {
        for (pairs, expected) in [
            (&[][..], "RuleParameters of a lack rule_to_invoke"),
            (&[("rule_to_invoke", "Vanishing_Gradient")], "not a built-in rule (did you mean VanishingGradient?)"),
            (&[("rule_to_invoke", "MyRule")], "is MyRule, which is not a built-in rule; rules are VanishingGradient,"),
            (
                &[("rule_to_invoke", "AllZero"), ("other_trial_0", "s3://b/k")],
                "rule AllZero has no parameter other_trial_0; its parameters are collection_names",
            ),
            (&[("rule_to_invoke", "ProfilerReport"), ("CPUBottleneck_limit", "1")], "has no parameter CPUBottleneck_"),
            (
                &[("rule_to_invoke", "ProfilerReport"), ("CPUBottleneck_threshold", "200")],
                "parameter threshold of rule CPUBottleneck is \"200\"; it is a number from 0 to 100",
            ),
        ] {
            let error = check("a", &given(pairs)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let report = [("rule_to_invoke", "ProfilerReport"), ("cpubottleneck_threshold", "20")];
        assert_eq!(check("a", &given(&report)).unwrap().subject(), Subject::System);
        let similar = [("rule_to_invoke", "SimilarAcrossRuns"), ("other_trial_0", "s3://b/k")];
        assert_eq!(check("a", &given(&similar)).unwrap().subject(), Subject::Tensors);
    }
}
