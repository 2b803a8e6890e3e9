//! How a trial stands, in the words of `StudyTrial::state`: completed, stopped early by the scheduler, stopped at `MaxResource`, cancelled by somebody,
//! failed, or still under way. A trial is `Completed` here where its training job is `Completed` in the API, and so for `Failed`; the three kinds of
//! stops are `Stopped` there.

use shoal_plane::{JobView, SecondaryStatus, StopCause, TrialView, TuningEnd, TuningView};
use shoal_store::ResourceRow;

/// How a trial stands, and why it failed or was cancelled. `most`: the greatest resource, if the scheduler has one.
pub(crate) fn of(
    trial: &TrialView,
    view: &JobView,
    tuning: &TuningView,
    row: &ResourceRow,
    most: Option<u32>,
) -> (&'static str, Option<String>) {
    match row.status.as_str() {
        "Completed" => ("Completed", None),
        "Failed" => ("Failed", view.failure_reason.clone()),
        // Jobs of earlier versions have no cause `MaxResource`: they were stopped early, after their last unit.
        "Stopped" | "Stopping"
            if view.stop == Some(StopCause::MaxResource)
                || view.stop == Some(StopCause::Early) && most.is_some_and(|most| trial.resource > most) =>
        {
            ("MaxResource", None)
        }
        "Stopped" | "Stopping" => stopped(trial, view, tuning, row),
        _ if trial.paused => ("Paused", None),
        _ if trial.waits || matches!(view.secondary, SecondaryStatus::Pending | SecondaryStatus::Interrupted) => ("Waiting", None),
        _ => ("Running", None),
    }
}

/// The scheduler stops trials early, as others are more promising; whoever else ends one cancels it.
fn stopped(trial: &TrialView, view: &JobView, tuning: &TuningView, row: &ResourceRow) -> (&'static str, Option<String>) {
    let is_whole = !matches!(
        tuning.end,
        Some(TuningEnd::User | TuningEnd::MaxRuntime | TuningEnd::Search | TuningEnd::Failures | TuningEnd::NoObjective)
    );
    let by = match view.stop {
        Some(StopCause::Early | StopCause::MaxResource) => return ("Stopped", None),
        Some(StopCause::User) => "it was stopped by its user (StopTrainingJob)",
        Some(StopCause::MaxRuntime) => "it reached its MaxRuntimeInSeconds",
        Some(StopCause::MaxWait) => "it reached its MaxWaitTimeInSeconds",
        // It had made room for better ones, and the search came to its end without it.
        _ if trial.passed_over && is_whole => return ("Stopped", None),
        // What was stored before causes were: it ran, and nobody knows more.
        None if row.ended && trial.resource > 0 && tuning.end.is_none_or(|_| is_whole) => return ("Stopped", None),
        Some(StopCause::Tuning) | None => match tuning.end {
            Some(TuningEnd::User) => "its tuning job was stopped by its user",
            Some(TuningEnd::MaxRuntime) => "its tuning job reached its MaxRuntimeInSeconds",
            Some(TuningEnd::Target) => "its tuning job had reached its target",
            Some(TuningEnd::NotImproving | TuningEnd::Converged) => "its tuning job ended: results no longer improved",
            Some(_) => "its tuning job ended",
            None if trial.resource == 0 => "it was stopped before it ran",
            None => "it was stopped while it rested",
        },
    };
    ("Cancelled", Some(by.to_owned()))
}
