//! One turn of the shell's loop: commands that are decided together, and all that leaves the loop
//! when their events are durable.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use crate::{
    Command, Effects, Event, Fact, JobName, JobView, Rejection, State, StudyRecord, Time, TuningName, TuningView,
    apply, decide, queue, training::TrainingJob, tuning::follow::follow,
};

/// What a turn gathers. The shell appends `events`, `records` and the rows of `views` and `tunings`
/// in one transaction, and only then does the effects and gives the answers. If the append fails,
/// nothing has happened: the shell folds its state again from what is durable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// In order.
    pub events: Vec<Event>,
    /// In order.
    pub effects: Effects,
    /// The last view of each job that changed, by name.
    pub views: BTreeMap<JobName, JobView>,
    /// The last view of each tuning job that changed, by name.
    pub tunings: BTreeMap<TuningName, TuningView>,
    /// New records of studies, in order.
    pub records: Vec<Stored>,
}

/// A record of a study, as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Tuning job's name.
    pub tuning: TuningName,
    /// Place in its list, from 0; over all its studies.
    pub number: u64,
    /// What happened.
    pub record: StudyRecord,
}

impl Turn {
    /// Decides a command and folds its events, and what follows from them, into the state.
    ///
    /// # Errors
    /// The core refuses; nothing happens.
    pub fn take(&mut self, state: &mut State, command: &Command, now: Time) -> Result<(), Rejection> {
        step(state, command, now, &mut |state, event, effects| {
            self.effects.append(effects);
            self.look(state, &event);
            self.events.push(event);
        })
    }

    /// Takes views now: a later event of this turn may end a job's stay in the hot state.
    fn look(&mut self, state: &State, event: &Event) {
        let changes_view = !matches!(event.fact, Fact::CheckpointSaved { .. });
        if let (true, Some(view)) = (changes_view, event.job().and_then(|job| state.view(job))) {
            if let Some(trial) = &view.trial
                && !matches!(
                    event.fact,
                    Fact::ObjectiveReported { .. } | Fact::InstanceMoved { .. } | Fact::RankEnded { .. }
                )
                && let Some(tuning) = state.tuning(&trial.tuning)
            {
                self.tunings.insert(trial.tuning.clone(), tuning);
            }
            self.views.insert(event.name.as_str().into(), view);
        }
        let Some(job) = event.tuning().and_then(|name| state.tunings.get(name)) else { return };
        if !matches!(event.fact, Fact::SuggestionsWanted { .. }) {
            self.tunings.insert(job.name.clone(), job.view());
        }
        if let Fact::Suggested { records, .. } | Fact::Judged { records, .. } = &event.fact {
            let first = job.records - records.len() as u64;
            let stored = (first..).zip(records);
            self.records.extend(stored.map(|(number, record)| Stored {
                tuning: job.name.clone(),
                number,
                record: record.clone(),
            }));
        }
    }
}

/// Decides a command, folds its events into the state, and all that follows from them: for tuning
/// jobs, then for the queue. `each` is told every event once it is folded, with its effects.
///
/// # Errors
/// The core refuses; nothing happens.
pub fn step(
    state: &mut State,
    command: &Command,
    now: Time,
    each: &mut dyn FnMut(&State, Event, Effects),
) -> Result<(), Rejection> {
    if let Command::MemoryMeasured { used, .. } = command {
        state.measure(used);
    }
    let mut events = decide(state, command, now)?;
    // A clock that was set back must not make an end come before its start.
    let now = now.max(state.clock);
    let mut wake = Wake { schedule: *command == Command::Tick, ..Wake::default() };
    if wake.schedule {
        wake.tunings.extend(state.tunings.keys().cloned());
    }
    loop {
        for event in events {
            wake.sees(state, &event);
            let effects = apply(state, &event);
            each(state, event, effects);
        }
        events = wake.next(state, now);
        if events.is_empty() {
            return Ok(());
        }
    }
}

/// What may have something follow.
#[derive(Debug, Default)]
struct Wake {
    tunings: BTreeSet<TuningName>,
    /// The queue or what is free has changed, or may have.
    schedule: bool,
    /// Jobs that came into the queue: new, or for another attempt.
    joined: Vec<JobName>,
}

impl Wake {
    /// Before the event is folded: it may take its job out of the state.
    fn sees(&mut self, state: &State, event: &Event) {
        self.schedule |= event.moves_capacity();
        // From when all its programs run it can give some instances to the head of the queue.
        let may_shrink = |job: &TrainingJob| job.gang.spec.min_instances.is_some();
        self.schedule |=
            matches!(event.fact, Fact::InstanceMoved { .. }) && state.jobs.get(&event.name).is_some_and(may_shrink);
        let tuning = match &event.fact {
            Fact::JobCreated { trial, .. } => trial.as_ref().map(|trial| &*trial.tuning),
            fact if fact.is_of_tuning() => Some(event.name.as_str()),
            _ => state.jobs.get(&event.name).and_then(TrainingJob::tuning).map(Deref::deref),
        };
        if let Some(tuning) = tuning
            && !self.tunings.contains(tuning)
        {
            self.tunings.insert(tuning.into());
        }
        if matches!(event.fact, Fact::JobCreated { .. } | Fact::Released { .. } | Fact::TrialResumed { .. }) {
            self.joined.push(event.name.as_str().into());
        }
    }

    fn next(&mut self, state: &State, now: Time) -> Vec<Event> {
        while let Some(tuning) = self.tunings.first() {
            let events = follow(state, tuning, now);
            if !events.is_empty() {
                return events;
            }
            self.tunings.pop_first();
        }
        if std::mem::take(&mut self.schedule) {
            let events = queue::schedule(state, now);
            if !events.is_empty() {
                return events;
            }
        }
        queue::pending(state, std::mem::take(&mut self.joined), now)
    }
}
