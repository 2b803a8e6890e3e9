//! Tuning jobs: how they are shown in scripts, and their scenarios.

use shoal_plane::{Action, Fact, Observation};

pub(crate) fn show_fact(fact: &Fact) -> String {
    match fact {
        Fact::ObjectiveReported { resource, value, .. } => format!("reported {} after {resource}", show(*value)),
        Fact::TrialPaused { frozen, message, .. } => format!("paused{}: {message}", if *frozen { " frozen" } else { "" }),
        Fact::TrialParked { message, .. } => format!("parked: {message}"),
        Fact::TrialResumed { to, message } => format!("resumed{}: {message}", up_to(*to)),
        Fact::TrialRaised { to } => format!("raised{}", up_to(*to)),
        Fact::AttemptThawed { message, .. } => format!("thawed: {message}"),
        Fact::TuningCreated { spec, .. } => format!("tuning created: {} in parallel", spec.max_parallel),
        Fact::SuggestionsWanted { seq, wanted, starts } => format!("wish {seq}: {wanted} trials, {starts} new"),
        Fact::Suggested { seq, records, exhausted, waits } => {
            let rest = if *waits { ", waits" } else { "" };
            let end = if exhausted.is_empty() { "" } else { ", exhausted" };
            format!("wish {seq} answered: {} records{end}{rest}", records.len())
        }
        Fact::Judged { seq, records, .. } => format!("wish {seq} judged: {} records", records.len()),
        Fact::TrialEnded { trial, end, value, is_best, not_improving, .. } => {
            let best = if *is_best { ", the best" } else { "" };
            format!("trial {trial} ended {end:?} with {}{best}; {not_improving} not improving", show(*value))
        }
        Fact::ParallelChanged { max_parallel } => format!("{max_parallel} in parallel"),
        Fact::TuningStopping { end, failure_reason } => format!("stopping: {end:?}{}", because(failure_reason.as_deref())),
        Fact::TuningEnded { status, end, failure_reason } => {
            format!("tuning ended {}: {end:?}{}", status.name(), because(failure_reason.as_deref()))
        }
        Fact::TuningReleased => "tuning released".to_owned(),
        other => panic!("shown elsewhere: {other:?}"),
    }
}

pub(crate) fn show_action(action: &Action) -> String {
    match action {
        Action::Freeze { attempt } => format!("-> freeze {attempt}"),
        Action::GoOn { attempt, to } => format!("-> go on {attempt}{}", up_to(*to)),
        Action::Suggest { tuning, seq, wanted, starts } => format!("-> {tuning} suggest {seq}: {wanted}, {starts} new"),
        Action::Observe { tuning, seq, trial, what, .. } => match what {
            Observation::Reported { resource, value } => {
                format!("-> {tuning} observe {seq}: {trial} reported {} after {resource}", show(*value))
            }
            Observation::Ended { outcome } => format!("-> {tuning} observe {seq}: {trial} ended {outcome:?}"),
        },
        other => panic!("shown elsewhere: {other:?}"),
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or("no number".to_owned(), |value| value.to_string())
}

fn up_to(to: Option<u32>) -> String {
    to.map_or_else(String::new, |to| format!(" up to {to}"))
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
