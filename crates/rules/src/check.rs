//! Whether a request's rules can be evaluated.

use std::collections::BTreeMap;

use crate::declaration::{Declaration, Subject};
use crate::declarations::named;
use crate::evaluation::Evaluation;
use crate::parameters::ParameterError;
use crate::system_evaluation::SystemEvaluation;

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
    use crate::declarations::declarations;

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
            "OverallFrameworkMetrics ProfilerReport",
        ]
        .iter()
        .flat_map(|line| line.split(' '))
        {
            assert!(names.contains(&name), "{name}");
        }
        assert_eq!(names.len(), 33);
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
