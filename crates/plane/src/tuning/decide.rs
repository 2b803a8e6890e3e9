//! From requests about tuning jobs, and from the tuner's answers, to facts.

use std::{cmp::Ordering, collections::BTreeMap};

use shoal_tuner::{Ask, Record, Start, TrialId, Verdict};

use crate::{
    Child, Event, Fact, Observation, Pause, Rejection, StopCause, StudyRecord, TrialStart, TuningEnd, TuningSpec,
    TuningStatus,
    decision::Decision,
    gang::instances::{Attempt, Instance},
    limits::MAX_TEXT,
    text::first_characters,
    training::messages,
    tuning::{
        follow::ending,
        job::{RequestKind, TuningJob},
    },
};

impl Decision<'_> {
    pub(crate) fn create_tuning(
        &mut self,
        name: &str,
        uid: &str,
        spec: &TuningSpec,
        name_taken: bool,
    ) -> Result<(), Rejection> {
        if name_taken || self.state.tunings.contains_key(name) {
            return Err(Rejection::TuningNameTaken(name.to_owned()));
        }
        for definition in &spec.definitions {
            self.can_ever_run(&definition.training)?;
        }
        self.tuning_happens(name, Fact::TuningCreated { uid: uid.to_owned(), spec: Box::new(spec.clone()) });
        Ok(())
    }

    pub(crate) fn stop_tuning(&mut self, name: &str, ended: Option<TuningStatus>) -> Result<(), Rejection> {
        let job = self.tuning(name, ended)?;
        if job.status == TuningStatus::InProgress {
            self.events.append(&mut ending(self.state, job, TuningEnd::User, None, self.now));
        }
        Ok(())
    }

    pub(crate) fn change_parallel(
        &mut self,
        name: &str,
        max_parallel: u32,
        ended: Option<TuningStatus>,
    ) -> Result<(), Rejection> {
        let job = self.tuning(name, ended)?;
        if max_parallel == 0 {
            return Err(Rejection::NoParallel);
        }
        if job.status == TuningStatus::InProgress && job.max_parallel != max_parallel {
            self.tuning_happens(name, Fact::ParallelChanged { max_parallel });
        }
        Ok(())
    }

    /// The live tuning job of this name that is not over.
    fn tuning(&self, name: &str, ended: Option<TuningStatus>) -> Result<&TuningJob, Rejection> {
        let live = self.state.tunings.get(name);
        match live.map(|job| job.status).or(ended) {
            None => Err(Rejection::TuningNotFound(name.to_owned())),
            Some(status @ (TuningStatus::Completed | TuningStatus::Failed | TuningStatus::Stopped)) => {
                Err(Rejection::TuningAlreadyEnded(status.name()))
            }
            Some(TuningStatus::InProgress | TuningStatus::Stopping) => {
                live.map(|job| &**job).ok_or_else(|| Rejection::TuningNotFound(name.to_owned()))
            }
        }
    }

    fn tuning_happens(&mut self, name: &str, fact: Fact) {
        self.events.push(Event { at: self.now, name: name.to_owned(), fact });
    }

    /// The tuner has answered. An answer that is not awaited changes nothing.
    pub(crate) fn suggested(
        &mut self,
        name: &str,
        seq: u64,
        records: &[StudyRecord],
        children: &[Child],
        waits: bool,
    ) -> Result<(), Rejection> {
        let Some(job) = self.state.tunings.get(name) else { return Ok(()) };
        if !matches!(job.pending_request(seq), Some(RequestKind::Suggestions { .. })) {
            return Ok(());
        }
        if let Some(child) = children.iter().find(|child| self.state.jobs.contains(&child.name)) {
            return Err(Rejection::NameTaken(child.name.to_string()));
        }
        let asks = records.iter().filter_map(|StudyRecord { definition, record }| match record {
            Record::Asked { answer, .. } => Some((*definition, answer)),
            _ => None,
        });
        let asks: Vec<_> = asks.collect();
        let exhausted = asks.iter().filter(|(_, ask)| **ask == Ask::End).map(|(definition, _)| *definition).collect();
        // A tuner that says nothing would be asked for ever.
        let waits = waits || asks.is_empty();
        self.tuning_happens(name, Fact::Suggested { seq, records: records.to_vec(), exhausted, waits });
        for (definition, ask) in asks {
            match ask {
                Ask::Start(start) => self.start(job, definition, start, children),
                Ask::Resume { trial, to, .. } => self.resume(job, definition, *trial, *to),
                Ask::Wait | Ask::End => {}
            }
        }
        Ok(())
    }

    fn start(&mut self, job: &TuningJob, definition: u32, start: &Start, children: &[Child]) {
        let child = children.iter().find(|child| (child.definition, child.trial) == (definition, start.trial));
        let (Some(child), Some(spec)) = (child, job.spec.definitions.get(definition as usize)) else { return };
        let (trial, to) = (start.trial, start.to);
        let (tuning, origin, checkpoints) = (job.name.clone(), child.origin.clone(), spec.checkpoints);
        let from = start.origin.filter(|_| origin.is_some()).map_or(0, |origin| origin.resource);
        let trial =
            TrialStart { tuning, definition, trial, to, origin, from, checkpoints, max: job.max_resource(definition) };
        let (uid, spec, message) = (child.uid.clone(), spec.training.clone(), messages::CREATED.to_owned());
        let fact = Fact::JobCreated { uid, spec, message, trial: Some(trial) };
        self.events.push(Event { at: self.now, name: child.name.clone().into(), fact });
    }

    fn resume(&mut self, job: &TuningJob, definition: u32, trial: TrialId, to: Option<u32>) {
        let child = job.trials.get(&(definition, trial)).and_then(|name| self.state.jobs.get(name));
        if let Some(child) = child.filter(|child| child.gang.in_progress()) {
            let fact = if child.gang.is_unwanted() {
                Fact::TrialResumed { to, message: messages::RESUMING.to_owned() }
            } else {
                // It was paused in the tuner's mind only.
                Fact::TrialRaised { to }
            };
            self.happens(child, fact);
        }
    }

    /// The tuner has judged what it was told.
    pub(crate) fn judged(&mut self, name: &str, seq: u64, records: &[StudyRecord], converged: bool) {
        let Some(job) = self.state.tunings.get(name) else { return };
        let Some(RequestKind::Judgement { definition, trial, what }) = job.pending_request(seq) else { return };
        self.tuning_happens(
            name,
            Fact::Judged { seq, records: records.to_vec(), converged: converged && job.converged.is_none() },
        );
        let mut verdicts: BTreeMap<(u32, TrialId), Verdict> = BTreeMap::new();
        for StudyRecord { definition, record } in records {
            if let Record::Reported { verdicts: new, .. } | Record::Ended { verdicts: new, .. } = record {
                verdicts.extend(new.iter().map(|(trial, verdict)| ((*definition, *trial), *verdict)));
            }
        }
        // A trial that is judged where it pauses and is not named goes on. It may have come there
        // since an earlier report that is judged only now.
        let reporter = (*definition, *trial);
        let reached = if let Observation::Reported { resource, .. } = what { *resource } else { 0 };
        if !verdicts.contains_key(&reporter) && self.pauses_at(job, reporter, reached) {
            verdicts.insert(reporter, Verdict::Continue { to: None });
        }
        // One that goes on after its last unit has nothing to gain.
        if job.max_resource(*definition).is_some_and(|max| reached > max) {
            verdicts.remove(&reporter);
            self.stop_trial(job, reporter, StopCause::MaxResource);
        }
        for (key, verdict) in verdicts {
            self.takes_verdict(job, key, verdict);
        }
    }

    /// The tuner will never answer: nothing would happen any more.
    pub(crate) fn search_failed(&mut self, name: &str, seq: u64, reason: &str) {
        let Some(job) = self.state.tunings.get(name).filter(|job| job.pending_request(seq).is_some()) else { return };
        let reason = first_characters(&format!("The search for hyperparameters cannot go on: {reason}"), MAX_TEXT);
        self.events.append(&mut ending(self.state, job, TuningEnd::Search, Some(reason), self.now));
    }

    fn pauses_at(&self, job: &TuningJob, key: (u32, TrialId), resource: u32) -> bool {
        let child = job.trials.get(&key).and_then(|name| self.state.jobs.get(name));
        let trial = child.filter(|child| child.gang.rest.is_none()).and_then(|child| child.trial.as_deref());
        trial.is_some_and(|trial| trial.to.is_some_and(|to| resource >= to))
    }

    fn stop_trial(&mut self, job: &TuningJob, key: (u32, TrialId), cause: StopCause) {
        let child = job.trials.get(&key).and_then(|name| self.state.jobs.get(name));
        if let Some(child) = child.filter(|child| child.gang.in_progress()) {
            self.happens(child, child.stop_for(cause, self.now));
        }
    }

    fn takes_verdict(&mut self, job: &TuningJob, key: (u32, TrialId), verdict: Verdict) {
        let child = job.trials.get(&key).and_then(|name| self.state.jobs.get(name));
        let Some((child, trial)) = child.and_then(|child| Some((child, child.trial.as_deref()?))) else { return };
        let gang = &child.gang;
        if !gang.in_progress() {
            return;
        }
        // One whose attempt failed or was interrupted has another one before it.
        let is_over = |attempt: &Attempt| attempt.failed.is_none() && attempt.any(Instance::over);
        match verdict {
            // It may have gone on since the report that the verdict is about: what it has used by
            // now says why it is stopped.
            Verdict::Stop => match job.max_resource(key.0).map(|max| trial.resource.cmp(&max)) {
                // A whole trial saves its model and ends by itself.
                Some(Ordering::Equal) => {
                    if gang.rest.is_none() && trial.to.is_some() {
                        self.happens(child, Fact::TrialRaised { to: None });
                    }
                }
                Some(Ordering::Greater) => self.stop_trial(job, key, StopCause::MaxResource),
                Some(Ordering::Less) | None => self.stop_trial(job, key, StopCause::Early),
            },
            Verdict::Continue { to } if gang.rest.is_none() && trial.to != to => {
                self.happens(child, Fact::TrialRaised { to });
            }
            Verdict::Continue { .. } => {}
            // One whose program is over already comes to its end.
            Verdict::Pause if gang.is_unwanted() || gang.attempt.as_ref().is_some_and(is_over) => {}
            Verdict::Pause => {
                let message = messages::paused(trial.resource);
                let attempt = gang.attempt.as_ref().filter(|attempt| attempt.failed.is_none());
                let has_gpus =
                    attempt.is_some_and(|attempt| attempt.placement.gpus.iter().any(|gpus| !gpus.is_empty()));
                let parks = job.spec.definitions.get(key.0 as usize).is_some_and(|spec| spec.pause == Pause::Park);
                let frozen = gang.may_be_frozen() && !has_gpus && !parks;
                let unseen = gang.may_be_frozen() && parks;
                let attempt = attempt.map(|attempt| attempt.id.clone());
                let stores = attempt.is_some() && !frozen;
                self.happens(child, Fact::TrialPaused { attempt, frozen, message, stores, unseen });
            }
        }
    }
}
