//! Rules that are evaluated while the program runs: over the tensors of this instance, and over its
//! samples.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shoal_link::{Assignment, MirrorKind, PROFILER, ReportBody, Rule, RuleVerdict};
use shoal_sandbox::{SandboxSpec, Support};

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::{Event, next_event};
use crate::judging::Judging;
use crate::mirror::Place;
use crate::own_rules::{LAST_STEPS, OwnRules, Surroundings};
use crate::profiler_rules::ProfilerRules;
use crate::rules::{RuleConfiguration, RuleEvent, Rules};
use crate::step_files::StepFiles;
use crate::verdicts::{by_kind, concluded, evaluated, parameters};
use crate::wishes::Wishes;

/// How long the end of the program waits for the last evaluations.
const LAST_EVALUATIONS: Duration = Duration::from_secs(10);

/// Why own rules are not evaluated.
const NO_PYTHON: &str = "a rule with a source of its own (source_s3_uri) runs in the Python environment of its \
                         training job, and this one has none; use an image of a framework";

impl Agent<'_> {
    /// Begins to evaluate the assignment's rules.
    pub(super) fn evaluate(&mut self, assignment: &Assignment) -> Result<(), AttemptError> {
        let Some(hook) = &assignment.debug_hook else { return Ok(()) };
        let (_, assigned) = by_kind(&assignment.rules);
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

    /// Begins to evaluate the user's own rules, beside the program whose instance `spec` describes.
    /// They continue where a program is started again.
    pub(super) fn evaluate_own(
        &mut self,
        assignment: &Assignment,
        spec: &SandboxSpec,
        support: &Support,
    ) -> Result<(), AttemptError> {
        let Some(hook) = &assignment.debug_hook else { return Ok(()) };
        let (rules, _) = by_kind(&assignment.rules);
        if rules.is_empty() || self.own_rules.is_some() {
            return Ok(());
        }
        let unjudged = match (assignment.host, &assignment.python) {
            (1, Some(_)) => None,
            (1, None) => Some((RuleVerdict::Error, NO_PYTHON)),
            // By default the first worker alone saves tensors.
            _ => Some((RuleVerdict::Unobserved, "")),
        };
        if let Some((verdict, details)) = unjudged {
            let mut reports = rules.iter().map(|rule| evaluated(rule, verdict, details, false));
            return Ok(reports.try_for_each(|report| self.outbox.report(report))?);
        }
        let surroundings = Surroundings {
            spec: spec.clone(),
            support: support.clone(),
            tensors: hook.local_path.clone(),
            workers: self.processes.max(1),
            directories: (0..rules.len()).map(|number| self.home.own_rule(number)).collect(),
        };
        let failed = |source| AttemptError::Mirror { what: format!("evaluate your own rules of {}", hook.uri), source };
        let started = OwnRules::start(rules, surroundings, self.outbox, &self.events);
        self.own_rules = Some(started.map_err(failed)?);
        Ok(())
    }

    /// The profiler's rules, for what samples the instance. They go on where a program is started
    /// again.
    pub(super) fn judge_samples(&mut self, assignment: &Assignment) -> Option<Arc<Mutex<Judging>>> {
        // Some may be added while the program runs.
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

    /// By these rules the samples are judged from now on.
    pub(super) fn replace_profiler_rules(&mut self, rules: &[Rule]) {
        let Some(judging) = &self.profiler_rules else { return };
        let reports = judging.lock().unwrap_or_else(PoisonError::into_inner).replace(rules);
        reports.into_iter().for_each(|report| drop(self.outbox.report(report)));
    }

    /// The program is over: its rules come to their conclusions, which the job's end follows.
    pub(super) fn conclude_rules(&mut self) {
        if let Some(rules) = &self.profiler_rules {
            let reports = rules.lock().unwrap_or_else(PoisonError::into_inner).conclude();
            reports.into_iter().for_each(|report| drop(self.outbox.report(report)));
        }
        self.rules.iter().for_each(Rules::finish);
        self.own_rules.iter().for_each(OwnRules::finish);
        let now = Instant::now();
        if self.rules.is_some() && !self.await_wish(now + LAST_EVALUATIONS, |wishes| wishes.evaluated) {
            self.rules.iter().for_each(Rules::give_up);
        }
        if self.own_rules.is_some() && !self.await_wish(now + LAST_STEPS, |wishes| wishes.own_evaluated) {
            self.own_rules.iter_mut().for_each(OwnRules::end_unfinished);
        }
    }

    /// Gathers events until they have made this so, or it is not needed any more; `false` when the
    /// time has come.
    fn await_wish(&mut self, until: Instant, is_so: impl Fn(&Wishes) -> bool) -> bool {
        while !is_so(&self.wishes) && !self.wishes.abandoned {
            match next_event(&self.arriving, Some(until)) {
                Some(event) => self.wishes.note(event),
                None => return false,
            }
        }
        true
    }
}

fn configuration(rule: &Rule) -> RuleConfiguration {
    let other_runs = rule.other_runs.iter().map(|run| run.directory().to_owned()).collect();
    RuleConfiguration { name: rule.name.clone(), parameters: parameters(rule), other_runs }
}
