//! Instances that are retained between attempts: those of a tuning job's trials, and of training
//! jobs with a `KeepAlivePeriodInSeconds`.
//!
//! A warm instance is an allocation of agents that serve no attempt. Each of its agents has a
//! connection (`link::ToServer::Idle`) and exits when that ends, so the pool holds nothing across a
//! restart. Whatever goes wrong with a warm instance costs a cold start, never a job: it is
//! assigned only with all its agents connected and the previous attempt cleared away, and ended
//! when they do not connect for the next attempt immediately. The core knows nothing of this.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shoal_plane::{AttemptId, Host};

pub use messages::{AllocationId, Event, Grant, Io, Retention, Retired, ReusePolicy};

use crate::{ConnId, Mono, Now, lanes};

mod messages;

/// How long agents have to clear away an attempt and report that they are idle.
const RETAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two checks whether they still can.
const RETAIN_CHECK: Duration = Duration::from_millis(500);
/// How long the agents of a warm instance have to connect for their next attempt.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a launch waits for an instance whose release has begun: less than a new instance takes.
const GRANT_WAIT: Duration = Duration::from_millis(100);
/// An instance whose program stays in memory is ended when a new one is started, if it has been
/// idle for this long.
const EVICTABLE_AFTER: Duration = Duration::from_secs(2);
/// How long the agents of an ended instance have to exit by themselves.
const END_DELAY: Duration = Duration::from_millis(500);
/// Between two checks whether the owners of idle instances have ended.
const OWNER_CHECK: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum State {
    /// Its agents clear the attempt away.
    Retaining {
        attempt: AttemptId,
        until: Mono,
        /// None while an answer is awaited.
        check: Option<Mono>,
    },
    /// All agents are idle; the server removes what it has of the attempt.
    Clearing { attempt: AttemptId },
    /// It may be assigned.
    Idle { since: Mono },
    /// An attempt is to have it.
    Assigned {
        attempt: AttemptId,
        idle: Duration,
        /// Connections for the attempt, by host.
        connected: BTreeMap<Host, ConnId>,
        /// None until the agents are notified.
        until: Option<Mono>,
    },
}

#[derive(Debug)]
struct WarmInstance {
    retention: Retention,
    /// Connections of idle agents, by host number - 1.
    agents: Vec<Option<ConnId>>,
    state: State,
}

impl WarmInstance {
    fn is_complete(&self) -> bool {
        self.agents.iter().all(Option::is_some)
    }

    fn conns(&self) -> Vec<ConnId> {
        self.agents.iter().copied().flatten().collect()
    }

    /// Since when it has been idle.
    fn idle_since(&self) -> Option<Mono> {
        match self.state {
            State::Idle { since } => Some(since),
            _ => None,
        }
    }

    fn is_assigned_to(&self, id: &AttemptId) -> bool {
        matches!(&self.state, State::Assigned { attempt, .. } if attempt == id)
    }

    fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::Retaining { check, .. } => *check,
            State::Clearing { .. } => None,
            State::Idle { since } => Some(*since + Duration::from_secs(self.retention.policy.idle_s)),
            State::Assigned { until, .. } => *until,
        }
    }
}

/// A launch that waits for a warm instance.
#[derive(Debug)]
struct Request {
    attempt: AttemptId,
    key: String,
    until: Mono,
}

/// The instances that are retained.
#[derive(Debug, Default)]
pub struct WarmPool {
    instances: BTreeMap<AllocationId, WarmInstance>,
    /// Keys of attempts whose instances may be retained after them.
    keys: BTreeMap<AttemptId, String>,
    /// Those of them whose release has begun.
    releasing: BTreeSet<AttemptId>,
    /// In order of arrival.
    requests: Vec<Request>,
    /// Retired instances, and when what is left of them is stopped.
    ending: Vec<(Mono, Retention)>,
    owner_check: Option<Mono>,
}

impl WarmPool {
    /// A pool after a restart: these attempts run, and their instances have these keys.
    pub fn restore(running: impl IntoIterator<Item = (AttemptId, String)>) -> Self {
        Self { keys: running.into_iter().collect(), ..Self::default() }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        let now = now.mono;
        let mut io = match event {
            Event::Requested { attempt, key } => self.on_requested(attempt, key, now),
            Event::Releasing { attempt } => {
                if self.keys.contains_key(&attempt) {
                    self.releasing.insert(attempt);
                }
                Vec::new()
            }
            Event::Retain { attempt, retention } => self.on_retain(attempt, retention, now),
            Event::Left { attempt } => {
                self.forget(&attempt);
                Vec::new()
            }
            Event::AgentIdle { allocation, host, conn } => self.on_agent_idle(&allocation, host, conn),
            Event::AgentClosed { allocation, conn } => self.on_agent_closed(&allocation, conn, now),
            Event::Checked { allocation, is_running, is_mirroring } => {
                self.on_checked(&allocation, is_running, is_mirroring, now)
            }
            Event::Cleared { allocation } => self.on_cleared(&allocation, now),
            Event::Assigned { attempt } => self.on_assigned(&attempt, now),
            Event::AssignFailed { attempt } => self.on_assign_failed(&attempt),
            Event::ServeFailed { attempt } => self.give_up(&attempt),
            Event::AgentConnected { attempt, host, conn } => self.on_agent_connected(&attempt, host, conn),
            Event::AgentDisconnected { attempt, host, conn } => {
                if let Some(State::Assigned { connected, .. }) = self.state_of(&attempt) {
                    // An older connection of an agent that has connected again counts for nothing.
                    connected.retain(|of, other| *of != host || *other != conn);
                }
                Vec::new()
            }
            Event::Unassigned { attempt } => self.on_unassigned(&attempt, now),
            Event::CapacityNeeded => {
                self.retire_where(now, |it, idle| it.retention.policy.is_loaded && idle >= EVICTABLE_AFTER)
            }
            Event::OwnerEnded { owner } => self.retire_where(now, |it, _| it.retention.policy.owner == owner),
            Event::KeepAlive { job, seconds } => self.on_keep_alive(&job, seconds, now),
            Event::Timeout => self.on_timeout(now),
        };
        io.extend(self.serve_requests(now));
        let is_owned = self.instances.values().any(|it| !it.retention.policy.owner.is_empty());
        self.owner_check = is_owned.then(|| self.owner_check.unwrap_or(now + OWNER_CHECK));
        io
    }

    /// When [`Event::Timeout`] is due.
    pub fn deadline(&self) -> Option<Mono> {
        let instances = self.instances.values().filter_map(WarmInstance::deadline);
        let requests = self.requests.iter().map(|request| request.until);
        let ending = self.ending.iter().map(|(at, _)| *at);
        instances.chain(requests).chain(ending).chain(self.owner_check).min()
    }

    /// Panics unless no attempt has two instances, and no instance is both retained and ending.
    pub fn check(&self) {
        let mut attempts = BTreeSet::new();
        for it in self.instances.values() {
            if let State::Assigned { attempt, .. } = &it.state {
                assert!(attempts.insert(attempt), "{attempt} has two instances");
                assert!(
                    self.requests.iter().all(|request| request.attempt != *attempt),
                    "{attempt} has an instance and waits for one"
                );
            }
        }
        for (_, retention) in &self.ending {
            assert!(
                !self.instances.contains_key(&retention.allocation),
                "{:?} is ending and retained",
                retention.allocation
            );
        }
        assert!(
            self.releasing.iter().all(|attempt| self.keys.contains_key(attempt)),
            "an attempt without a key is releasing"
        );
    }

    fn on_requested(&mut self, attempt: AttemptId, key: String, now: Mono) -> Vec<Io> {
        self.keys.insert(attempt.clone(), key.clone());
        let has_one = self.instances.values().any(|it| it.is_assigned_to(&attempt));
        if !has_one && self.requests.iter().all(|request| request.attempt != *attempt) {
            self.requests.push(Request { attempt, key, until: now + GRANT_WAIT });
        }
        Vec::new()
    }

    fn on_retain(&mut self, attempt: AttemptId, retention: Retention, now: Mono) -> Vec<Io> {
        if self.instances.contains_key(&retention.allocation) {
            self.forget(&attempt);
            return vec![Io::Lane(lanes::Event::NotRetained { attempt })];
        }
        let mut io = vec![Io::Park { attempt: attempt.clone() }];
        if retention.policy.owner.is_empty() {
            // An update may have come between the policy's reading and this.
            io.push(Io::ReadKeepAlive { job: retention.job.clone() });
        }
        let state = State::Retaining { attempt, until: now + RETAIN_TIMEOUT, check: Some(now + RETAIN_CHECK) };
        let agents = vec![None; retention.hosts as usize];
        self.instances.insert(retention.allocation.clone(), WarmInstance { retention, agents, state });
        io
    }

    fn on_agent_idle(&mut self, allocation: &AllocationId, host: Host, conn: ConnId) -> Vec<Io> {
        let Some(it) = self.instances.get_mut(allocation) else { return vec![Io::Refuse(conn)] };
        let (State::Retaining { attempt, .. }, Some(agent)) =
            (&it.state, host.index().and_then(|index| it.agents.get_mut(index)))
        else {
            return vec![Io::Refuse(conn)];
        };
        *agent = Some(conn);
        let attempt = attempt.clone();
        if !it.is_complete() {
            return Vec::new();
        }
        it.state = State::Clearing { attempt: attempt.clone() };
        vec![Io::Clear { attempt, retention: it.retention.clone() }]
    }

    fn on_agent_closed(&mut self, allocation: &AllocationId, conn: ConnId, now: Mono) -> Vec<Io> {
        let Some(it) = self.instances.get_mut(allocation) else { return Vec::new() };
        let Some(agent) = it.agents.iter_mut().find(|agent| **agent == Some(conn)) else { return Vec::new() };
        match it.state {
            // The agent connects for the attempt instead.
            State::Assigned { .. } => Vec::new(),
            State::Retaining { .. } | State::Clearing { .. } => {
                *agent = None;
                Vec::new()
            }
            State::Idle { since } => {
                *agent = None;
                self.end(allocation, now.since(since))
            }
        }
    }

    fn on_checked(&mut self, allocation: &AllocationId, is_running: bool, is_mirroring: bool, now: Mono) -> Vec<Io> {
        let Some(it) = self.instances.get_mut(allocation) else { return Vec::new() };
        let State::Retaining { attempt, until, check: check @ None } = &mut it.state else { return Vec::new() };
        if is_running && (now < *until || is_mirroring) {
            *check = Some(now + RETAIN_CHECK);
            return Vec::new();
        }
        let attempt = attempt.clone();
        // The attempt's release ends the instance. It does not reach agents that are idle already.
        let mut io: Vec<Io> = it.conns().into_iter().map(Io::Refuse).collect();
        self.instances.remove(allocation);
        self.forget(&attempt);
        io.push(Io::Lane(lanes::Event::NotRetained { attempt }));
        io
    }

    fn on_cleared(&mut self, allocation: &AllocationId, now: Mono) -> Vec<Io> {
        let Some(it) = self.instances.get_mut(allocation) else { return Vec::new() };
        let State::Clearing { attempt } = &it.state else { return Vec::new() };
        let attempt = attempt.clone();
        it.state = State::Idle { since: now };
        let mut io = if it.is_complete() { Vec::new() } else { self.end(allocation, Duration::ZERO) };
        self.forget(&attempt);
        io.push(Io::Lane(lanes::Event::Retained { attempt }));
        io
    }

    fn on_assigned(&mut self, id: &AttemptId, now: Mono) -> Vec<Io> {
        let Some(it) = self.instances.values_mut().find(|it| it.is_assigned_to(id)) else { return Vec::new() };
        let conns = it.conns();
        match &mut it.state {
            State::Assigned { until: until @ None, .. } => *until = Some(now + ASSIGN_TIMEOUT),
            _ => return Vec::new(),
        }
        vec![Io::Serve { attempt: id.to_owned(), conns }]
    }

    /// The launch starts a new instance instead.
    fn on_assign_failed(&mut self, id: &AttemptId) -> Vec<Io> {
        let Some((allocation, idle)) = self.assigned(id) else { return Vec::new() };
        let mut io = self.end(&allocation, idle);
        io.push(Io::Lane(lanes::Event::Declined { attempt: id.to_owned() }));
        io
    }

    fn state_of(&mut self, assigned_to: &AttemptId) -> Option<&mut State> {
        self.instances.values_mut().find(|it| it.is_assigned_to(assigned_to)).map(|it| &mut it.state)
    }

    fn on_agent_connected(&mut self, id: &AttemptId, host: Host, conn: ConnId) -> Vec<Io> {
        let Some((allocation, idle)) = self.assigned(id) else { return Vec::new() };
        let Some(it) = self.instances.get_mut(&allocation) else { return Vec::new() };
        if let State::Assigned { connected, .. } = &mut it.state {
            connected.insert(host, conn);
            if connected.len() < it.agents.len() {
                return Vec::new();
            }
        }
        let from = it.retention.job.clone();
        self.instances.remove(&allocation);
        vec![Io::Lane(lanes::Event::Granted { attempt: id.to_owned(), grant: Grant { allocation, from, idle } })]
    }

    /// Ends the instance that an attempt was assigned: its agents do not connect.
    fn give_up(&mut self, id: &AttemptId) -> Vec<Io> {
        let Some((allocation, idle)) = self.assigned(id) else { return Vec::new() };
        let Some(it) = self.instances.remove(&allocation) else { return Vec::new() };
        let retired = Retired { retention: it.retention.clone(), idle };
        vec![Io::Retire { conns: it.conns(), retired }, Io::Unassign { attempt: id.to_owned(), instance: it.retention }]
    }

    fn on_unassigned(&mut self, attempt: &AttemptId, now: Mono) -> Vec<Io> {
        match self.keys.get(attempt).cloned() {
            Some(key) => self.on_requested(attempt.clone(), key, now),
            None => Vec::new(),
        }
    }

    fn on_keep_alive(&mut self, job: &str, seconds: u32, now: Mono) -> Vec<Io> {
        let is_it = |it: &WarmInstance| it.retention.job == job && it.retention.policy.owner.is_empty();
        for it in self.instances.values_mut().filter(|it| is_it(it)) {
            it.retention.policy.idle_s = seconds.into();
        }
        if seconds == 0 { self.retire_where(now, |it, _| is_it(it)) } else { Vec::new() }
    }

    fn on_timeout(&mut self, now: Mono) -> Vec<Io> {
        let mut io = self.retire_where(now, |it, idle| idle.as_secs() >= it.retention.policy.idle_s);
        let mut late = Vec::new();
        for (allocation, it) in &mut self.instances {
            match &mut it.state {
                State::Retaining { attempt, check, .. } if check.is_some_and(|at| now >= at) => {
                    *check = None;
                    io.push(Io::Check { allocation: allocation.clone(), attempt: attempt.clone() });
                }
                // An agent that does not connect may be stopped, and the attempt has not begun.
                State::Assigned { attempt, until: Some(until), .. } if now >= *until => late.push(attempt.clone()),
                _ => {}
            }
        }
        late.iter().for_each(|attempt| io.extend(self.give_up(attempt)));
        let (due, ending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ending).into_iter().partition(|(at, _)| now >= *at);
        self.ending = ending;
        if !due.is_empty() {
            io.push(Io::End(due.into_iter().map(|(_, retention)| retention).collect()));
        }
        if self.owner_check.is_some_and(|at| now >= at) {
            self.owner_check = None;
            let owners: BTreeSet<_> = self
                .instances
                .values()
                .map(|it| &it.retention.policy.owner)
                .filter(|owner| !owner.is_empty())
                .collect();
            io.extend(owners.into_iter().map(|owner| Io::CheckOwner { owner: owner.clone() }));
        }
        io
    }

    /// Assigns idle instances to launches that wait, and declines those that wait in vain.
    fn serve_requests(&mut self, now: Mono) -> Vec<Io> {
        let mut io = Vec::new();
        for request in std::mem::take(&mut self.requests) {
            let fits = |it: &&mut WarmInstance| {
                it.idle_since().is_some() && it.is_complete() && it.retention.policy.key == request.key
            };
            // The one that was used last: the others may be given up.
            let best = self.instances.values_mut().filter(fits).max_by_key(|it| it.idle_since());
            let is_released_soon = || self.releasing.iter().any(|attempt| self.keys.get(attempt) == Some(&request.key));
            if let Some(it) = best {
                let idle = it.idle_since().map_or(Duration::ZERO, |since| now.since(since));
                let attempt = request.attempt;
                io.push(Io::Assign { attempt: attempt.clone(), allocation: it.retention.allocation.clone() });
                it.state = State::Assigned { attempt, idle, connected: BTreeMap::new(), until: None };
            } else if now < request.until && is_released_soon() {
                self.requests.push(request);
            } else {
                io.push(Io::Lane(lanes::Event::Declined { attempt: request.attempt }));
            }
        }
        io
    }

    /// The instance that an attempt is to have, and how long it was idle.
    fn assigned(&self, id: &AttemptId) -> Option<(AllocationId, Duration)> {
        self.instances.iter().find_map(|(allocation, it)| match &it.state {
            State::Assigned { attempt, idle, .. } if attempt == id => Some((allocation.clone(), *idle)),
            _ => None,
        })
    }

    fn forget(&mut self, attempt: &AttemptId) {
        self.keys.remove(attempt);
        self.releasing.remove(attempt);
        self.requests.retain(|request| request.attempt != *attempt);
    }

    /// Ends idle instances; their agents exit with their connections, and what they leave is
    /// stopped later.
    fn retire_where(&mut self, now: Mono, which: impl Fn(&WarmInstance, Duration) -> bool) -> Vec<Io> {
        let retires = |it: &WarmInstance| it.idle_since().filter(|since| which(it, now.since(*since)));
        let retired: Vec<_> = self.instances.iter().filter_map(|(id, it)| Some((id.clone(), retires(it)?))).collect();
        let mut io = Vec::new();
        for (allocation, since) in retired {
            let Some(it) = self.instances.remove(&allocation) else { continue };
            self.ending.push((now + END_DELAY, it.retention.clone()));
            io.push(Io::Retire {
                conns: it.conns(),
                retired: Retired { retention: it.retention, idle: now.since(since) },
            });
        }
        io
    }

    /// Ends an instance that has failed.
    fn end(&mut self, allocation: &AllocationId, idle: Duration) -> Vec<Io> {
        let Some(it) = self.instances.remove(allocation) else { return Vec::new() };
        let conns = it.conns();
        vec![
            Io::Retire { conns, retired: Retired { retention: it.retention.clone(), idle } },
            Io::End(vec![it.retention]),
        ]
    }
}

#[cfg(test)]
mod tests;
