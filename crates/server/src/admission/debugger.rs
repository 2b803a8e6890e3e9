//! What the Debugger of a training job can only fail at later: places that do not exist, rules that
//! are not known or have wrong parameters.

use std::collections::BTreeMap;

use shoal_rules::Subject;
use shoal_store::Objects;
use shoal_wire::{Debugger, Error, RuleAction, RuleConfiguration};

use super::bucket;

/// The parameter that names a rule.
const RULE: &str = "rule_to_invoke";
/// The parameter of a user's own rule: where its source is.
const SOURCE: &str = "source_s3_uri";

/// Refuses what could only fail later.
pub(super) fn check(objects: &Objects, debugger: &Debugger) -> Result<(), Error> {
    if let Some(hook) = &debugger.hook {
        bucket(objects, "debugHookConfig.s3OutputPath", &hook.uri)?;
    }
    if let Some(board) = &debugger.tensor_board {
        bucket(objects, "tensorBoardOutputConfig.s3OutputPath", &board.uri)?;
    }
    rules("debugRuleConfigurations", &debugger.rules, Subject::Tensors)?;
    profiler_rules(&debugger.profiler_rules)
}

/// Likewise of these rules alone.
pub(crate) fn profiler_rules(given: &[RuleConfiguration]) -> Result<(), Error> {
    rules("profilerRuleConfigurations", given, Subject::System)
}

fn rules(path: &str, rules: &[RuleConfiguration], subject: Subject) -> Result<(), Error> {
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| !is_own(rule)) {
        let refused = |why: String| {
            Err(Error::validation(format!("Invalid value at '{path}.{}.member.ruleParameters': {why}.", at + 1)))
        };
        match shoal_rules::check(&rule.name, &parameters(rule)) {
            Err(error) => return refused(error.to_string()),
            Ok(declared) if declared.subject() != subject => {
                let (judges, member) = match declared.subject() {
                    Subject::Tensors => ("saved tensors", "DebugRuleConfigurations"),
                    Subject::System => ("system metrics", "ProfilerRuleConfigurations"),
                };
                return refused(format!("the rule {} judges {judges}; give it in {member}", declared.name));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Whether it is a class of the user's.
fn is_own(rule: &RuleConfiguration) -> bool {
    rule.parameters.contains_key(SOURCE)
}

/// As the request has them.
fn parameters(rule: &RuleConfiguration) -> BTreeMap<String, String> {
    let named = (RULE.to_owned(), rule.rule.clone());
    rule.parameters.clone().into_iter().chain([named]).collect()
}

/// What of the rules has no effect, for the job's log.
pub(crate) fn notes(debugger: &Debugger, has_mail: bool) -> Vec<String> {
    let mut notes = Vec::new();
    for rule in debugger.rules.iter().chain(&debugger.profiler_rules) {
        let name = &rule.name;
        for action in &rule.actions {
            match action {
                RuleAction::StopTraining => {}
                RuleAction::Email(_) if has_mail => {}
                RuleAction::Email(to) => notes.push(format!(
                    "the rule '{name}' sends no mail to {to}: set notifications_smtp in shoal.toml; what the rule finds \
                     is in DescribeTrainingJob"
                )),
                RuleAction::Sms(to) => notes.push(format!(
                    "the rule '{name}' sends no message to {to}: Shoal sends no SMS; what the rule finds is in \
                     DescribeTrainingJob, and is sent by mail with the action email"
                )),
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rule: &str, parameters: &[(&str, &str)]) -> RuleConfiguration {
        RuleConfiguration {
            name: "r".to_owned(),
            rule: rule.to_owned(),
            parameters: parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            actions: Vec::new(),
        }
    }

    #[test]
    fn mistakes_in_rules_are_refused_at_creation() {
        let refused = |rule: RuleConfiguration, subject, hint: &str| {
            let message = rules("debugRuleConfigurations", &[rule], subject).expect_err(hint).message;
            assert!(message.contains("'debugRuleConfigurations.1.member.ruleParameters'"), "{message}");
            assert!(message.contains(hint), "{message}");
        };
        refused(rule("VanishingGradients", &[]), Subject::Tensors, "did you mean VanishingGradient?");
        refused(rule("VanishingGradient", &[("threshold", "small")]), Subject::Tensors, "threshold");
        refused(rule("CPUBottleneck", &[]), Subject::Tensors, "ProfilerRuleConfigurations");
        refused(rule("AllZero", &[]), Subject::System, "DebugRuleConfigurations");
        let sound = [rule("LossNotDecreasing", &[("num_steps", "5")]), rule("Mine", &[(SOURCE, "s3://b/mine.py")])];
        assert_eq!(rules("debugRuleConfigurations", &sound, Subject::Tensors), Ok(()));
    }

    #[test]
    fn actions_that_reach_nobody_are_said() {
        let mut observed = Debugger { rules: vec![rule("AllZero", &[])], ..Debugger::default() };
        observed.rules[0].actions = vec![RuleAction::StopTraining, RuleAction::Email("me@here".to_owned())];
        let without = notes(&observed, false);
        assert!(without.len() == 1 && without[0].contains("me@here"), "{without:?}");
        observed.rules[0].actions.push(RuleAction::Sms("+1".to_owned()));
        let with = notes(&observed, true);
        assert!(with.len() == 1 && with[0].contains("+1"), "{with:?}");
    }
}
