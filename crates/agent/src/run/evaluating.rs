//! Rules that are evaluated over the tensors of this instance while the program runs.

use std::time::{Duration, Instant};

use shoal_link::{Assignment, MirrorKind, ReportBody, Rule, RuleVerdict};
use shoal_rules::Status;

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::{Event, next_event};
use crate::mirror::Place;
use crate::rules::{RuleConfiguration, RuleEvent, Rules};

/// The parameter that names a rule.
const RULE: &str = "rule_to_invoke";
/// The parameter of a user's own rule: where its source is.
const SOURCE: &str = "source_s3_uri";
/// How long the end of the program waits for the last evaluations.
const LAST_EVALUATIONS: Duration = Duration::from_secs(10);

impl Agent<'_> {
    /// Begins to evaluate the assignment's rules.
    pub(super) fn evaluate(&mut self, assignment: &Assignment) -> Result<(), AttemptError> {
        let Some(hook) = &assignment.debug_hook else { return Ok(()) };
        let (own, rules): (Vec<_>, Vec<_>) =
            assignment.rules.iter().partition(|rule| rule.parameters.contains_key(SOURCE));
        for rule in own {
            let details =
                "rules with a source of their own (source_s3_uri) are not evaluated here; use a built-in rule";
            self.outbox.report(evaluated(rule, RuleVerdict::Error, details, false))?;
        }
        if rules.is_empty() {
            return Ok(());
        }
        let place = self.home.mirrored(MirrorKind::Tensors, &hook.local_path);
        let place = Place { marks: self.home.rule_marks(), ..place };
        let (outbox, events, is_first) = (self.outbox.clone(), self.events.clone(), assignment.host == 1);
        let assigned: Vec<Rule> = rules.into_iter().cloned().collect();
        let configurations = assigned.iter().map(configuration).collect();
        let report = move |event| match event {
            RuleEvent::Concluded { configuration, conclusion, stops_training } => {
                let Some(rule) = assigned.iter().find(|rule| rule.name == configuration) else { return };
                let verdict = match conclusion.status {
                    Status::IssuesFound => RuleVerdict::IssuesFound,
                    Status::NoIssuesFound => RuleVerdict::NoIssuesFound,
                    // By default the first worker alone saves tensors.
                    Status::Error if !is_first => RuleVerdict::Unobserved,
                    Status::Error => RuleVerdict::Error,
                };
                // If it cannot be sent, the program is about to be stopped.
                let _ = outbox.report(evaluated(rule, verdict, &conclusion.details, stops_training));
                if verdict == RuleVerdict::IssuesFound {
                    let text = format!("rule {configuration}: {}", conclusion.details);
                    let _ = outbox.report(ReportBody::Note { text });
                }
            }
            RuleEvent::Note(text) => drop(outbox.report(ReportBody::Note { text })),
            // If it cannot be sent, the agent has ended.
            RuleEvent::Ended => drop(events.send(Event::Evaluated)),
        };
        let processes = usize::try_from(self.processes).unwrap_or(1).max(1);
        let failed = |source| AttemptError::Mirror { what: format!("evaluate the rules of {}", hook.uri), source };
        self.rules = Some(Rules::start(&place, processes, configurations, report).map_err(failed)?);
        Ok(())
    }

    /// The program is over: its rules come to their conclusions, which the job's end follows.
    pub(super) fn conclude_rules(&mut self) {
        let Some(rules) = &self.rules else { return };
        rules.finish();
        let until = Instant::now() + LAST_EVALUATIONS;
        while !self.wishes.evaluated && !self.wishes.abandoned {
            match next_event(&self.arriving, Some(until)) {
                Some(event) => self.wishes.note(event),
                None => {
                    rules.give_up();
                    return;
                }
            }
        }
    }
}

fn configuration(rule: &Rule) -> RuleConfiguration {
    let named = (RULE.to_owned(), rule.rule.clone());
    RuleConfiguration {
        name: rule.name.clone(),
        parameters: rule.parameters.clone().into_iter().chain([named]).collect(),
        other_runs: Vec::new(),
    }
}

fn evaluated(rule: &Rule, verdict: RuleVerdict, details: &str, stops_training: bool) -> ReportBody {
    let stops = rule.stops || stops_training;
    ReportBody::RuleEvaluated { rule: rule.name.clone(), verdict, details: details.to_owned(), stops }
}
