//! Folding an event into the state.

use crate::{Action, Event, Fact, State, training_job::TrainingJob};

/// Changes the state and returns what is to be done, once the event is durable. Total and deterministic: it never panics, and events of unknown
/// jobs or attempts change nothing.
pub fn apply(state: &mut State, event: &Event) -> Vec<Action> {
    state.clock = state.clock.max(event.at);
    if let Fact::JobCreated { uid, spec, message } = &event.fact {
        if !state.jobs.contains(&event.job) {
            let job = TrainingJob::new(&event.job, uid, spec.clone(), state.created, event.at, message);
            state.created += 1;
            state.index.add(&job);
            state.jobs.insert(job);
        }
        return Vec::new();
    }
    let Some(job) = state.jobs.get_mut(&event.job) else { return Vec::new() };
    state.index.remove(job);
    if let Fact::Released { attempt } = &event.fact
        && job.ended.is_some()
        && job.attempt.as_ref().map(|current| &current.id) == attempt.as_ref()
    {
        state.jobs.remove(&event.job);
        return Vec::new();
    }
    let actions = job.apply(event.at, &event.fact);
    state.index.add(job);
    actions
}
