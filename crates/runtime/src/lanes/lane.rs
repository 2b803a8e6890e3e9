//! The actions of one attempt: which one is performed, what it waits for, and what makes way.

use std::{collections::VecDeque, time::Duration};

use shoal_plane::{Action, AttemptId, Command, Host};

use super::{
    launching,
    leaving::{Exit, Left},
    messages::Io,
    space_wait::{SPACE_CHECK, SpaceWait},
};
use crate::{
    Mono,
    steps::{self, Instance, Step, WritePolicy},
    warm_pool::{self, Grant},
};

/// Delay before an outcome is submitted to the core again.
const COMMIT_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum State {
    Idle,
    Performing(Action, Phase),
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
    Retaining(Action, Left),
    /// Agents exit.
    Leaving(Action, Left, Exit),
}

/// Which steps of an action are performed.
#[derive(Debug)]
pub(super) enum Phase {
    /// All but those below.
    Any,
    /// Of a release: agents are ordered to exit.
    Leaving(Left),
    /// Of a release: the last ones.
    Clearing,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: State,
    /// Requested and not begun.
    pub(super) queue: VecDeque<Action>,
    /// Of the action that is performed or waits, since it lacked space.
    pub(super) wait: Option<SpaceWait>,
}

/// The steps by which an action begins.
pub(super) fn first(action: &Action, write: WritePolicy) -> Vec<Step> {
    match action {
        Action::Launch { .. } => launching::first(action),
        Action::ClearInstances { hosts, .. } => vec![
            Step::EndInstances(hosts.clone()),
            Step::CloseLinks(hosts.clone()),
            Step::RemoveInstances(hosts.clone()),
        ],
        Action::StoreArtifacts { job, number, hosts, .. } => {
            vec![Step::StoreArtifacts { job: job.clone(), number: *number, hosts: hosts.clone(), write }]
        }
        Action::Release { .. } => vec![Step::FindInstance],
        orders => vec![Step::Order(Box::new(orders.clone()))],
    }
}

impl Lane {
    pub(super) fn exit(&mut self) -> Option<&mut Exit> {
        match &mut self.state {
            State::Leaving(_, _, exit) => Some(exit),
            _ => None,
        }
    }

    pub(super) fn perform(&mut self, action: Action, phase: Phase, steps: Vec<Step>) -> Io {
        let attempt = action.attempt().to_owned();
        self.state = State::Performing(action, phase);
        Io::Perform { attempt, steps }
    }

    pub(super) fn begin(&mut self, action: Action, write: WritePolicy) -> Io {
        let steps = first(&action, write);
        self.perform(action, Phase::Any, steps)
    }

    /// Starts a prepared launch. Warm instances that only save time make room for a new one.
    pub(super) fn start(&mut self, action: Action, grant: Option<Grant>) -> Vec<Io> {
        let room = grant.is_none().then_some(Io::Pool(warm_pool::Event::CapacityNeeded));
        [self.perform(action, Phase::Any, launching::start(grant))].into_iter().chain(room).collect()
    }

    /// Has the instance of a released attempt retained, or its agents exit, or removes what is
    /// left.
    pub(super) fn release(&mut self, action: Action, instance: Instance) -> Vec<Io> {
        let attempt = action.attempt().to_owned();
        let (retention, is_admitted) = (instance.retention(), instance.agents.is_some());
        let left = Left::from(instance);
        if let Some(retention) = retention {
            self.state = State::Retaining(action, left);
            return vec![Io::Pool(warm_pool::Event::Retain { attempt, retention })];
        }
        let steps = if is_admitted {
            self.perform(action, Phase::Leaving(left), vec![Step::Leave])
        } else {
            self.clear(action, &left)
        };
        vec![steps, Io::Pool(warm_pool::Event::Left { attempt })]
    }

    /// Ends and removes what is left of a released attempt.
    pub(super) fn clear(&mut self, action: Action, left: &Left) -> Io {
        let steps = steps::clear(action.attempt(), left.plan.as_ref(), left.is_shared);
        self.perform(action, Phase::Clearing, steps)
    }

    pub(super) fn commit(&mut self, attempt: &AttemptId, command: Command) -> Vec<Io> {
        self.wait = None;
        self.state = State::Committing(command.clone());
        vec![Io::Commit { attempt: attempt.clone(), command }]
    }

    /// An action that waits to add or to remove instances beside others that run makes way for this
    /// one. Returns what is tried again behind it.
    pub(super) fn make_way(&mut self, action: &Action) -> Option<Action> {
        let is_withdrawn = |host: &Host| match action {
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

    pub(super) fn has_release(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued, Action::Release { .. }))
    }

    pub(super) fn end_action(&mut self) {
        self.state = State::Idle;
        self.wait = None;
    }

    /// Whether another action was requested meanwhile that this one must not delay.
    pub(super) fn is_obsolete(&self, action: &Action) -> bool {
        let is_launch = matches!(action, Action::Launch { .. });
        let ends = |queued: &Action| {
            matches!(queued, Action::Release { .. }) || is_launch && matches!(queued, Action::StopInstances { .. })
        };
        self.queue.iter().any(ends)
    }

    pub(super) fn await_space(&mut self, action: Action, reason: String, has_written: bool, now: Mono) -> Vec<Io> {
        let attempt = action.attempt().to_owned();
        let mut io = Vec::new();
        let wait = self.wait.get_or_insert_with(|| {
            io.push(Io::LogDelay { action: action.clone(), reason: reason.clone() });
            SpaceWait::begun(now)
        });
        if has_written {
            wait.on_written(now);
        }
        if matches!(action, Action::Launch { .. }) && wait.is_report_due(now) {
            io.push(Io::ReportDelay { attempt, reason });
        }
        self.state = State::AwaitingSpace { action, until: now + SPACE_CHECK };
        io
    }

    pub(super) fn retry_commit(&mut self, now: Mono) {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Committing(command) => State::AwaitingJournal { command, until: now + COMMIT_RETRY },
            other => other,
        };
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::AwaitingSpace { until, .. } | State::AwaitingJournal { until, .. } => Some(*until),
            State::Leaving(_, _, exit) => exit.deadline(),
            State::Idle
            | State::Performing(..)
            | State::Committing(_)
            | State::AwaitingInstance(_)
            | State::Retaining(..) => None,
        }
    }

    pub(super) fn on_timeout(&mut self, attempt: &AttemptId, now: Mono) -> Option<Io> {
        if self.deadline().is_none_or(|until| now < until) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::AwaitingSpace { action, .. } => {
                let write = self.wait.as_ref().map_or(WritePolicy::IfSpace, |wait| wait.policy(now));
                Some(self.begin(action, write))
            }
            State::AwaitingJournal { command, .. } => {
                self.state = State::Committing(command.clone());
                Some(Io::Commit { attempt: attempt.clone(), command })
            }
            State::Leaving(action, left, mut exit) => {
                exit.on_timeout();
                self.state = State::Leaving(action, left, exit);
                Some(Io::CheckExit { attempt: attempt.clone() })
            }
            other => {
                self.state = other;
                None
            }
        }
    }
}
