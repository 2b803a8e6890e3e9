//! What rules have found that are evaluated while the job runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Host, RuleEvaluation, RuleVerdict, Time};

/// Of each rule that was evaluated on an instance so far, by its configuration's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Evaluations(BTreeMap<String, Evaluation>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Evaluation {
    verdict: RuleVerdict,
    details: String,
    at: Time,
    /// Instances of the present attempt that have evaluated it.
    hosts: BTreeSet<Host>,
}

impl Evaluations {
    /// An instance has evaluated a rule. The first verdict of the highest precedence stays.
    pub(crate) fn add(&mut self, rule: &str, host: Host, verdict: RuleVerdict, details: &str, at: Time) {
        let evaluation = self.0.entry(rule.to_owned()).or_insert_with(|| Evaluation {
            verdict,
            details: details.to_owned(),
            at,
            hosts: BTreeSet::new(),
        });
        evaluation.hosts.insert(host);
        if verdict > evaluation.verdict {
            evaluation.verdict = verdict;
            details.clone_into(&mut evaluation.details);
            evaluation.at = at;
        }
    }

    /// Another attempt evaluates all rules again; issues that were found stay found.
    pub(crate) fn restart(&mut self) {
        self.0.retain(|_, evaluation| evaluation.verdict == RuleVerdict::IssuesFound);
    }

    /// As of now, of a job with `instances`: what is not final yet is left out.
    pub(crate) fn view(&self, instances: u32, ended: bool) -> Vec<RuleEvaluation> {
        let is_final = |evaluation: &Evaluation| {
            ended || evaluation.verdict == RuleVerdict::IssuesFound || evaluation.hosts.len() >= instances as usize
        };
        let finals = self.0.iter().filter(|(_, evaluation)| is_final(evaluation));
        finals
            .map(|(rule, evaluation)| RuleEvaluation {
                rule: rule.clone(),
                verdict: evaluation.verdict,
                details: evaluation.details.clone(),
                at: evaluation.at,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(evaluations: &mut Evaluations, host: u32, verdict: RuleVerdict) {
        evaluations.add("r", Host(host), verdict, &format!("{verdict:?} on {host}"), Time(host.into()));
    }

    fn shown(evaluations: &Evaluations, ended: bool) -> Vec<String> {
        evaluations.view(2, ended).into_iter().map(|it| it.details).collect()
    }

    #[test]
    fn issues_of_one_instance_are_the_jobs_and_stay() {
        let mut all = Evaluations::default();
        add(&mut all, 1, RuleVerdict::NoIssuesFound);
        assert!(shown(&all, false).is_empty(), "the other instance may find some");
        assert_eq!(shown(&all, true), ["NoIssuesFound on 1"]);
        add(&mut all, 2, RuleVerdict::IssuesFound);
        assert_eq!(shown(&all, false), ["IssuesFound on 2"]);
        add(&mut all, 1, RuleVerdict::IssuesFound);
        all.restart();
        assert_eq!(shown(&all, false), ["IssuesFound on 2"]);
    }

    #[test]
    fn an_error_outweighs_no_issues_and_no_issues_an_instance_without_tensors() {
        let mut all = Evaluations::default();
        add(&mut all, 2, RuleVerdict::Unobserved);
        add(&mut all, 1, RuleVerdict::NoIssuesFound);
        assert_eq!(shown(&all, false), ["NoIssuesFound on 1"]);
        add(&mut all, 2, RuleVerdict::Error);
        assert_eq!(shown(&all, false), ["Error on 2"]);
        all.restart();
        assert!(shown(&all, true).is_empty());
    }
}
