//! The order of actions: one lane per attempt, whose actions run sequentially.
//!
//! - What lacks disk space waits for a timer and holds no thread: a launch checks again every
//!   second; artifacts that found none are written again after pauses that double.
//! - A stop or a release ends a launch that waits, and a release also artifacts that wait; a
//!   release cancels a launch that is preparing. The core requests no launch any more once it has
//!   requested either.
//! - Instances of an attempt that runs which cannot be added or removed yet hold up nothing of the
//!   others.
//! - Orders to stop are sent to agents that are connected while a launch still runs, and again
//!   after it.
//! - A launch is prepared, then gets a warm instance or starts a new one. A release has its
//!   instance retained, or waits for a moment until the agents have exited, and removes what is
//!   left.
//! - An outcome is submitted to the core until its journal has taken it: the action would not be
//!   requested again before the next start.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shoal_link::Order;
use shoal_plane::{Action, AttemptId, Command};

pub use messages::{Event, Io, Outcome, Step, WritePolicy};

use crate::{
    Mono, Now,
    warm_pool::{self, Grant},
};

mod messages;

/// Delay before an outcome is submitted to the core again.
const COMMIT_RETRY: Duration = Duration::from_secs(1);
/// Between two checks for disk space.
const SPACE_CHECK: Duration = Duration::from_secs(1);
/// Between two reports to the core of a launch that waits; much less than the core waits for a
/// report.
const DELAY_REPORT: Duration = Duration::from_secs(60);
/// How long artifacts wait for disk space; as long as the core waits for their upload.
const ARTIFACTS_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest pause between two writes of artifacts that the disk had no room for.
const MAX_WRITE_PAUSE: Duration = Duration::from_secs(60);
/// How long released agents have to exit by themselves.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before the second check whether they have; it doubles up to the longest one.
const EXIT_CHECK: Duration = Duration::from_millis(5);
const MAX_EXIT_CHECK: Duration = Duration::from_millis(250);

#[derive(Debug)]
enum State {
    Idle,
    Performing(Action),
    AwaitingSpace {
        action: Action,
        until: Mono,
    },
    Committing(Command),
    AwaitingJournal {
        command: Command,
        until: Mono,
    },
    /// The warm pool looks for an instance.
    AwaitingInstance(Action),
    /// The warm pool retains the instance.
    Retaining(Action),
    /// Agents exit.
    Leaving(Action, Exit),
}

#[derive(Debug)]
struct Exit {
    /// Agents that still run then are stopped.
    until: Mono,
    /// Next check; none while an answer is awaited.
    check: Option<Mono>,
    pause: Duration,
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
    lanes: BTreeMap<AttemptId, Lane>,
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
            Event::Granted { attempt, grant } => self.on_instance(&attempt, Some(grant)),
            Event::Declined { attempt } => self.on_instance(&attempt, None),
            Event::Retained { attempt } => self.on_retained(&attempt, Step::Forget),
            Event::NotRetained { attempt } => self.on_retained(&attempt, Step::Leave),
            Event::Disconnected { attempt } => {
                let exit = self.lanes.get_mut(&attempt).and_then(Lane::exit);
                let check = exit.and_then(|exit| exit.check.take());
                check.map(|_| Io::CheckExit { attempt }).into_iter().collect()
            }
            Event::ExitChecked { attempt, is_running, is_mirroring } => {
                self.on_exit_checked(attempt, is_running, is_mirroring, now.mono).into_iter().collect()
            }
            Event::Timeout => {
                self.lanes.iter_mut().filter_map(|(attempt, lane)| lane.on_timeout(attempt, now.mono)).collect()
            }
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
        let lane = self.lanes.entry(attempt.clone()).or_insert(Lane {
            state: State::Idle,
            queue: VecDeque::new(),
            wait: None,
        });
        let mut io = Vec::new();
        if matches!(action, Action::StopInstances { .. } | Action::Release { .. }) {
            lane.queue.retain(|queued| !matches!(queued, Action::Launch { .. }));
            match (&lane.state, &action) {
                (State::AwaitingSpace { action: Action::Launch { .. }, .. }, _)
                | (State::AwaitingSpace { .. }, Action::Release { .. }) => {
                    lane.end_action();
                }
                (State::Performing(Action::Launch { .. }) | State::AwaitingInstance(_), Action::Release { .. }) => {
                    io.push(Io::Cancel { attempt: attempt.clone() });
                }
                (State::Performing(Action::Launch { .. }) | State::AwaitingInstance(_), _) => {
                    io.push(Io::Order(action.clone()));
                }
                _ => {}
            }
        }
        let delayed = lane.make_way(&action);
        if matches!(action, Action::Release { .. }) {
            // Even if the lane is busy: a launch of another attempt may wait for the instance.
            io.push(Io::Pool(warm_pool::Event::Releasing { attempt: attempt.clone() }));
        }
        lane.queue.push_back(action);
        lane.queue.extend(delayed);
        io.extend(self.next(&attempt));
        io
    }

    fn on_performed(&mut self, attempt: &AttemptId, outcome: Outcome, now: Mono) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        let action = match std::mem::replace(&mut lane.state, State::Idle) {
            State::Performing(action) => action,
            other => {
                lane.state = other;
                return Vec::new();
            }
        };
        let is_release = matches!(action, Action::Release { .. });
        let mut io = match outcome {
            Outcome::Prepared { .. } if lane.has_release() => self.end_action(attempt),
            Outcome::Prepared { reuse_key: None } => {
                lane.state = State::Performing(action);
                cold_start(attempt)
            }
            Outcome::Prepared { reuse_key: Some(key) } => {
                lane.state = State::AwaitingInstance(action);
                vec![Io::Pool(warm_pool::Event::Requested { attempt: attempt.clone(), key })]
            }
            Outcome::Retain(retention) => {
                lane.state = State::Retaining(action);
                return vec![Io::Pool(warm_pool::Event::Retain { attempt: attempt.clone(), retention })];
            }
            Outcome::Leaving => {
                lane.state = State::Leaving(
                    action,
                    Exit { until: now + EXIT_TIMEOUT, check: Some(now + EXIT_CHECK), pause: EXIT_CHECK },
                );
                Vec::new()
            }
            Outcome::NoSpace { reason, has_written } if !lane.is_obsolete(&action) => {
                lane.await_space(action, reason, has_written, now)
            }
            Outcome::NoSpace { .. } | Outcome::Done => self.end_action(attempt),
            Outcome::Commit(command) => {
                lane.wait = None;
                lane.state = State::Committing(command.clone());
                vec![Io::Commit { attempt: attempt.clone(), command }]
            }
        };
        if is_release {
            io.push(Io::Pool(warm_pool::Event::Left { attempt: attempt.clone() }));
        }
        io
    }

    fn on_instance(&mut self, attempt: &AttemptId, grant: Option<Grant>) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        match std::mem::replace(&mut lane.state, State::Idle) {
            State::AwaitingInstance(_) if grant.is_none() && lane.has_release() => return self.end_action(attempt),
            State::AwaitingInstance(action) => lane.state = State::Performing(action),
            other => {
                lane.state = other;
                return Vec::new();
            }
        }
        if grant.is_none() {
            cold_start(attempt)
        } else {
            vec![Io::Continue { attempt: attempt.clone(), step: Step::Start(grant) }]
        }
    }

    fn on_retained(&mut self, attempt: &AttemptId, step: Step) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        match std::mem::replace(&mut lane.state, State::Idle) {
            State::Retaining(action) => {
                lane.state = State::Performing(action);
                vec![Io::Continue { attempt: attempt.clone(), step }]
            }
            other => {
                lane.state = other;
                Vec::new()
            }
        }
    }

    fn on_exit_checked(&mut self, attempt: AttemptId, is_running: bool, is_mirroring: bool, now: Mono) -> Option<Io> {
        let lane = self.lanes.get_mut(&attempt)?;
        let exit = lane.exit().filter(|exit| exit.check.is_none())?;
        if is_running && (now < exit.until || is_mirroring) {
            let next = now + exit.pause;
            exit.check = Some(if now < exit.until { next.min(exit.until) } else { next });
            exit.pause = (2 * exit.pause).min(MAX_EXIT_CHECK);
            return None;
        }
        if let State::Leaving(action, _) = std::mem::replace(&mut lane.state, State::Idle) {
            lane.state = State::Performing(action);
        }
        Some(Io::Continue { attempt, step: Step::Clear })
    }

    fn on_committed(&mut self, attempt: &AttemptId) -> Vec<Io> {
        match self.lanes.get(attempt).map(|lane| &lane.state) {
            Some(State::Committing(_) | State::AwaitingJournal { .. }) => self.end_action(attempt),
            _ => Vec::new(),
        }
    }

    fn end_action(&mut self, attempt: &AttemptId) -> Vec<Io> {
        if let Some(lane) = self.lanes.get_mut(attempt) {
            lane.end_action();
        }
        self.next(attempt).into_iter().collect()
    }

    /// Begins the lane's next action, if none is under way. A lane without any is removed.
    fn next(&mut self, attempt: &AttemptId) -> Option<Io> {
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

/// The orders to hosts that an action consists of, of an attempt with this number of hosts.
#[must_use]
pub fn orders(action: &Action, instances: u32) -> Vec<(u32, Order)> {
    let all = |order: Order| (1..=instances).map(|host| (host, order.clone())).collect();
    match action {
        Action::StopInstances { hosts, grace_s, reason, .. } => {
            hosts.iter().map(|host| (*host, Order::Stop { grace_s: *grace_s, reason: reason.clone() })).collect()
        }
        Action::Freeze { .. } => all(Order::Freeze),
        Action::Resume { until, .. } => all(Order::Thaw { until: until.map(u64::from) }),
        Action::InterruptInstances { hosts, notice_s, grace_s, reason, .. } => {
            let order = Order::Leave { notice_s: *notice_s, grace_s: *grace_s, reason: reason.clone() };
            hosts.iter().map(|host| (*host, order.clone())).collect()
        }
        Action::SetMembers { hosts, .. } => {
            hosts.iter().map(|host| (*host, Order::Members { hosts: hosts.clone() })).collect()
        }
        Action::Launch { .. }
        | Action::ClearInstances { .. }
        | Action::StoreArtifacts { .. }
        | Action::Release { .. } => Vec::new(),
    }
}

/// Starts a new instance; warm ones that only save time make room for it.
fn cold_start(attempt: &AttemptId) -> Vec<Io> {
    vec![Io::Continue { attempt: attempt.clone(), step: Step::Start(None) }, Io::Pool(warm_pool::Event::CapacityNeeded)]
}

impl Lane {
    fn exit(&mut self) -> Option<&mut Exit> {
        match &mut self.state {
            State::Leaving(_, exit) => Some(exit),
            _ => None,
        }
    }

    /// An action that waits to add or to remove instances beside others that run makes way for this
    /// one. Returns what is tried again behind it.
    fn make_way(&mut self, action: &Action) -> Option<Action> {
        let is_withdrawn = |host: &u32| match action {
            Action::ClearInstances { hosts, .. } => hosts.contains(host),
            // What is to be added has no part in the artifacts, and what is to be removed is left
            // to the release.
            Action::StoreArtifacts { .. } => true,
            _ => false,
        };
        let is_left = |queued: &mut Action| match queued {
            Action::Launch { joins: true, hosts, .. } => {
                hosts.retain(|host| !is_withdrawn(host));
                !hosts.is_empty()
            }
            Action::ClearInstances { hosts, .. } => !hosts.iter().all(is_withdrawn),
            _ => true,
        };
        self.queue.retain_mut(is_left);
        let State::AwaitingSpace {
            action: waiting @ (Action::Launch { joins: true, .. } | Action::ClearInstances { .. }),
            ..
        } = &mut self.state
        else {
            return None;
        };
        let delayed = is_left(waiting).then(|| waiting.clone());
        self.end_action();
        delayed
    }

    fn has_release(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued, Action::Release { .. }))
    }

    fn end_action(&mut self) {
        self.state = State::Idle;
        self.wait = None;
    }

    /// Whether another action was requested meanwhile that this one must not delay.
    fn is_obsolete(&self, action: &Action) -> bool {
        let is_launch = matches!(action, Action::Launch { .. });
        let ends = |queued: &Action| {
            matches!(queued, Action::Release { .. }) || is_launch && matches!(queued, Action::StopInstances { .. })
        };
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
            // It needed more space than there seemed to be, and others may have lacked what it took
            // meanwhile.
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
            State::Leaving(_, exit) => exit.check,
            State::Idle
            | State::Performing(_)
            | State::Committing(_)
            | State::AwaitingInstance(_)
            | State::Retaining(_) => None,
        }
    }

    fn on_timeout(&mut self, attempt: &AttemptId, now: Mono) -> Option<Io> {
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
                Some(Io::Commit { attempt: attempt.clone(), command })
            }
            State::Leaving(action, exit) => {
                self.state = State::Leaving(action, Exit { check: None, ..exit });
                Some(Io::CheckExit { attempt: attempt.clone() })
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
