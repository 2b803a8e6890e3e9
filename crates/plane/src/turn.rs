//! One turn of the shell's loop: commands that are decided together, and all that leaves the loop when their events are durable.

use std::collections::BTreeMap;

use crate::{Action, Command, Event, Fact, JobView, Rejection, State, Time, apply, decide};

/// What a turn gathers. The shell appends `events` and the rows of `views` in one transaction, and only then does the actions and
/// gives the answers. If the append fails, nothing has happened: the shell folds its state again from what is durable.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// In order.
    pub events: Vec<Event>,
    /// In order.
    pub actions: Vec<Action>,
    /// The last view of each job that changed, by name.
    pub views: BTreeMap<String, JobView>,
}

impl Turn {
    /// Decides a command and folds its events into the state.
    ///
    /// # Errors
    /// The core refuses; nothing happens.
    pub fn take(&mut self, state: &mut State, command: &Command, now: Time) -> Result<(), Rejection> {
        for event in decide(state, command, now)? {
            self.actions.extend(apply(state, &event));
            // Taken now: a later event of this turn may end the job's stay in the hot state. A receipt changes no view.
            if !matches!(event.fact, Fact::CheckpointSaved { .. })
                && let Some(view) = state.view(&event.job)
            {
                self.views.insert(event.job.clone(), view);
            }
            self.events.push(event);
        }
        Ok(())
    }
}
