//! The table of all rules.

use std::collections::BTreeMap;

use crate::declaration::{Declaration, Make};
use crate::parameters::{ParameterError, Parameters};
use crate::{debugger, profiler};

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

/// Checks the parameters of a rule. `SimilarAcrossRuns` names other runs as `other_trial_0` and so
/// on; the report has the parameters of all rules as `CPUBottleneck_threshold`.
pub(crate) fn parse(declared: &Declaration, given: &BTreeMap<String, String>) -> Result<Parameters, ParameterError> {
    let is_further = |name: &str| match declared.make {
        Make::Report => profiler::report_parameter(name).is_some(),
        Make::Tensors(_) => {
            let number = name.strip_prefix("other_trial_");
            declared.name == "SimilarAcrossRuns" && number.is_some_and(|number| number.parse::<u32>().is_ok())
        }
        Make::System(_) => false,
    };
    Parameters::check(declared.name, declared.parameters, given, is_further)
}
