//! Rules that are evaluated while the program runs: over the tensors of this instance, and over its
//! samples.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shoal_link::{Assignment, MirrorKind, PROFILER, ReportBody, Rule, RuleVerdict};

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::{Event, next_event};
use crate::judging::Judging;
use crate::mirror::Place;
use crate::profiler_rules::ProfilerRules;
use crate::rules::{RuleConfiguration, RuleEvent, Rules};
use crate::step_files::StepFiles;
use crate::verdicts::{built_in, concluded, parameters};

/// How long the end of the program waits for the last evaluations.
const LAST_EVALUATIONS: Duration = Duration::from_secs(10);

impl Agent<'_> {
    /// Begins to evaluate the assignment's rules.
    pub(super) fn evaluate(&mut self, assignment: &Assignment) -> Result<(), AttemptError> {
        let Some(hook) = &assignment.debug_hook else { return Ok(()) };
        let (assigned, reports) = built_in(&assignment.rules);
        reports.into_iter().try_for_each(|report| self.outbox.report(report))?;
        if assigned.is_empty() {
            return Ok(());
        }
        let place = self.home.mirrored(MirrorKind::Tensors, &hook.local_path);
        let place = Place { marks: self.home.rule_marks(), ..place };
        let (outbox, events) = (self.outbox.clone(), self.events.clone());
        // By default the first worker alone saves tensors.
        let unjudged = if assignment.host == 1 { RuleVerdict::Error } else { RuleVerdict::Unobserved };
        let configurations = assigned.iter().map(configuration).collect();
        let report = move |event| match event {
            RuleEvent::Concluded { configuration, conclusion, stops_training } => {
                let Some(rule) = assigned.iter().find(|rule| rule.name == configuration) else { return };
                for report in concluded(rule, &conclusion, unjudged, stops_training) {
                    // If it cannot be sent, the program is about to be stopped.
                    let _ = outbox.report(report);
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

    /// The profiler's rules, for what samples the instance. They go on where a program is started
    /// again.
    pub(super) fn judge_samples(&mut self, assignment: &Assignment) -> Option<Arc<Mutex<Judging>>> {
        if assignment.profiler_rules.is_empty() {
            return None;
        }
        if self.profiler_rules.is_none() {
            let host = assignment.hosts.get(assignment.host.saturating_sub(1) as usize).map_or("", String::as_str);
            let (rules, reports) = ProfilerRules::new(host, &assignment.profiler_rules);
            for report in reports {
                // An outbox that is closed has ended the attempt.
                let _ = self.outbox.report(report);
            }
            let place = self.home.mirrored(MirrorKind::Profiler, PROFILER);
            // Without its directory the instance has no program either.
            let files = assignment.step_times().and_then(|_| StepFiles::open(&place).ok());
            self.profiler_rules = Some(Arc::new(Mutex::new(Judging::new(rules, files))));
        }
        self.profiler_rules.clone()
    }

    /// The program is over: its rules come to their conclusions, which the job's end follows.
    pub(super) fn conclude_rules(&mut self) {
        if let Some(rules) = &self.profiler_rules {
            let reports = rules.lock().unwrap_or_else(PoisonError::into_inner).conclude();
            reports.into_iter().for_each(|report| drop(self.outbox.report(report)));
        }
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
    RuleConfiguration { name: rule.name.clone(), parameters: parameters(rule), other_runs: Vec::new() }
}
