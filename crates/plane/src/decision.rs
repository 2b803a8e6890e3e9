//! What a decision gathers: facts, and what follows from each for the job that it is about.

use crate::{Event, Fact, State, Time, training::TrainingJob};

/// Events as they come.
pub(crate) struct Decision<'a> {
    pub(crate) state: &'a State,
    pub(crate) now: Time,
    pub(crate) events: Vec<Event>,
}

impl<'a> Decision<'a> {
    pub(crate) fn new(state: &'a State, now: Time) -> Self {
        Self { state, now, events: Vec::new() }
    }

    /// The fact and all that follows from it for this job.
    pub(crate) fn happens(&mut self, job: &TrainingJob, fact: Fact) {
        let mut job = job.clone();
        let is_back = self.record(&mut job, fact);
        if !is_back {
            self.follow(job);
        }
    }

    pub(crate) fn follow(&mut self, mut job: TrainingJob) {
        while let Some(fact) = job.consequence(self.now) {
            if self.record(&mut job, fact) {
                return;
            }
        }
    }

    /// Whether the job has left its instances, or the hot state.
    pub(crate) fn record(&mut self, job: &mut TrainingJob, fact: Fact) -> bool {
        job.apply(self.now, &fact);
        let is_released = matches!(fact, Fact::Released { .. });
        self.events.push(Event { at: self.now, name: job.gang.name.clone().into(), fact });
        is_released
    }
}
