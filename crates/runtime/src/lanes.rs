//! In which order actions are done: one lane per attempt, whose actions run sequentially.
//!
//! - What lacks disk space waits for a timer and holds no thread: a launch checks again every second, artifacts that were written
//!   in vain ever more rarely.
//! - A stop or a release ends a launch that waits, and a release also artifacts that wait; a release cancels a launch that is
//!   preparing. The core requests no launch any more once it has requested either.
//! - Orders to stop are sent to agents that are connected while a launch still runs, and again after it.
//! - An outcome is submitted to the core until its journal has taken it: the action would not be requested again before the
//!   next start.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shoal_plane::{Action, Command};

use crate::{Mono, Now};

/// Delay before an outcome is submitted to the core again.
const COMMIT_RETRY: Duration = Duration::from_secs(1);
/// Between two checks for disk space.
const SPACE_CHECK: Duration = Duration::from_secs(1);
/// Between two reports to the core of a launch that waits; much less than the core waits for a report.
const DELAY_REPORT: Duration = Duration::from_secs(60);
/// How long artifacts wait for disk space; as long as the core waits for their upload.
const ARTIFACTS_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest pause between two writes of artifacts that the disk had no room for.
const MAX_WRITE_PAUSE: Duration = Duration::from_secs(60);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The core requests it.
    Requested(Action),
    /// An action was performed for an attempt.
    Performed {
        /// Attempt id.
        attempt: String,
        /// How it ended.
        outcome: Outcome,
    },
    /// The core was notified of a launch's delay.
    DelayReported {
        /// Attempt id.
        attempt: String,
    },
    /// The core has the command, or is stopping.
    Committed {
        /// Attempt id.
        attempt: String,
    },
    /// The core's journal could not be written.
    CommitFailed {
        /// Attempt id.
        attempt: String,
    },
    /// [`Lanes::deadline`] has passed.
    Timeout,
}

/// How an action ended.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing follows.
    Done,
    /// The core waits for this.
    Commit(Command),
    /// The disk lacks space for it.
    NoSpace {
        /// For people.
        reason: String,
        /// It was found out by writing.
        has_written: bool,
    },
}

/// Whether artifacts are written that may find no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    /// Only if the job is being stopped: the last write failed recently.
    IfStopping,
    /// If there seems to be space, or the job is being stopped.
    IfSpace,
    /// Whatever comes of it: there is no other try.
    Always,
}

/// What the driver does.
#[derive(Debug, PartialEq)]
pub enum Io {
    /// Perform it on a thread; answered by [`Event::Performed`].
    Perform {
        /// What.
        action: Action,
        /// For artifacts.
        write: WritePolicy,
    },
    /// Send the orders to agents that are connected; not answered.
    Order(Action),
    /// Have the launch of this attempt that is performed end early; not answered.
    Cancel {
        /// Attempt id.
        attempt: String,
    },
    /// Log once that an action waits for disk space; not answered.
    LogDelay {
        /// What waits.
        action: Action,
        /// For people.
        reason: String,
    },
    /// Submit that a launch waits for disk space; answered by [`Event::DelayReported`] if the core takes it.
    ReportDelay {
        /// Attempt id.
        attempt: String,
        /// For people.
        reason: String,
    },
    /// Submit an outcome to the core; answered by [`Event::Committed`] or [`Event::CommitFailed`].
    Commit {
        /// Attempt id.
        attempt: String,
        /// What.
        command: Command,
    },
}

#[derive(Debug)]
enum State {
    Idle,
    Performing(Action),
    AwaitingSpace { action: Action, until: Mono },
    Committing(Command),
    AwaitingJournal { command: Command, until: Mono },
}

#[derive(Debug)]
struct Lane {
    state: State,
    /// Requested and not begun.
    queue: VecDeque<Action>,
    /// Of the action that is performed or waits, since it lacked space.
    wait: Option<SpaceWait>,
}

/// An action that lacks disk space.
#[derive(Debug)]
struct SpaceWait {
    since: Mono,
    /// When the core was last notified.
    reported: Option<Mono>,
    write_pause: Duration,
    next_write: Mono,
}

impl SpaceWait {
    fn policy(&self, now: Mono) -> WritePolicy {
        if now.since(self.since) >= ARTIFACTS_TIMEOUT {
            WritePolicy::Always
        } else if now >= self.next_write {
            WritePolicy::IfSpace
        } else {
            WritePolicy::IfStopping
        }
    }
}

/// All attempts with something to do.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<String, Lane>,
}

impl Lanes {
    /// What follows from an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        match event {
            Event::Requested(action) => self.on_requested(action),
            Event::Performed { attempt, outcome } => self.on_performed(&attempt, outcome, now.mono),
            Event::DelayReported { attempt } => {
                if let Some(wait) = self.lanes.get_mut(&attempt).and_then(|lane| lane.wait.as_mut()) {
                    wait.reported = Some(now.mono);
                }
                Vec::new()
            }
            Event::Committed { attempt } => self.on_committed(&attempt),
            Event::CommitFailed { attempt } => {
                if let Some(lane) = self.lanes.get_mut(&attempt) {
                    lane.retry_commit(now.mono);
                }
                Vec::new()
            }
            Event::Timeout => self.lanes.iter_mut().filter_map(|(attempt, lane)| lane.on_timeout(attempt, now.mono)).collect(),
        }
    }

    /// When [`Event::Timeout`] is due.
    pub fn deadline(&self) -> Option<Mono> {
        self.lanes.values().filter_map(Lane::deadline).min()
    }

    /// Panics unless each lane has something to do.
    pub fn check(&self) {
        for (attempt, lane) in &self.lanes {
            assert!(!matches!(lane.state, State::Idle), "the lane of {attempt} is idle and was not removed");
        }
    }

    fn on_requested(&mut self, action: Action) -> Vec<Io> {
        let attempt = action.attempt().to_owned();
        let lane = self.lanes.entry(attempt.clone()).or_insert(Lane { state: State::Idle, queue: VecDeque::new(), wait: None });
        let mut io = Vec::new();
        if matches!(action, Action::StopInstances { .. } | Action::Release { .. }) {
            lane.queue.retain(|queued| !matches!(queued, Action::Launch { .. }));
            match (&lane.state, &action) {
                (State::AwaitingSpace { action: Action::Launch { .. }, .. }, _) | (State::AwaitingSpace { .. }, Action::Release { .. }) => {
                    lane.end_action();
                }
                (State::Performing(Action::Launch { .. }), Action::Release { .. }) => io.push(Io::Cancel { attempt: attempt.clone() }),
                (State::Performing(Action::Launch { .. }), _) => io.push(Io::Order(action.clone())),
                _ => {}
            }
        }
        lane.queue.push_back(action);
        io.extend(self.next(&attempt));
        io
    }

    fn on_performed(&mut self, attempt: &str, outcome: Outcome, now: Mono) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        let action = match std::mem::replace(&mut lane.state, State::Idle) {
            State::Performing(action) => action,
            other => {
                lane.state = other;
                return Vec::new();
            }
        };
        match outcome {
            Outcome::NoSpace { reason, has_written } if !lane.is_obsolete(&action) => lane.await_space(action, reason, has_written, now),
            Outcome::NoSpace { .. } | Outcome::Done => self.end_action(attempt),
            Outcome::Commit(command) => {
                lane.wait = None;
                lane.state = State::Committing(command.clone());
                vec![Io::Commit { attempt: attempt.to_owned(), command }]
            }
        }
    }

    fn on_committed(&mut self, attempt: &str) -> Vec<Io> {
        match self.lanes.get(attempt).map(|lane| &lane.state) {
            Some(State::Committing(_) | State::AwaitingJournal { .. }) => self.end_action(attempt),
            _ => Vec::new(),
        }
    }

    fn end_action(&mut self, attempt: &str) -> Vec<Io> {
        if let Some(lane) = self.lanes.get_mut(attempt) {
            lane.end_action();
        }
        self.next(attempt).into_iter().collect()
    }

    /// Begins the lane's next action, if none is under way. A lane without any is removed.
    fn next(&mut self, attempt: &str) -> Option<Io> {
        let lane = self.lanes.get_mut(attempt)?;
        if !matches!(lane.state, State::Idle) {
            return None;
        }
        let Some(action) = lane.queue.pop_front() else {
            self.lanes.remove(attempt);
            return None;
        };
        lane.state = State::Performing(action.clone());
        Some(Io::Perform { action, write: WritePolicy::IfSpace })
    }
}

impl Lane {
    fn end_action(&mut self) {
        self.state = State::Idle;
        self.wait = None;
    }

    /// Whether another action was requested meanwhile that this one must not delay.
    fn is_obsolete(&self, action: &Action) -> bool {
        let is_launch = matches!(action, Action::Launch { .. });
        let ends =
            |queued: &Action| matches!(queued, Action::Release { .. }) || is_launch && matches!(queued, Action::StopInstances { .. });
        self.queue.iter().any(ends)
    }

    fn await_space(&mut self, action: Action, reason: String, has_written: bool, now: Mono) -> Vec<Io> {
        let attempt = action.attempt().to_owned();
        let mut io = Vec::new();
        let wait = self.wait.get_or_insert_with(|| {
            io.push(Io::LogDelay { action: action.clone(), reason: reason.clone() });
            SpaceWait { since: now, reported: None, write_pause: SPACE_CHECK, next_write: now }
        });
        if has_written {
            // It needed more space than there seemed to be, and others may have lacked what it took meanwhile.
            wait.next_write = now + wait.write_pause;
            wait.write_pause = (2 * wait.write_pause).min(MAX_WRITE_PAUSE);
        }
        if matches!(action, Action::Launch { .. }) && wait.reported.is_none_or(|at| now.since(at) >= DELAY_REPORT) {
            io.push(Io::ReportDelay { attempt, reason });
        }
        self.state = State::AwaitingSpace { action, until: now + SPACE_CHECK };
        io
    }

    fn retry_commit(&mut self, now: Mono) {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Committing(command) => State::AwaitingJournal { command, until: now + COMMIT_RETRY },
            other => other,
        };
    }

    fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::AwaitingSpace { until, .. } | State::AwaitingJournal { until, .. } => Some(*until),
            State::Idle | State::Performing(_) | State::Committing(_) => None,
        }
    }

    fn on_timeout(&mut self, attempt: &str, now: Mono) -> Option<Io> {
        if self.deadline().is_none_or(|until| now < until) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::AwaitingSpace { action, .. } => {
                self.state = State::Performing(action.clone());
                let write = self.wait.as_ref().map_or(WritePolicy::IfSpace, |wait| wait.policy(now));
                Some(Io::Perform { action, write })
            }
            State::AwaitingJournal { command, .. } => {
                self.state = State::Committing(command.clone());
                Some(Io::Commit { attempt: attempt.to_owned(), command })
            }
            other => {
                self.state = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
