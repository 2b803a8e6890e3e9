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

use std::collections::{BTreeMap, VecDeque};

use shoal_link::Order;
use shoal_plane::{Action, AttemptId, Command, Host};

pub use messages::{Event, Io};

use crate::{
    Mono, Now,
    steps::{Outcome, Step, WritePolicy},
    warm_pool::{self, Grant},
};

use lane::{Lane, Phase, State};
use leaving::{Exit, Next};

mod lane;
mod launching;
mod leaving;
mod messages;
mod space_wait;

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
                    wait.on_reported(now.mono);
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
            Event::Retained { attempt } => self.on_retained(&attempt, true),
            Event::NotRetained { attempt } => self.on_retained(&attempt, false),
            Event::AgentEnded { attempt } => {
                let exit = self.lanes.get_mut(&attempt).and_then(Lane::exit);
                let is_due = exit.is_some_and(Exit::on_agent_ended);
                is_due.then_some(Io::CheckExit { attempt }).into_iter().collect()
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
                (State::Performing(Action::Launch { .. }, _) | State::AwaitingInstance(_), Action::Release { .. }) => {
                    io.push(Io::Cancel { attempt: attempt.clone() });
                }
                (State::Performing(Action::Launch { .. }, _) | State::AwaitingInstance(_), _) => {
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
        let (action, phase) = match std::mem::replace(&mut lane.state, State::Idle) {
            State::Performing(action, phase) => (action, phase),
            other => {
                lane.state = other;
                return Vec::new();
            }
        };
        match (action, outcome) {
            (action, Outcome::Delayed { reason, has_written }) if !lane.is_obsolete(&action) => {
                lane.await_space(action, reason, has_written, now)
            }
            (action @ Action::Launch { .. }, outcome) => self.on_launch(attempt, action, outcome),
            (action @ Action::Release { .. }, outcome) => self.on_release(attempt, action, phase, outcome, now),
            (Action::ClearInstances { hosts, .. }, Outcome::Done) => {
                lane.commit(attempt, Command::InstancesCleared { attempt: attempt.clone(), hosts })
            }
            (Action::StoreArtifacts { .. }, Outcome::Done) => {
                lane.commit(attempt, Command::ArtifactsStored { attempt: attempt.clone() })
            }
            (Action::StoreArtifacts { .. }, Outcome::Failed(reason)) => {
                lane.commit(attempt, Command::ArtifactsFailed { attempt: attempt.clone(), reason })
            }
            _ => self.end_action(attempt),
        }
    }

    fn on_launch(&mut self, attempt: &AttemptId, action: Action, outcome: Outcome) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        if lane.has_release() {
            return self.end_action(attempt);
        }
        match outcome {
            Outcome::Found(known) => {
                let steps = launching::after_found(&action, &known);
                vec![lane.perform(action, Phase::Any, steps)]
            }
            Outcome::Prepared { reuse_key: None } => lane.start(action, None),
            Outcome::Prepared { reuse_key: Some(key) } => {
                lane.state = State::AwaitingInstance(action);
                vec![Io::Pool(warm_pool::Event::Requested { attempt: attempt.clone(), key })]
            }
            Outcome::Failed(reason) => lane.commit(attempt, Command::LaunchFailed { attempt: attempt.clone(), reason }),
            _ => self.end_action(attempt),
        }
    }

    fn on_release(
        &mut self,
        attempt: &AttemptId,
        action: Action,
        phase: Phase,
        outcome: Outcome,
        now: Mono,
    ) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        match (phase, outcome) {
            (Phase::Any, Outcome::Instance(instance)) => lane.release(action, *instance),
            (Phase::Leaving(left), Outcome::Done) => {
                lane.state = State::Leaving(action, left, Exit::begun(now));
                vec![Io::CheckExit { attempt: attempt.clone() }]
            }
            (Phase::Clearing, Outcome::Done) => lane.commit(attempt, Command::Released { attempt: attempt.clone() }),
            _ => {
                let mut io = self.end_action(attempt);
                io.push(Io::Pool(warm_pool::Event::Left { attempt: attempt.clone() }));
                io
            }
        }
    }

    fn on_instance(&mut self, attempt: &AttemptId, grant: Option<Grant>) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        match std::mem::replace(&mut lane.state, State::Idle) {
            State::AwaitingInstance(_) if grant.is_none() && lane.has_release() => self.end_action(attempt),
            State::AwaitingInstance(action) => lane.start(action, grant),
            other => {
                lane.state = other;
                Vec::new()
            }
        }
    }

    fn on_retained(&mut self, attempt: &AttemptId, is_retained: bool) -> Vec<Io> {
        let Some(lane) = self.lanes.get_mut(attempt) else { return Vec::new() };
        match std::mem::replace(&mut lane.state, State::Idle) {
            // The instance is offered first: a launch that waits for it must not wait for this.
            State::Retaining(action, _) if is_retained => {
                vec![lane.perform(action, Phase::Clearing, vec![Step::ForgetReports])]
            }
            State::Retaining(action, left) => vec![lane.perform(action, Phase::Leaving(left), vec![Step::Leave])],
            other => {
                lane.state = other;
                Vec::new()
            }
        }
    }

    fn on_exit_checked(&mut self, attempt: AttemptId, is_running: bool, is_mirroring: bool, now: Mono) -> Option<Io> {
        let lane = self.lanes.get_mut(&attempt)?;
        match lane.exit()?.on_checked(is_running, is_mirroring, now) {
            Next::Wait => None,
            Next::CheckAgain => Some(Io::CheckExit { attempt }),
            Next::Clear => match std::mem::replace(&mut lane.state, State::Idle) {
                State::Leaving(action, left, _) => Some(lane.clear(action, &left)),
                _ => None,
            },
        }
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
        Some(lane.begin(action, WritePolicy::IfSpace))
    }
}

/// The orders to hosts that an action consists of, of an attempt with this number of hosts.
#[must_use]
pub fn orders(action: &Action, instances: u32) -> Vec<(Host, Order)> {
    let all = |order: Order| Host::all(instances).map(|host| (host, order.clone())).collect();
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
            let order = Order::Members { hosts: hosts.iter().map(|host| host.0).collect() };
            hosts.iter().map(|host| (*host, order.clone())).collect()
        }
        Action::Launch { .. }
        | Action::ClearInstances { .. }
        | Action::StoreArtifacts { .. }
        | Action::Release { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
