//! How each fact changes what is known of a training job.

use std::collections::BTreeMap;

use super::{TrainingJob, actions::news};
use crate::{
    Action, AttemptId, Fact, Host, InstancePhase, MetricValue, SecondaryStatus, Time,
    gang::{
        End, Stop,
        instances::{Instance, Stage},
    },
};

/// `FinalMetricDataList` holds no more.
const MAX_FINAL_METRICS: usize = 40;

impl TrainingJob {
    /// Changes what is known. Facts about another attempt, or that come too late, change nothing.
    /// Returns what is to be done that was not to be done before.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Vec<Action> {
        let before = self.pending_actions();
        if self.absorb(at, fact) {
            self.modified = at;
        }
        self.pending_actions().into_iter().filter_map(|action| news(&before, action)).collect()
    }

    /// Whether the job was modified.
    fn absorb(&mut self, at: Time, fact: &Fact) -> bool {
        match fact {
            Fact::CheckpointSaved { .. } | Fact::ObjectiveReported { .. } | Fact::TrialRaised { .. } => {
                self.absorb_of_trial(fact);
                false
            }
            Fact::RuleEvaluated { host, rule, verdict, details, .. } => {
                self.rules.get_or_insert_default().add(rule, *host, *verdict, details, at);
                true
            }
            Fact::AttemptLaunched { attempt, placement, lease_s, message } => {
                self.gang.launch(at, attempt, placement, *lease_s) && {
                    if let Some(rules) = &mut self.rules {
                        rules.restart();
                    }
                    // What an earlier attempt measured comes after all of this one's, whatever the
                    // clocks of the two say.
                    self.final_metrics.clear();
                    // It resumes after a rest that no status showed.
                    let is_unseen = self.secondary() == SecondaryStatus::Training;
                    self.enter_unless(is_unseen, SecondaryStatus::Starting, at, message)
                }
            }
            Fact::JobMoved { secondary, message } => {
                self.gang.end.is_none() && {
                    match secondary {
                        SecondaryStatus::Starting => self.gang.delay_launch(at),
                        SecondaryStatus::Pending => self.gang.queue_launch(),
                        _ => {}
                    }
                    self.enter(*secondary, at, message);
                    true
                }
            }
            Fact::InstanceMoved { attempt, host, phase } => {
                let next = match phase {
                    InstancePhase::Downloading => Instance::Downloading,
                    InstancePhase::Training => Instance::Running,
                };
                self.set_instance(attempt, *host, next) && {
                    self.note_completeness();
                    // After a rest that no status showed none will say that it runs again.
                    let is_going_on = self.gang.running().is_some_and(|attempt| attempt.failed.is_none());
                    if self.gang.retry.is_some() && self.secondary() == SecondaryStatus::Training && is_going_on {
                        self.gang.begin(at);
                    }
                    true
                }
            }
            Fact::RankEnded { attempt, host, end, final_metrics } => {
                self.set_instance(attempt, *host, Instance::Ended { end: end.clone(), seen: at }) && {
                    self.add_metrics(final_metrics);
                    true
                }
            }
            Fact::InstanceUploaded { attempt, host } => self.set_instance(attempt, *host, Instance::Uploaded),
            Fact::InstanceLost { attempt, host, reason } => {
                self.set_instance(attempt, *host, Instance::Lost { reason: reason.clone(), seen: at })
            }
            Fact::StopRequested { cause, message } => {
                self.gang.in_progress() && {
                    self.gang.stop = Some(Stop { cause: *cause, at });
                    // What is being uploaded is still uploaded.
                    if self.secondary() != SecondaryStatus::Uploading {
                        self.enter(SecondaryStatus::Stopping, at, message);
                    }
                    true
                }
            }
            Fact::UploadsEnded { attempt } => self.set_stage(attempt, Stage::Storing),
            Fact::ReleaseOrdered { attempt } => self.set_stage(attempt, Stage::Releasing),
            Fact::JobEnded { secondary, message, failure_reason, .. } => {
                self.gang.end.is_none() && {
                    self.enter(*secondary, at, message);
                    if let Some(last) = self.transitions.last_mut() {
                        last.end = Some(at);
                    }
                    self.failure_reason.clone_from(failure_reason);
                    self.gang.end = Some(End { at, failed: *secondary == SecondaryStatus::Failed });
                    true
                }
            }
            Fact::AttemptFailed { attempt, reason, message, replaced } => {
                self.gang.fail(at, attempt, reason, *replaced) && {
                    if let Some(trial) = &mut self.trial {
                        trial.behind = trial.saved;
                    }
                    self.enter_unless(false, SecondaryStatus::Starting, at, message)
                }
            }
            Fact::AttemptInterrupted { attempt, message } => {
                self.gang.interrupt(at, attempt) && self.enter_unless(false, SecondaryStatus::Interrupted, at, message)
            }
            Fact::AttemptEvicted { attempt, used_bytes, message } => {
                self.gang.evict(at, attempt, *used_bytes)
                    && self.enter_unless(false, SecondaryStatus::Interrupted, at, message)
            }
            Fact::InstancesInterrupted { attempt, hosts, message } => {
                self.gang.interrupt_instances(at, attempt, hosts) && {
                    self.set_message(message);
                    true
                }
            }
            Fact::InstancesVacated { attempt, hosts, message } => {
                self.gang.vacate(attempt, hosts) && {
                    message.iter().for_each(|message| self.set_message(message));
                    message.is_some()
                }
            }
            Fact::InstancesCleared { attempt, hosts, until } => {
                self.gang.empty_places(attempt, hosts, *until);
                false
            }
            Fact::ReplacementAllowed { attempt, hosts } => {
                self.gang.end_pause(attempt, hosts);
                false
            }
            Fact::InstancesAdded { attempt, hosts, gpus, nodes, message } => {
                self.gang.fill_places(attempt, hosts, gpus, nodes) && {
                    self.set_message(message);
                    true
                }
            }
            Fact::Released { attempt } => self.come_back(at, attempt.as_deref()),
            Fact::TrialPaused { attempt, frozen, message, stores, unseen } => {
                self.trial.is_some()
                    && self.gang.pause(at, attempt.as_ref(), *frozen)
                    && match attempt {
                        Some(_) if *frozen => self.enter_unless(false, self.secondary(), at, message),
                        Some(attempt) => self.leave(at, attempt, message, *stores, *unseen),
                        None => self.enter_unless(false, SecondaryStatus::Starting, at, message),
                    }
            }
            Fact::TrialParked { attempt, message, stores, rested } => {
                let is_frozen = self.gang.rests_frozen();
                if let Some(retry) = self.gang.retry.as_mut().filter(|_| is_frozen && *rested) {
                    retry.started = None;
                }
                is_frozen && self.leave(at, attempt, message, *stores, false)
            }
            Fact::TrialResumed { to, message } => {
                if let Some(trial) = &mut self.trial {
                    trial.to = *to;
                }
                self.gang.resume(at) && {
                    self.set_message(message);
                    true
                }
            }
            Fact::AttemptThawed { attempt, message } => {
                let is_current = self.gang.current(attempt).is_some();
                self.trial.as_mut().filter(|_| is_current).is_some_and(|trial| {
                    trial.raised = true;
                    true
                }) && {
                    self.gang.thaw(at);
                    self.set_message(message);
                    true
                }
            }
            Fact::JobCreated { .. }
            | Fact::TuningCreated { .. }
            | Fact::SuggestionsWanted { .. }
            | Fact::Suggested { .. }
            | Fact::Judged { .. }
            | Fact::TrialEnded { .. }
            | Fact::ParallelChanged { .. }
            | Fact::TuningStopping { .. }
            | Fact::TuningEnded { .. }
            | Fact::TuningReleased => false,
        }
    }

    /// What only the trial learns of: it modifies no training job.
    fn absorb_of_trial(&mut self, fact: &Fact) {
        let is_current = |attempt: &AttemptId| self.gang.attempt.as_ref().is_some_and(|current| current.id == *attempt);
        let Some(trial) = &mut self.trial else { return };
        match fact {
            Fact::CheckpointSaved { .. } => trial.saved = trial.resource,
            Fact::ObjectiveReported { attempt, host, resource, value, .. }
                if is_current(attempt) && trial.resource < *resource =>
            {
                (trial.host, trial.resource, trial.value) = (Some(*host), *resource, *value);
            }
            Fact::TrialRaised { to } => {
                trial.to = *to;
                trial.raised = true;
            }
            _ => {}
        }
    }

    /// Enters the secondary status, or only takes the message.
    fn enter_unless(&mut self, stays: bool, secondary: SecondaryStatus, at: Time, message: &str) -> bool {
        if stays {
            self.set_message(message);
        } else {
            self.enter(secondary, at, message);
        }
        true
    }

    /// The attempt is ended and released, and the job rests without instances; `unseen`: its
    /// secondary status stays.
    fn leave(&mut self, at: Time, attempt: &AttemptId, message: &str, stores: bool, unseen: bool) -> bool {
        self.gang.leave(at, attempt, stores) && {
            if let Some(trial) = &mut self.trial {
                trial.behind = if trial.checkpoints { trial.resource } else { 0 };
            }
            self.enter_unless(unseen, SecondaryStatus::Starting, at, message)
        }
    }

    /// The attempt that another one follows is released.
    fn come_back(&mut self, at: Time, attempt: Option<&str>) -> bool {
        let Some(before) = self.gang.come_back(at, attempt) else { return false };
        if let Some(trial) = &mut self.trial {
            trial.host = None;
            trial.raised = false;
            if before.interrupted {
                // What it saved while it was being ended counts.
                trial.behind = trial.saved;
            }
        }
        self.earlier_metrics = if before.interrupted || before.parked { self.metrics() } else { BTreeMap::new() };
        true
    }

    fn set_stage(&mut self, attempt: &AttemptId, stage: Stage) -> bool {
        self.gang.current(attempt).is_some_and(|attempt| attempt.set_stage(stage))
    }

    fn set_instance(&mut self, attempt: &AttemptId, host: Host, next: Instance) -> bool {
        self.gang.current(attempt).is_some_and(|attempt| attempt.set_instance(host, next))
    }

    /// From the moment at which all programs run a gang that may can lose instances.
    fn note_completeness(&mut self) {
        if let Some(attempt) = self.gang.attempt.as_mut().filter(|_| self.gang.spec.min_instances.is_some()) {
            attempt.complete |= attempt.all(|instance| *instance == Instance::Running);
        }
    }

    /// The latest value of each metric, of all hosts; of two at the same time the one that came
    /// first.
    fn add_metrics(&mut self, metrics: &[MetricValue]) {
        for metric in metrics {
            match self.final_metrics.get_mut(&metric.name) {
                Some(known) if known.at >= metric.at => {}
                Some(known) => known.clone_from(metric),
                None => {
                    self.final_metrics.insert(metric.name.clone(), metric.clone());
                }
            }
        }
        bound(&mut self.final_metrics);
    }

    /// The last value of each metric: of the present attempt, and before them of those that it
    /// continues.
    pub(crate) fn metrics(&self) -> BTreeMap<String, MetricValue> {
        let mut metrics = self.earlier_metrics.clone();
        metrics.extend(self.final_metrics.clone());
        bound(&mut metrics);
        metrics
    }
}

fn bound(metrics: &mut BTreeMap<String, MetricValue>) {
    while metrics.len() > MAX_FINAL_METRICS {
        metrics.pop_last();
    }
}
