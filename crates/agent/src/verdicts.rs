//! What is reported of the rules of an assignment, whatever they judge. Pure.

use std::collections::BTreeMap;

use shoal_link::{ReportBody, Rule, RuleVerdict};
use shoal_rules::{Conclusion, Status};

/// Bytes of a page that a rule made.
const MOST_PAGE: usize = 1 << 20;
/// The parameter that names a rule.
const RULE: &str = "rule_to_invoke";
/// The parameter of a user's own rule: where its source is.
const SOURCE: &str = "source_s3_uri";

/// `RuleParameters` as the request has them.
pub(crate) fn parameters(rule: &Rule) -> BTreeMap<String, String> {
    let named = (RULE.to_owned(), rule.rule.clone());
    rule.parameters.clone().into_iter().chain([named]).collect()
}

/// The user's own rules among these, and the built-in ones.
pub(crate) fn by_kind(rules: &[Rule]) -> (Vec<Rule>, Vec<Rule>) {
    rules.iter().cloned().partition(|rule| rule.parameters.contains_key(SOURCE))
}

/// The built-in ones among the profiler's rules, and what is reported of the others.
pub(crate) fn built_in(rules: &[Rule]) -> (Vec<Rule>, Vec<ReportBody>) {
    let (own, rules) = by_kind(rules);
    let refused = |rule: &Rule| {
        let details = "rules with a source of their own (source_s3_uri) judge saved tensors, in \
                       DebugRuleConfigurations; system metrics are judged by built-in rules";
        evaluated(rule, RuleVerdict::Error, details, false)
    };
    (rules, own.iter().map(refused).collect())
}

/// How an evaluation has ended. `unjudged` is the verdict where it could not take place.
pub(crate) fn concluded(
    rule: &Rule,
    conclusion: &Conclusion,
    unjudged: RuleVerdict,
    stops_training: bool,
) -> Vec<ReportBody> {
    let (verdict, is_noted) = match conclusion.status {
        Status::IssuesFound => (RuleVerdict::IssuesFound, true),
        // Some have a summary all the same, which DescribeTrainingJob has no place for.
        Status::NoIssuesFound => (RuleVerdict::NoIssuesFound, !conclusion.details.is_empty()),
        Status::Error => (unjudged, false),
    };
    let note = || ReportBody::Note { text: format!("rule {}: {}", rule.name, conclusion.details) };
    let pages = conclusion.report.iter().filter(|(_, text)| text.len() <= MOST_PAGE);
    let pages = pages.map(|(name, text)| ReportBody::RuleFile {
        rule: rule.name.clone(),
        name: (*name).to_owned(),
        text: text.clone(),
    });
    let evaluated = evaluated(rule, verdict, &conclusion.details, stops_training);
    pages.chain([evaluated]).chain(is_noted.then(note)).collect()
}

/// The report of a verdict.
pub(crate) fn evaluated(rule: &Rule, verdict: RuleVerdict, details: &str, stops_training: bool) -> ReportBody {
    let stops = rule.stops || stops_training;
    ReportBody::RuleEvaluated { rule: rule.name.clone(), verdict, details: details.to_owned(), stops }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_before_its_verdict_and_is_bounded() {
        let named = |name: &str| name.to_owned();
        let rule = Rule {
            name: named("trees"),
            rule: named("CreateXgboostReport"),
            parameters: BTreeMap::new(),
            stops: false,
            source: None,
            other_runs: Vec::new(),
        };
        let concluded_with = |text: String| {
            let report = Some(("xgboost_report.html", text));
            let conclusion =
                Conclusion { status: Status::NoIssuesFound, details: String::new(), finding: None, report };
            concluded(&rule, &conclusion, RuleVerdict::Error, false)
        };
        let verdict = evaluated(&rule, RuleVerdict::NoIssuesFound, "", false);
        let page =
            ReportBody::RuleFile { rule: named("trees"), name: named("xgboost_report.html"), text: named("<p>") };
        assert_eq!(concluded_with(named("<p>")), [page, verdict.clone()]);
        assert_eq!(concluded_with("x".repeat(MOST_PAGE + 1)), [verdict]);
    }
}
