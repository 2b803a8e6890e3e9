//! Folding an event into the state.

use std::sync::Arc;

use crate::{
    Effects, Event, Fact, State, TuningName,
    training::{TrainingJob, trial::Trial},
    tuning::job::{TuningJob, Turnout},
};

/// Changes the state and returns what is to be done, once the event is durable. Total and
/// deterministic: it never panics, and events of unknown jobs or attempts change nothing.
pub fn apply(state: &mut State, event: &Event) -> Effects {
    state.clock = state.clock.max(event.at);
    if event.fact.is_of_tuning() {
        return apply_to_tuning(state, event);
    }
    if let Fact::JobCreated { uid, spec, message, trial } = &event.fact {
        if !state.jobs.contains(&event.name) {
            let name = event.name.as_str().into();
            let mut job = TrainingJob::new(&name, uid, spec.clone(), state.created, event.at, message);
            if let Some(start) = trial {
                job.trial = Some(Box::new(Trial::new(start)));
                if let Some(tuning) = state.tuning_mut(&start.tuning) {
                    tuning.add_trial((start.definition, start.trial), &name, event.at);
                }
            }
            state.created += 1;
            state.index.add(&job);
            state.jobs.insert(job);
        }
        return Effects::default();
    }
    let Some(job) = state.jobs.get(&event.name) else { return Effects::default() };
    let Some(user) = job.gang.spec.claim.user.clone() else { return apply_to_training(state, event) };
    let before = state.index.claimed.instances_of(&user);
    let effects = apply_to_training(state, event);
    let after = state.index.claimed.instances_of(&user);
    if before != after {
        state.usage.change(&user, before, after, state.clock, state.capacity.quotas.half_life_s);
    }
    effects
}

fn apply_to_training(state: &mut State, event: &Event) -> Effects {
    let Some(job) = state.jobs.get_mut(&event.name) else { return Effects::default() };
    state.index.remove(job);
    if let Fact::Released { attempt } = &event.fact
        && job.gang.end.is_some()
        && job.gang.attempt.as_ref().map(|current| &current.id) == attempt.as_ref()
    {
        let tuning = job.tuning().cloned();
        state.jobs.remove(&event.name);
        if let Some(tuning) = tuning.and_then(|name| state.tuning_mut(&name)) {
            tuning.unreleased = tuning.unreleased.saturating_sub(1);
        }
        return Effects::default();
    }
    if matches!(event.fact, Fact::TrialResumed { .. }) {
        // Who came into the queue while it rested is before it.
        job.gang.order = state.created;
        state.created += 1;
    }
    let before = Turnout { active: job.gang.is_active(), waiting: job.gang.waits() };
    let mut effects = Effects { actions: job.apply(event.at, &event.fact), ..Effects::default() };
    state.index.add(job);
    if let (Fact::InstancesCleared { attempt, hosts, .. }, Some(current)) = (&event.fact, &job.gang.attempt) {
        let left = current.present();
        state.measured.scale(attempt, left, left + hosts.len());
    }
    if let Some(trial) = &job.trial
        && let Some(tuning) = state.tunings.get_mut(&trial.tuning)
    {
        effects.requests.extend(Arc::make_mut(tuning).observe(event.at, &event.fact, job, before));
    }
    effects
}

fn apply_to_tuning(state: &mut State, event: &Event) -> Effects {
    match &event.fact {
        Fact::TuningCreated { uid, spec } => {
            let name = TuningName::from(event.name.as_str());
            let new = || Arc::new(TuningJob::new(&name, uid, (**spec).clone(), event.at));
            state.tunings.entry(name.clone()).or_insert_with(new);
            Effects::default()
        }
        Fact::TuningReleased => {
            state.tunings.remove(event.name.as_str());
            Effects::default()
        }
        fact => {
            let request = state.tuning_mut(&event.name).and_then(|tuning| tuning.apply(event.at, fact));
            Effects { requests: request.into_iter().collect(), ..Effects::default() }
        }
    }
}
