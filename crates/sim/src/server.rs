//! The simulated server's core: commands to events, the journal first, then effects and answers;
//! and its start.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{Catalog, Command, Event, Rejection, State, Time, Turn, apply};
use shoal_runtime::{
    WarmPool,
    lanes::Lanes,
    recovery::{Found, FoundPlan, recover},
    warm_pool::AllocationId,
};

use crate::{
    Bug,
    coverage::{Point, kind},
    scenario,
    state::{
        events::SimEvent,
        server::{Attempt, Server},
    },
    world::{Halt, Simulation, Step, broken},
};

use connections::WATCH_MS;

mod attempts;
mod connections;
mod driver;
mod elastic;
mod warm;

/// After a start agents get this long to say what happened meanwhile.
const RECONNECT_GRACE_MS: u64 = 3000;
/// The loop looks at the clock at least so often.
const LONGEST_SLEEP_MS: u64 = 60_000;
/// Before a deadline is looked at again that the journal did not let through.
const REFUSED_PAUSE_MS: u64 = 500;

#[derive(Debug)]
pub(crate) enum Refusal {
    Rejected(Rejection),
    Journal,
}

/// What became of a command.
pub(crate) struct CommandResult {
    pub(crate) answer: Result<(), Refusal>,
    /// Of its events.
    pub(crate) kinds: Vec<&'static str>,
}

impl Simulation {
    pub(crate) fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("a handler of the server runs while there is one")
    }

    /// One turn. Somebody waits for the answer if it was asked.
    pub(crate) fn execute(&mut self, command: &Command, asked: bool) -> Step<CommandResult> {
        self.execute_all(std::slice::from_ref(command), asked)
    }

    /// The same of these together; the answer is that of the last one that was refused.
    pub(crate) fn execute_all(&mut self, commands: &[Command], asked: bool) -> Step<CommandResult> {
        let (wall, bug) = (self.wall(), self.bug);
        let server = self.server();
        server.last = server.last.max(wall);
        server.turns += 1;
        let is_odd_turn = server.turns.is_multiple_of(37);
        let (mut turn, now, mut answer) = (Turn::default(), server.last, Ok(()));
        for command in commands {
            if let Err(rejection) = turn.take(&mut server.state, command, now) {
                answer = Err(Refusal::Rejected(rejection));
            }
        }
        if answer.is_err() && turn.events.is_empty() {
            return Ok(CommandResult { answer, kinds: Vec::new() });
        }
        let kinds: Vec<_> = turn.events.iter().map(|event| kind(&event.fact)).collect();
        if !turn.events.is_empty() {
            self.server().decisions += 1;
            self.passes(&kinds, Point::BeforeAppend)?;
            if self.strikes(&kinds, Point::Refused) || self.now < self.full_until {
                self.say(|| format!("refused: {commands:?}"));
                if bug != Some(Bug::RefusalForgotten) {
                    self.server().state = self.fold()?;
                }
                self.set_timer(REFUSED_PAUSE_MS);
                return Ok(CommandResult { answer: Err(Refusal::Journal), kinds });
            }
            if !(bug == Some(Bug::SkippedAppend) && is_odd_turn) {
                self.append(&turn)?;
            }
            self.passes(&kinds, Point::AfterAppend)?;
            if self.strikes(&kinds[kinds.len() - 1..], Point::Snapshot) {
                let (version, bytes) = self.snapshot();
                self.disk.snapshot = Some((version, bytes));
                return Err(Halt::Crash);
            }
            if self.faults.one_in(30) {
                let ((version, bytes), epoch, ms) = (self.snapshot(), self.epoch, self.faults.random.below(3000));
                self.after(ms, SimEvent::SnapshotWritten { epoch, version, bytes });
            }
        }
        self.dispatch(turn.effects);
        self.set_timer(0);
        if asked {
            self.passes(&kinds, Point::BeforeReply)?;
        }
        Ok(CommandResult { answer, kinds })
    }

    fn append(&mut self, turn: &Turn) -> Step {
        let mut rows = turn.views.clone();
        if self.bug == Some(Bug::StaleRows) {
            rows = rows.into_iter().next_back().into_iter().collect();
        }
        let loses_records = self.bug == Some(Bug::RecordsLost) && self.disk.events.len().is_multiple_of(5);
        if !self.disk.append(turn, rows, !loses_records) {
            return broken("a record of a study has not the next number");
        }
        self.journalled(&turn.events)
    }

    fn snapshot(&mut self) -> (usize, Vec<u8>) {
        let ahead = usize::from(self.bug == Some(Bug::SnapshotAhead));
        (self.disk.events.len() + ahead, self.server().state.snapshot())
    }

    /// The state of what is durable.
    fn fold(&self) -> Step<State> {
        let mut state = State::new(scenario::capacity(), Catalog::default());
        let mut version = 0;
        if let Some((at, bytes)) = &self.disk.snapshot {
            state = State::from_snapshot(bytes, scenario::capacity(), Catalog::default())
                .or_else(|error| broken(error.to_string()))?;
            version = *at;
        }
        for bytes in self.disk.events.iter().skip(version) {
            apply(&mut state, &Event::decode(bytes).or_else(|error| broken(error.to_string()))?);
        }
        Ok(state)
    }

    /// When the loop wakes by itself, not before so many milliseconds.
    fn set_timer(&mut self, at_least: u64) {
        let (wall, now, epoch) = (self.wall(), self.now, self.epoch);
        let server = self.server();
        let sleep = match (server.listening_until, server.state.next_deadline()) {
            (Some(until), _) => until.saturating_sub(now),
            (None, Some(deadline)) => deadline.0.saturating_sub(wall.0).min(LONGEST_SLEEP_MS),
            (None, None) => return,
        };
        server.timer += 1;
        let timer = server.timer;
        self.after(sleep.max(at_least), SimEvent::Timeout { epoch, timer });
    }

    pub(crate) fn time_out(&mut self, timer: u64) -> Step {
        if self.server().timer != timer {
            return Ok(());
        }
        self.server().listening_until = None;
        let result = self.execute(&Command::Tick, false)?;
        let server = self.server();
        let (last, next) = (server.last, server.state.next_deadline());
        if result.answer.is_ok() && next.is_some_and(|deadline| deadline <= last) {
            return broken("a tick leaves a deadline behind");
        }
        Ok(())
    }

    pub(crate) fn start_server(&mut self) -> Step {
        if self.server.is_some() {
            return Ok(());
        }
        self.epoch += 1;
        self.served_since = self.now;
        self.say(|| "a server starts".to_owned());
        let state = self.fold()?;
        let pending = state.pending();
        let live: BTreeSet<String> = state.jobs().filter_map(|job| state.view(job)?.attempt).collect();
        let found = |attempt: &String| Found {
            attempt: attempt.clone(),
            plan: self.disk.plans.get(attempt).map(|plan| FoundPlan {
                allocation: AllocationId(plan.allocation.clone()),
                key: plan.reuse.as_ref().map(|policy| policy.key.clone()),
            }),
        };
        let mut recovery = recover(&live, self.disk.dirs.iter().map(found).collect());
        match self.bug {
            Some(Bug::ForgottenAttempts) => recovery.adopt.clear(),
            Some(Bug::ForgottenDirectories) => recovery.clear.clear(),
            Some(Bug::SharedInstanceCleared) => recovery.clear = self.disk.dirs.difference(&live).cloned().collect(),
            _ => {}
        }
        self.server = Some(Server {
            state,
            last: Time(0),
            listening_until: Some(self.now + RECONNECT_GRACE_MS),
            timer: 0,
            turns: 0,
            decisions: 0,
            lanes: Lanes::default(),
            pool: WarmPool::restore(recovery.keys),
            machines_wake: None,
            attempts: BTreeMap::new(),
            prepared: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            ends: BTreeMap::new(),
            requests: BTreeMap::new(),
            studies: BTreeMap::new(),
        });
        for attempt in recovery.adopt {
            if let Some(plan) = self.disk.plans.get(&attempt).cloned() {
                self.insert_attempt(Attempt::new(plan));
            }
        }
        for attempt in recovery.clear {
            self.clear(&attempt)?;
        }
        if self.bug != Some(Bug::ForgottenActions) {
            self.dispatch(pending);
        }
        self.set_timer(0);
        self.after(WATCH_MS, SimEvent::CheckAgents { epoch: self.epoch });
        Ok(())
    }
}
