//! In which order actions are done: one lane per attempt, whose actions run sequentially. Pure: the driver performs what is
//! asked for and reports back.
//!
//! - A launch that lacks room waits for a timer, and holds no thread.
//! - A stop or a release ends a launch that waits, and a release cancels one that is preparing: the core asks for no launch any
//!   more once it has asked for either.
//! - Orders to stop are given to agents that are there already while a launch still runs, and again after it.

use std::collections::{HashMap, VecDeque};

use shoal_plane::Action;

/// What the driver reports.
#[derive(Debug)]
pub(super) enum Event<D> {
    /// The core asks for it.
    Asked(Action),
    /// What was performed for an attempt is done.
    Done { attempt: String },
    /// A launch was not performed for want of room. `delay` is the driver's, for the next try.
    NoRoom { launch: Action, delay: D },
    /// The wait of this number is over.
    Due { attempt: String, wait: u64 },
}

/// What the driver does.
#[derive(Debug, PartialEq)]
pub(super) enum Io<D> {
    /// Perform it on a thread; answered by `Done` or `NoRoom`.
    Perform(Action, D),
    /// Give the orders at once to agents that are there; not answered.
    Order(Action),
    /// Have the launch of this attempt that is performed end early.
    Cancel { attempt: String },
    /// Wait until there may be room; answered by `Due`.
    Wait { attempt: String, wait: u64 },
}

#[derive(Debug)]
enum State<D> {
    Idle,
    Performing {
        is_launch: bool,
    },
    /// Its launch is the first of the queue.
    Waiting {
        delay: D,
        wait: u64,
    },
}

#[derive(Debug)]
struct Lane<D> {
    state: State<D>,
    /// Asked for and not begun, or to be tried again.
    queue: VecDeque<Action>,
}

/// All attempts with something to do.
#[derive(Debug)]
pub(super) struct Lanes<D> {
    lanes: HashMap<String, Lane<D>>,
    waits: u64,
}

impl<D> Default for Lanes<D> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), waits: 0 }
    }
}

impl<D: Default> Lanes<D> {
    pub(super) fn handle(&mut self, event: Event<D>) -> Vec<Io<D>> {
        match event {
            Event::Asked(action) => self.on_asked(action),
            Event::Done { attempt } => self.on_done(&attempt),
            Event::NoRoom { launch, delay } => self.on_no_room(launch, delay),
            Event::Due { attempt, wait } => self.on_due(&attempt, wait),
        }
    }

    fn on_asked(&mut self, action: Action) -> Vec<Io<D>> {
        let attempt = action.attempt().to_owned();
        let lane = self.lanes.entry(attempt.clone()).or_insert(Lane { state: State::Idle, queue: VecDeque::new() });
        let mut io = Vec::new();
        match &action {
            Action::StopInstances { .. } | Action::Release { .. } => {
                lane.queue.retain(|queued| !matches!(queued, Action::Launch { .. }));
                match (&lane.state, &action) {
                    (State::Waiting { .. }, _) => lane.state = State::Idle,
                    (State::Performing { is_launch: true }, Action::Release { .. }) => io.push(Io::Cancel { attempt: attempt.clone() }),
                    (State::Performing { is_launch: true }, _) => io.push(Io::Order(action.clone())),
                    (State::Performing { is_launch: false } | State::Idle, _) => {}
                }
            }
            Action::Launch { .. } | Action::StoreArtifacts { .. } | Action::Freeze { .. } | Action::Resume { .. } => {}
        }
        lane.queue.push_back(action);
        io.extend(self.next(&attempt));
        io
    }

    fn on_done(&mut self, attempt: &str) -> Vec<Io<D>> {
        if let Some(lane) = self.lanes.get_mut(attempt) {
            lane.state = State::Idle;
        }
        self.next(attempt).into_iter().collect()
    }

    fn on_no_room(&mut self, launch: Action, delay: D) -> Vec<Io<D>> {
        let attempt = launch.attempt().to_owned();
        let Some(lane) = self.lanes.get_mut(&attempt) else { return Vec::new() };
        let is_over = lane.queue.iter().any(|queued| matches!(queued, Action::StopInstances { .. } | Action::Release { .. }));
        if is_over {
            return self.on_done(&attempt);
        }
        self.waits += 1;
        let wait = self.waits;
        lane.queue.push_front(launch);
        lane.state = State::Waiting { delay, wait };
        vec![Io::Wait { attempt, wait }]
    }

    fn on_due(&mut self, attempt: &str, wait: u64) -> Vec<Io<D>> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        // Another wait may have been cut short.
        match std::mem::replace(&mut lane.state, State::Performing { is_launch: true }) {
            State::Waiting { delay, wait: of } if of == wait => {
                lane.queue.pop_front().map(|launch| Io::Perform(launch, delay)).into_iter().collect()
            }
            other => {
                lane.state = other;
                Vec::new()
            }
        }
    }

    /// Begins the lane's next action, if none is under way. A lane without any is forgotten.
    fn next(&mut self, attempt: &str) -> Option<Io<D>> {
        let lane = self.lanes.get_mut(attempt)?;
        if !matches!(lane.state, State::Idle) {
            return None;
        }
        let Some(action) = lane.queue.pop_front() else {
            self.lanes.remove(attempt);
            return None;
        };
        lane.state = State::Performing { is_launch: matches!(action, Action::Launch { .. }) };
        Some(Io::Perform(action, D::default()))
    }
}

#[cfg(test)]
mod tests;
