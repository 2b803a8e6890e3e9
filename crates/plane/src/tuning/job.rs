//! A live tuning job: what is known of it, and how each fact changes that. What follows from it is
//! [`super::follow`]'s.
//!
//! The study is elsewhere: here are its live trials, and what the tuner has been asked and told and
//! has not answered, in one line, so that it sees everything in the order of the facts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use shoal_tuner::{Direction, Outcome};

use crate::{
    BestTrial, Fact, JobName, JobStatus, ObjectiveCounters, Observation, Time, TrainingCounters, TrialEnd,
    TunerRequest, TuningEnd, TuningName, TuningSpec, TuningStatus, TuningView,
    training::{TrainingJob, reason, trial::Trial},
};

/// A trial: definition, number in its study.
pub(crate) type Key = (u32, u32);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TuningJob {
    pub(crate) name: TuningName,
    pub(crate) uid: String,
    pub(crate) spec: TuningSpec,
    pub(crate) max_parallel: u32,
    pub(crate) status: TuningStatus,
    pub(crate) created: Time,
    pub(crate) modified: Time,
    pub(crate) end: Option<TuningEnd>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) ended: Option<Time>,
    /// Number of the next request.
    pub(crate) next_seq: u64,
    /// What the tuner has not answered yet; empty once the tuning job ends.
    #[serde(rename = "wishes")]
    pub(crate) requests: VecDeque<PendingRequest>,
    /// The tuner has nothing to do for an idle place until something happens.
    pub(crate) waits: bool,
    /// Definitions whose searchers have nothing left.
    pub(crate) exhausted: BTreeSet<u32>,
    /// Stored records of its studies.
    pub(crate) records: u64,
    pub(crate) started: u32,
    /// Trials that are not over, by definition and number: their training jobs.
    #[serde(with = "trials")]
    pub(crate) trials: BTreeMap<Key, JobName>,
    /// Those of them that are queued or run.
    pub(crate) active: u32,
    /// Those of them that are queued; no part of a snapshot, as its training jobs say it.
    #[serde(skip)]
    pub(crate) waiting: u32,
    /// Those of them whose training job has ended, in that order.
    pub(crate) over: VecDeque<EndedTrial>,
    /// Training jobs that are not released.
    pub(crate) unreleased: u32,
    pub(crate) ends: TrainingCounters,
    pub(crate) succeeded: u32,
    pub(crate) best: Option<BestTrial>,
    pub(crate) not_improving: u32,
    /// The best value, minimised, when it was last improved by 1 %: many small steps make one
    /// improvement.
    pub(crate) reference: Option<f64>,
    pub(crate) converged: Option<Time>,
    pub(crate) training_s: u64,
    /// Some trial has reported its objective, be it as `nan`.
    pub(crate) has_reported: bool,
    /// Why the last trial failed that did.
    pub(crate) last_failure: Option<String>,
}

/// How a trial counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turnout {
    pub(crate) active: bool,
    pub(crate) waiting: bool,
}

/// Something that the tuner is asked or told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingRequest {
    pub(crate) seq: u64,
    #[serde(flatten)]
    pub(crate) what: RequestKind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "snake_case")]
pub(crate) enum RequestKind {
    Suggestions { wanted: u32, starts: u32 },
    Judgement { definition: u32, trial: u32, what: Observation },
}

/// A trial whose training job has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndedTrial {
    pub(crate) definition: u32,
    pub(crate) trial: u32,
    pub(crate) job: JobName,
    pub(crate) end: TrialEnd,
    pub(crate) outcome: Outcome,
    /// Last value of the first objective.
    pub(crate) value: Option<f64>,
    pub(crate) training_s: u64,
    pub(crate) failure: Option<String>,
}

impl TuningJob {
    pub(crate) fn new(name: &TuningName, uid: &str, spec: TuningSpec, at: Time) -> TuningJob {
        TuningJob {
            name: name.to_owned(),
            uid: uid.to_owned(),
            max_parallel: spec.max_parallel,
            spec,
            status: TuningStatus::InProgress,
            created: at,
            modified: at,
            end: None,
            failure_reason: None,
            ended: None,
            next_seq: 1,
            requests: VecDeque::new(),
            waits: false,
            exhausted: BTreeSet::new(),
            records: 0,
            started: 0,
            trials: BTreeMap::new(),
            active: 0,
            waiting: 0,
            over: VecDeque::new(),
            unreleased: 0,
            ends: TrainingCounters::default(),
            succeeded: 0,
            best: None,
            not_improving: 0,
            reference: None,
            converged: None,
            training_s: 0,
            has_reported: false,
            last_failure: None,
        }
    }

    /// Which way the first objective of a definition is better.
    pub(crate) fn direction(&self, definition: u32) -> Direction {
        let spec = self.spec.definitions.get(definition as usize);
        spec.and_then(|spec| spec.objectives.first()).map_or(Direction::Minimize, |objective| objective.direction)
    }

    /// Units of resource after which a definition's trials are whole.
    pub(crate) fn max_resource(&self, definition: u32) -> Option<u32> {
        self.spec.definitions.get(definition as usize)?.max_resource
    }

    /// Trials that ended.
    pub(crate) fn ended_trials(&self) -> u32 {
        let TrainingCounters { completed, stopped, retryable_error, non_retryable_error, .. } = self.ends;
        completed + stopped + retryable_error + non_retryable_error
    }

    /// When it is to end at the latest.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let limit = self.spec.max_runtime_s.filter(|_| self.status == TuningStatus::InProgress)?;
        Some(self.created.plus_s(limit))
    }

    /// The request of this number, if it is not answered.
    pub(crate) fn pending_request(&self, seq: u64) -> Option<&RequestKind> {
        self.requests.iter().find(|request| request.seq == seq).map(|request| &request.what)
    }

    /// The number of the next request, while the tuner has a say.
    pub(crate) fn next_request(&self) -> Option<u64> {
        (self.status == TuningStatus::InProgress).then_some(self.next_seq)
    }

    fn push_request(&mut self, seq: u64, what: RequestKind) -> TunerRequest {
        let pending = PendingRequest { seq, what };
        let request = self.request(&pending);
        if matches!(pending.what, RequestKind::Judgement { .. }) {
            self.waits = false;
        }
        self.next_seq = self.next_seq.max(seq + 1);
        self.requests.push_back(pending);
        request
    }

    fn request(&self, request: &PendingRequest) -> TunerRequest {
        let (tuning, seq) = (self.name.clone(), request.seq);
        match request.what.clone() {
            RequestKind::Suggestions { wanted, starts } => TunerRequest::Ask { tuning, seq, wanted, starts },
            RequestKind::Judgement { definition, trial, what } => {
                TunerRequest::Tell { tuning, seq, definition, trial, what }
            }
        }
    }

    /// All that the tuner has not answered, in order.
    pub(crate) fn pending_requests(&self) -> impl Iterator<Item = TunerRequest> {
        self.requests.iter().map(|request| self.request(request))
    }

    /// A fact about the tuning job itself. Returns what the tuner is to answer now.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Option<TunerRequest> {
        match fact {
            Fact::SuggestionsWanted { seq, wanted, starts } => {
                return Some(self.push_request(*seq, RequestKind::Suggestions { wanted: *wanted, starts: *starts }));
            }
            Fact::Suggested { seq, records, exhausted, waits } => {
                self.is_answered(*seq);
                self.records += records.len() as u64;
                self.exhausted.extend(exhausted);
                // What was asked after this may change the answer already.
                self.waits = *waits && self.requests.is_empty();
            }
            Fact::Judged { seq, records, converged } => {
                self.is_answered(*seq);
                self.records += records.len() as u64;
                if *converged {
                    self.converged.get_or_insert(at);
                    self.modified = at;
                }
            }
            Fact::TrialEnded {
                definition,
                trial,
                training_job,
                end,
                outcome,
                value,
                is_best,
                not_improving,
                training_s,
                seq,
            } => {
                self.trials.remove(&(*definition, *trial));
                if self.over.front().is_some_and(|over| (over.definition, over.trial) == (*definition, *trial)) {
                    self.last_failure =
                        self.over.pop_front().and_then(|over| over.failure).or(self.last_failure.take());
                }
                self.count(*end, value.is_some());
                if let (true, Some(value)) = (*is_best, *value) {
                    self.best = Some(BestTrial { job: training_job.clone(), definition: *definition, value });
                }
                self.not_improving = *not_improving;
                if let (0, Some(value)) = (*not_improving, *value) {
                    self.reference = Some(self.direction(*definition).minimised(value));
                }
                self.training_s += training_s;
                self.modified = at;
                if let Some(seq) = seq {
                    let what = Observation::Ended { outcome: outcome.clone() };
                    return Some(
                        self.push_request(
                            *seq,
                            RequestKind::Judgement { definition: *definition, trial: *trial, what },
                        ),
                    );
                }
            }
            Fact::ParallelChanged { max_parallel } => {
                self.max_parallel = *max_parallel;
                self.modified = at;
            }
            Fact::TuningStopping { end, failure_reason } => {
                self.status = TuningStatus::Stopping;
                self.end = Some(*end);
                self.failure_reason.clone_from(failure_reason);
                self.requests.clear();
                self.modified = at;
            }
            Fact::TuningEnded { status, end, failure_reason } => {
                self.status = *status;
                self.end = Some(*end);
                self.failure_reason.clone_from(failure_reason);
                self.ended = Some(at);
                self.requests.clear();
                self.modified = at;
            }
            _ => {}
        }
        None
    }

    fn is_answered(&mut self, seq: u64) {
        if let Some(place) = self.requests.iter().position(|request| request.seq == seq) {
            self.requests.remove(place);
        }
    }

    fn count(&mut self, end: TrialEnd, has_value: bool) {
        let counter = match end {
            TrialEnd::Completed => &mut self.ends.completed,
            TrialEnd::Stopped => &mut self.ends.stopped,
            TrialEnd::RetryableError => &mut self.ends.retryable_error,
            TrialEnd::NonRetryableError => &mut self.ends.non_retryable_error,
        };
        *counter += 1;
        self.succeeded += u32::from(has_value);
    }

    /// A trial is started: its training job is there.
    pub(crate) fn add_trial(&mut self, key: Key, job: &JobName, at: Time) {
        self.trials.insert(key, job.to_owned());
        self.started += 1;
        self.active += 1;
        self.waiting += 1;
        self.unreleased += 1;
        self.modified = at;
    }

    /// A fact about a training job of a trial, which knows it already. `before`: how it counted
    /// before.
    pub(crate) fn observe(
        &mut self,
        at: Time,
        fact: &Fact,
        job: &TrainingJob,
        before: Turnout,
    ) -> Option<TunerRequest> {
        let trial = job.trial.as_ref()?;
        let is_active = job.gang.is_active();
        match (before.active, is_active) {
            (true, false) => self.active -= 1,
            (false, true) => self.active += 1,
            _ => {}
        }
        match (before.waiting, job.gang.waits()) {
            (true, false) => self.waiting = self.waiting.saturating_sub(1),
            (false, true) => self.waiting += 1,
            _ => {}
        }
        match fact {
            Fact::ObjectiveReported { resource, value, seq, .. } => {
                self.has_reported = true;
                if let Some(seq) = seq {
                    let what = Observation::Reported { resource: *resource, value: *value };
                    let (definition, trial) = (trial.definition, trial.trial);
                    return Some(self.push_request(*seq, RequestKind::Judgement { definition, trial, what }));
                }
            }
            Fact::JobEnded { .. }
                if job.gang.end.is_some_and(|end| end.at == at)
                    && self.trials.contains_key(&(trial.definition, trial.trial)) =>
            {
                let over = self.ended_trial(job, trial);
                if !self.over.iter().any(|known| (known.definition, known.trial) == (over.definition, over.trial)) {
                    self.over.push_back(over);
                }
            }
            _ => {}
        }
        None
    }

    fn ended_trial(&self, job: &TrainingJob, trial: &Trial) -> EndedTrial {
        let is_astray = trial.is_astray();
        let Trial { definition, trial, value: reported, .. } = *trial;
        let objectives = self.spec.definitions.get(definition as usize).map_or(&[][..], |spec| &spec.objectives);
        let metrics = job.metrics();
        let last = |metric: &str| metrics.get(metric).map(|metric| metric.value);
        // Of a trial that went astray at last an earlier value says nothing.
        let said = objectives.first().filter(|_| !is_astray).and_then(|objective| last(&objective.metric));
        // The program's own last word goes before what was counted; of a trial that was stopped the
        // tuner has seen what was counted.
        let value = if job.status() == JobStatus::Completed { said.or(reported) } else { reported.or(said) };
        let (end, outcome) = match job.status() {
            JobStatus::Completed => {
                let others = objectives.iter().skip(1).map(|objective| last(&objective.metric));
                let values: Option<Vec<f64>> = std::iter::once(value).chain(others).collect();
                (TrialEnd::Completed, values.map_or(Outcome::Failed, |values| Outcome::Completed { values }))
            }
            JobStatus::Failed if job.failure_reason.as_deref().is_some_and(reason::is_internal) => {
                (TrialEnd::RetryableError, Outcome::Failed)
            }
            JobStatus::Failed => (TrialEnd::NonRetryableError, Outcome::Failed),
            JobStatus::Stopped | JobStatus::Stopping | JobStatus::InProgress => (TrialEnd::Stopped, Outcome::Stopped),
        };
        let value = value.filter(|_| matches!(end, TrialEnd::Completed | TrialEnd::Stopped));
        let training_s = job.view(None).training_s.unwrap_or(0);
        EndedTrial {
            definition,
            trial,
            job: job.gang.name.clone(),
            end,
            outcome,
            value,
            training_s,
            failure: job.failure_reason.clone(),
        }
    }

    pub(crate) fn view(&self) -> TuningView {
        let pending = u32::try_from(self.trials.len()).unwrap_or(u32::MAX);
        let ended = self.ended_trials();
        TuningView {
            status: self.status,
            created: self.created,
            modified: self.modified,
            ended: self.ended,
            end: self.end,
            failure_reason: self.failure_reason.clone(),
            max_parallel: self.max_parallel,
            started: self.started,
            active: self.active,
            waiting: self.waiting,
            training: TrainingCounters { in_progress: pending, ..self.ends },
            objective: ObjectiveCounters {
                succeeded: self.succeeded,
                pending,
                failed: ended - self.succeeded.min(ended),
            },
            best: self.best.clone(),
            not_improving: self.not_improving,
            converged: self.converged,
            training_s: self.training_s,
        }
    }
}

/// JSON's keys are strings: a list of definition, trial, training job.
mod trials {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{JobName, Key};

    pub(super) fn serialize<S: Serializer>(trials: &BTreeMap<Key, JobName>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(trials.iter().map(|((definition, trial), job)| (definition, trial, job)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Key, JobName>, D::Error> {
        let trials: Vec<(u32, u32, JobName)> = Deserialize::deserialize(deserializer)?;
        Ok(trials.into_iter().map(|(definition, trial, job)| ((definition, trial), job)).collect())
    }
}
