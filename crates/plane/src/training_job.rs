//! A live training job: what is known of it, and how each fact changes that. What follows from it is [`crate::lifecycle`]'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Action, Fact, InstancePhase, JobStatus, JobView, MetricValue, PendingReason, Placement, RankEnd, SecondaryStatus, StopCause, Time,
    TrainingSpec, Transition,
    capacity::Resources,
    limits::{EVICTION_GRACE_S, PEER_GRACE_S},
    retry::Retry,
    tuning::{rest::Leaving, trial::Trial},
};

/// `FinalMetricDataList` holds no more.
const MAX_FINAL_METRICS: usize = 40;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainingJob {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Place in the order of creation; of a trial that goes on, in that of its return to the queue.
    pub(crate) order: u64,
    pub(crate) spec: TrainingSpec,
    pub(crate) status: JobStatus,
    /// Never empty; the last one is the secondary status.
    pub(crate) transitions: Vec<Transition>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) created: Time,
    pub(crate) modified: Time,
    pub(crate) training_start: Option<Time>,
    /// When it got its final status.
    pub(crate) ended: Option<Time>,
    pub(crate) final_metrics: BTreeMap<String, MetricValue>,
    pub(crate) stop: Option<Stop>,
    /// None while it waits.
    pub(crate) attempt: Option<Attempt>,
    /// What earlier attempts leave behind; none in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<Box<Retry>>,
    /// Whose trial it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trial: Option<Box<Trial>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    pub(crate) at: Time,
}

/// The job on instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) placement: Placement,
    pub(crate) lease_s: u64,
    pub(crate) launched: Time,
    pub(crate) stage: Stage,
    /// By host number - 1.
    pub(crate) instances: Vec<Instance>,
    /// When it failed, paused or was interrupted, if another follows: its instances are only waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Time>,
    /// Its instances are taken away, and its programs have the grace of a stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
    /// They are, since the machine's memory ran short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) evicted: bool,
    /// It is ended to make room for others while its trial rests: what its hosts upload is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) parked: bool,
}

/// What is awaited from the shell for the attempt as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Reports.
    Running,
    /// The stored artifacts.
    Storing,
    /// The release.
    Releasing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Instance {
    /// Has not reported yet.
    Starting,
    Downloading,
    Training,
    /// Its program is over; `seen` is when the server learnt of it.
    Ended {
        end: RankEnd,
        seen: Time,
    },
    /// As before, and its artifacts are here; no end when it was stopped before it had started its program.
    Uploaded,
    Lost {
        reason: String,
        seen: Time,
    },
}

impl Instance {
    /// Nothing runs there any more.
    pub(crate) fn over(&self) -> bool {
        matches!(self, Instance::Ended { .. } | Instance::Uploaded | Instance::Lost { .. })
    }

    /// A program runs there, or is about to.
    pub(crate) fn active(&self) -> bool {
        matches!(self, Instance::Downloading | Instance::Training)
    }
}

impl RankEnd {
    /// Exit code 0.
    pub(crate) fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl TrainingJob {
    pub(crate) fn new(name: &str, uid: &str, spec: TrainingSpec, order: u64, at: Time, message: &str) -> TrainingJob {
        let first = Transition { status: SecondaryStatus::Starting, start: at, end: None, message: message.to_owned() };
        TrainingJob {
            name: name.to_owned(),
            uid: uid.to_owned(),
            order,
            spec,
            status: JobStatus::InProgress,
            transitions: vec![first],
            failure_reason: None,
            created: at,
            modified: at,
            training_start: None,
            ended: None,
            final_metrics: BTreeMap::new(),
            stop: None,
            attempt: None,
            retry: None,
            trial: None,
        }
    }

    pub(crate) fn secondary(&self) -> SecondaryStatus {
        self.transitions.last().expect("a job begins with a transition and loses none").status
    }

    /// What it holds on instances. One that rests frozen holds its memory.
    pub(crate) fn holds(&self, attempt: &Attempt) -> Resources {
        let holds = attempt.placement.holds();
        if self.is_frozen() { Resources { instances: 0, ..holds } } else { holds }
    }

    /// The attempt, if reports of its instances still matter.
    pub(crate) fn running(&self) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|attempt| attempt.stage == Stage::Running)
    }

    /// Changes what is known. Facts about another attempt, or that come too late, change nothing. Returns what is to be done that was not to be done before.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Vec<Action> {
        let before = self.pending_actions();
        if self.absorb(at, fact) {
            self.modified = at;
        }
        let mut actions = self.pending_actions();
        actions.retain(|action| !before.iter().any(|known| is_known(known, action)));
        actions
    }

    /// Whether the fact made sense.
    fn absorb(&mut self, at: Time, fact: &Fact) -> bool {
        match fact {
            Fact::CheckpointSaved { .. } => {
                if let Some(trial) = &mut self.trial {
                    trial.saved = trial.resource;
                }
                false
            }
            Fact::Released { attempt } => self.comes_back(at, attempt.as_deref()),
            Fact::AttemptLaunched { attempt, placement, lease_s, message } => {
                self.waits() && {
                    if let Some(trial) = &mut self.trial {
                        trial.rest = None;
                    }
                    // What an earlier attempt measured comes after all of this one's, whatever the clocks of the two say.
                    self.final_metrics.clear();
                    self.attempt = Some(Attempt {
                        id: attempt.clone(),
                        placement: placement.clone(),
                        lease_s: *lease_s,
                        launched: at,
                        stage: Stage::Running,
                        instances: vec![Instance::Starting; placement.gpus.len()],
                        failed: None,
                        interrupted: false,
                        evicted: false,
                        parked: false,
                    });
                    // It goes on after a rest that nobody has seen.
                    if self.secondary() == SecondaryStatus::Training {
                        self.say(message)
                    } else {
                        self.enter(SecondaryStatus::Starting, at, message)
                    }
                }
            }
            Fact::JobMoved { secondary, message } => {
                self.ended.is_none() && {
                    if let (SecondaryStatus::Starting, Some(attempt)) = (secondary, &mut self.attempt) {
                        attempt.launched = at;
                    }
                    self.enter(*secondary, at, message)
                }
            }
            Fact::InstanceMoved { attempt, host, phase } => {
                let next = match phase {
                    InstancePhase::Downloading => Instance::Downloading,
                    InstancePhase::Training => Instance::Training,
                };
                self.set_instance(attempt, *host, next) && {
                    // After a rest that nobody has seen no status tells of it.
                    let is_unseen = self.secondary() == SecondaryStatus::Training && self.running().is_some_and(|it| it.failed.is_none());
                    if let Some(retry) = self.retry.as_mut().filter(|_| is_unseen) {
                        retry.started.get_or_insert(at);
                    }
                    true
                }
            }
            Fact::RankEnded { attempt, host, end, final_metrics } => {
                self.set_instance(attempt, *host, Instance::Ended { end: end.clone(), seen: at }) && {
                    self.keep_metrics(final_metrics);
                    true
                }
            }
            Fact::InstanceUploaded { attempt, host } => self.set_instance(attempt, *host, Instance::Uploaded),
            Fact::InstanceLost { attempt, host, reason } => {
                self.set_instance(attempt, *host, Instance::Lost { reason: reason.clone(), seen: at })
            }
            Fact::StopRequested { cause, message } => {
                self.status == JobStatus::InProgress && {
                    self.status = JobStatus::Stopping;
                    self.stop = Some(Stop { cause: *cause, at });
                    // What is being uploaded goes on being uploaded.
                    self.secondary() == SecondaryStatus::Uploading || self.enter(SecondaryStatus::Stopping, at, message)
                }
            }
            Fact::UploadsEnded { attempt } => self.set_stage(attempt, Stage::Storing),
            Fact::JobEnded { status, secondary, message, failure_reason } => {
                self.ended.is_none() && {
                    self.enter(*secondary, at, message);
                    if let Some(last) = self.transitions.last_mut() {
                        last.end = Some(at);
                    }
                    self.status = *status;
                    self.failure_reason.clone_from(failure_reason);
                    self.ended = Some(at);
                    true
                }
            }
            Fact::AttemptFailed { attempt, reason, message } => self.fail_attempt(at, attempt, reason, message),
            Fact::AttemptInterrupted { attempt, message } => self.interrupt_attempt(at, attempt, message),
            Fact::AttemptEvicted { attempt, used_bytes, message } => self.evict_attempt(at, attempt, *used_bytes, message),
            Fact::ReleaseOrdered { attempt } => self.set_stage(attempt, Stage::Releasing),
            Fact::ObjectiveReported { attempt, host, resource, value, .. } => {
                let is_current = self.attempt.as_ref().is_some_and(|current| current.id == *attempt);
                if let Some(trial) = self.trial.as_mut().filter(|trial| is_current && trial.resource < *resource) {
                    (trial.host, trial.resource, trial.value) = (Some(*host), *resource, *value);
                }
                false
            }
            Fact::TrialPaused { attempt, frozen, message, stores, unseen } => {
                self.pause(at, attempt.as_deref(), *frozen, message, Leaving { stores: *stores, unseen: *unseen })
            }
            Fact::TrialParked { attempt, message, stores, rested } => {
                let is_frozen = self.trial.as_ref().is_some_and(|trial| trial.is_frozen());
                if let Some(retry) = self.retry.as_mut().filter(|_| is_frozen && *rested) {
                    retry.started = None;
                }
                is_frozen && self.leave(at, attempt, message, Leaving { stores: *stores, unseen: false })
            }
            Fact::TrialResumed { to, message } => self.resume(at, *to, message),
            Fact::TrialRaised { to } => {
                if let Some(trial) = &mut self.trial {
                    trial.to = *to;
                    trial.raised = true;
                }
                false
            }
            Fact::AttemptThawed { attempt, message } => self.thaw(at, attempt, message),
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

    /// The secondary status is what it was, and its message another.
    pub(crate) fn say(&mut self, message: &str) -> bool {
        if let Some(last) = self.transitions.last_mut() {
            message.clone_into(&mut last.message);
        }
        true
    }

    pub(crate) fn enter(&mut self, status: SecondaryStatus, at: Time, message: &str) -> bool {
        if matches!(status, SecondaryStatus::Downloading | SecondaryStatus::Training) {
            self.training_start.get_or_insert(at);
            if let Some(retry) = &mut self.retry {
                retry.started.get_or_insert(at);
            }
        }
        match self.transitions.last_mut() {
            Some(last) if last.status == status => message.clone_into(&mut last.message),
            last => {
                if let Some(last) = last {
                    last.end = Some(at);
                }
                self.transitions.push(Transition { status, start: at, end: None, message: message.to_owned() });
            }
        }
        true
    }

    fn set_stage(&mut self, attempt: &str, stage: Stage) -> bool {
        match &mut self.attempt {
            Some(current) if current.id == attempt && current.stage < stage => {
                current.stage = stage;
                true
            }
            _ => false,
        }
    }

    fn set_instance(&mut self, attempt: &str, host: u32, next: Instance) -> bool {
        let Some(current) = self.attempt.as_mut().filter(|current| current.id == attempt) else { return false };
        let Some(instance) = (host as usize).checked_sub(1).and_then(|index| current.instances.get_mut(index)) else { return false };
        *instance = next;
        true
    }

    /// The latest value of each metric, of all hosts; of two at the same time the one that came first.
    fn keep_metrics(&mut self, metrics: &[MetricValue]) {
        for metric in metrics {
            match self.final_metrics.get_mut(&metric.name) {
                Some(known) if known.at >= metric.at => {}
                Some(known) => known.clone_from(metric),
                None => {
                    self.final_metrics.insert(metric.name.clone(), metric.clone());
                }
            }
        }
        while self.final_metrics.len() > MAX_FINAL_METRICS {
            self.final_metrics.pop_last();
        }
    }

    /// The last value of each metric: of the present attempt, and before them of those that were interrupted.
    pub(crate) fn metrics(&self) -> BTreeMap<String, MetricValue> {
        let mut metrics = self.retry.as_ref().map(|retry| retry.measured.clone()).unwrap_or_default();
        metrics.extend(self.final_metrics.clone());
        while metrics.len() > MAX_FINAL_METRICS {
            metrics.pop_last();
        }
        metrics
    }

    /// What is to be done as things stand; at most one action of each kind.
    pub(crate) fn pending_actions(&self) -> Vec<Action> {
        let Some(attempt) = &self.attempt else { return Vec::new() };
        let (job, id) = (self.name.clone(), attempt.id.clone());
        let hosts = |wanted: fn(&Instance) -> bool| -> Vec<u32> {
            (1u32..).zip(&attempt.instances).filter(|(_, instance)| wanted(instance)).map(|(host, _)| host).collect()
        };
        let stop = |hosts: Vec<u32>, grace_s, reason: &str| {
            let action = Action::StopInstances { attempt: id.clone(), hosts, grace_s, reason: reason.to_owned() };
            if matches!(&action, Action::StopInstances { hosts, .. } if hosts.is_empty()) { vec![] } else { vec![action] }
        };
        match (attempt.stage, self.status) {
            (Stage::Running, JobStatus::InProgress) if attempt.failed.is_some() => {
                let is_paused = self.trial.as_ref().is_some_and(|trial| trial.rest.is_some());
                let failed = self.retry.as_ref().map_or("the attempt failed", |retry| &retry.reason);
                let (grace_s, reason) = match () {
                    () if attempt.evicted => {
                        (self.spec.grace_s.min(EVICTION_GRACE_S), "the machine's memory ran short, and it started after others that run")
                    }
                    () if attempt.interrupted => (self.spec.grace_s, "managed spot training is interrupted"),
                    () if is_paused => (PEER_GRACE_S, "the trial is paused"),
                    () => (PEER_GRACE_S, failed),
                };
                stop(hosts(Instance::active), grace_s, reason)
            }
            (Stage::Running, JobStatus::InProgress) if attempt.instances.contains(&Instance::Starting) => vec![Action::Launch {
                job,
                attempt: id,
                number: self.number_of(attempt),
                placement: attempt.placement.clone(),
                instances: self.spec.instances,
                lease_s: attempt.lease_s,
                trial: self.trial.as_ref().map(|trial| trial.launch()),
            }],
            (Stage::Running, JobStatus::InProgress) => match &self.trial {
                Some(trial) if trial.is_frozen() => vec![Action::Freeze { attempt: id }],
                Some(trial) if trial.raised => vec![Action::GoOn { attempt: id, to: trial.to }],
                _ => Vec::new(),
            },
            (Stage::Running, JobStatus::Stopping) => {
                let reason = match self.stop.as_ref().map(|stop| stop.cause) {
                    Some(StopCause::MaxRuntime) => "the training job reached MaxRuntimeInSeconds",
                    Some(StopCause::MaxWait) => "the training job reached MaxWaitTimeInSeconds",
                    Some(StopCause::Early) => "others are more promising",
                    Some(StopCause::MaxResource) => "the trial reached MaxResource",
                    Some(StopCause::Tuning) => "the tuning job ends",
                    Some(StopCause::User) | None => "the training job is being stopped",
                };
                stop(hosts(|instance| !matches!(instance, Instance::Uploaded | Instance::Lost { .. })), self.spec.grace_s, reason)
            }
            (Stage::Running, JobStatus::Failed) => {
                let reason = self.failure_reason.as_deref().unwrap_or("the training job failed");
                stop(hosts(Instance::active), PEER_GRACE_S, reason)
            }
            (Stage::Running, _) => Vec::new(),
            (Stage::Storing, _) => {
                let number = self.number_of(attempt);
                vec![Action::StoreArtifacts { job, attempt: id, number, hosts: hosts(|instance| *instance == Instance::Uploaded) }]
            }
            (Stage::Releasing, _) => vec![Action::Release { job, attempt: id }],
        }
    }

    /// `waits_for` is what a waiting job waits for as of now.
    pub(crate) fn view(&self, waits_for: Option<PendingReason>) -> JobView {
        let mut transitions = self.transitions.clone();
        if let (Some(reason), Some(last)) = (&waits_for, transitions.last_mut()) {
            last.message = reason.to_string();
        }
        let rests_since = self.trial.as_ref().and_then(|trial| trial.rest.as_ref()).map(|rest| rest.since);
        let mut training_start = self.training_start;
        let training_end = self.ended.filter(|_| training_start.is_some()).map(|ended| rests_since.unwrap_or(ended));
        let seconds = |ms: u64| ms.div_ceil(1000).max(1);
        let whole_ms = training_start.zip(training_end).map(|(start, end)| end.ms_since(start));
        let worked_ms = whole_ms.zip(training_end).map(|(whole, end)| match &self.retry {
            None => whole,
            Some(retry) => retry.spent_ms + retry.started.map_or(0, |start| end.ms_since(start)),
        });
        // Of managed spot training the difference is what interruptions took.
        let ran_ms = worked_ms.filter(|_| self.trial.is_some() && self.spec.max_wait_s.is_none());
        if let (Some(ran), Some(end)) = (ran_ms, training_end) {
            training_start = training_start.max(Some(Time(end.0.saturating_sub(ran))));
        }
        let (training_s, billable_s) = (ran_ms.or(whole_ms).map(seconds), worked_ms.map(seconds));
        JobView {
            status: self.status,
            secondary: self.secondary(),
            transitions,
            failure_reason: self.failure_reason.clone(),
            created: self.created,
            modified: self.modified,
            training_start,
            training_end,
            training_s,
            billable_s,
            ran_ms,
            final_metrics: self.metrics().into_values().collect(),
            pending: waits_for,
            attempt: self.attempt.as_ref().map(|attempt| attempt.id.clone()),
            ended: self.ended.is_some(),
            trial: self.trial.as_ref().map(|trial| trial.view(self.ended.is_none(), self.waits())),
            stop: self.stop.as_ref().map(|stop| stop.cause),
        }
    }
}

/// An action of this kind was to be done already. How far a trial may run is another thing each time.
fn is_known(known: &Action, action: &Action) -> bool {
    match action {
        Action::GoOn { .. } => known == action,
        Action::Launch { .. }
        | Action::StopInstances { .. }
        | Action::StoreArtifacts { .. }
        | Action::Release { .. }
        | Action::Freeze { .. } => std::mem::discriminant(known) == std::mem::discriminant(action),
    }
}
