//! Rules of a request as agents get them.

use shoal_wire::RuleConfiguration;

/// A rule without what it reads besides the tensors and samples of its own training job.
pub(crate) fn rule(rule: &RuleConfiguration) -> shoal_link::Rule {
    shoal_link::Rule {
        name: rule.name.clone(),
        rule: rule.rule.clone(),
        parameters: rule.parameters.clone(),
        stops: rule.stops(),
        source: None,
        other_runs: Vec::new(),
    }
}
