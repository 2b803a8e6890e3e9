//! What a training job's row shows.

use super::TrainingJob;
use crate::{JobView, PendingReason, Time};

impl TrainingJob {
    /// `waits_for` is what a waiting job waits for as of now.
    pub(crate) fn view(&self, waits_for: Option<PendingReason>) -> JobView {
        let mut transitions = self.transitions.clone();
        if let (Some(reason), Some(last)) = (&waits_for, transitions.last_mut()) {
            last.message = reason.to_string();
        }
        let gang = &self.gang;
        let ended = gang.end.map(|end| end.at);
        let mut training_start = gang.started;
        let training_end = ended.filter(|_| training_start.is_some()).map(|ended| gang.rests_since().unwrap_or(ended));
        let seconds = |ms: u64| ms.div_ceil(1000).max(1);
        let whole_ms = training_start.zip(training_end).map(|(start, end)| end.ms_since(start));
        let worked_ms = whole_ms.zip(training_end).map(|(whole, end)| match &gang.retry {
            None => whole,
            Some(retry) => retry.spent_ms + retry.started.map_or(0, |start| end.ms_since(start)),
        });
        // Of managed spot training the difference is what interruptions took.
        let ran_ms = worked_ms.filter(|_| self.trial.is_some() && gang.spec.max_wait_s.is_none());
        if let (Some(ran), Some(end)) = (ran_ms, training_end) {
            training_start = training_start.max(Some(Time(end.0.saturating_sub(ran))));
        }
        let (training_s, billable_s) = (ran_ms.or(whole_ms).map(seconds), worked_ms.map(seconds));
        JobView {
            status: self.status(),
            secondary: self.secondary(),
            transitions,
            failure_reason: self.failure_reason.clone(),
            created: gang.created,
            modified: self.modified,
            training_start,
            training_end,
            training_s,
            billable_s,
            ran_ms,
            final_metrics: self.metrics().into_values().collect(),
            pending: waits_for,
            attempt: gang.attempt.as_ref().map(|attempt| attempt.id.clone()),
            ended: ended.is_some(),
            trial: self.trial.as_ref().map(|trial| trial.view(gang)),
            stop: gang.stop.as_ref().map(|stop| stop.cause),
            rules: self.rules.as_ref().map_or_else(Vec::new, |it| it.view(gang.spec.instances, ended.is_some())),
        }
    }
}
