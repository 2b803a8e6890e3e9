//! The simulated server's core: commands to events, the journal first, then effects and answers;
//! and its start.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shoal_plane::{AttemptId, Catalog, Command, Rejection, Turn};
use shoal_runtime::{
    Control, TunerQueue, WarmPool,
    control::{Fold, FoldError, Folded, REFUSED_PAUSE},
    lanes::Lanes,
    recovery::{Found, launching, recover},
};

use crate::{
    Bug,
    coverage::{Point, kind},
    state::{
        events::SimEvent,
        server::{Attempt, Server},
    },
    world::{Halt, Simulation, Step, broken},
};

use connections::WATCH_MS;

/// Tuning jobs that are answered at a time.
const TUNER_THREADS: usize = 2;

mod attempts;
mod connections;
mod driver;
mod steps;
mod warm;

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
        server.turns += 1;
        let is_odd_turn = server.turns.is_multiple_of(37);
        let (turn, answers) = server.control.decide(commands, wall);
        let refused = answers.into_iter().filter_map(Result::err).next_back();
        let answer = refused.map_or(Ok(()), |rejection| Err(Refusal::Rejected(rejection)));
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
                    let folded = self.fold()?;
                    self.server().control.rewind(folded);
                }
                self.set_timer(REFUSED_PAUSE);
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
        self.set_timer(Duration::ZERO);
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
        let version = self.disk.events.len() as u64;
        if self.server().control.appended(version) {
            return broken("a snapshot is due, and a history is to be too short for one");
        }
        self.journalled(&turn.events)
    }

    fn snapshot(&mut self) -> (usize, Vec<u8>) {
        let ahead = usize::from(self.bug == Some(Bug::SnapshotAhead));
        (self.disk.events.len() + ahead, self.server().control.state().snapshot())
    }

    /// The state of what is durable.
    fn fold(&self) -> Step<Folded> {
        let snapshot = self.disk.snapshot.as_ref().map(|(version, bytes)| (*version as u64, &bytes[..]));
        let folded = || -> Result<Folded, FoldError> {
            let mut fold = Fold::new(snapshot, self.known_capacity(), Catalog::default())?;
            let after = fold.version();
            for (at, bytes) in (1..).zip(&self.disk.events).filter(|(at, _)| *at > after) {
                fold.event(at, bytes)?;
            }
            fold.finish(self.disk.events.len() as u64)
        };
        folded().or_else(|error| broken(error.to_string()))
    }

    /// Sets when the loop wakes by itself: after `at_least` at the earliest.
    fn set_timer(&mut self, at_least: Duration) {
        let (now, epoch) = (self.clocks(), self.epoch);
        let server = self.server();
        let Some(sleep) = server.control.sleep(now) else { return };
        server.timer += 1;
        let (timer, ms) = (server.timer, sleep.max(at_least).as_millis());
        self.after(u64::try_from(ms).expect("a short history"), SimEvent::Timeout { epoch, timer });
    }

    pub(crate) fn time_out(&mut self, timer: u64) -> Step {
        if self.server().timer != timer {
            return Ok(());
        }
        let command = self.server().control.timeout();
        let result = self.execute(&command, false)?;
        let control = &self.server().control;
        let deadline = control.state().next_deadline();
        if result.answer.is_ok() && deadline.is_some_and(|deadline| deadline <= control.clock()) {
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
        let control = Control::new(self.fold()?, self.clocks().mono);
        let (pending, state) = (control.pending(), control.state());
        let live: BTreeSet<AttemptId> = state.jobs().filter_map(|job| state.view(job)?.attempt).collect();
        let found = |attempt: &AttemptId| Found { attempt: attempt.clone(), plan: self.found_plan(attempt) };
        let dirs = || self.disk.dirs.iter();
        let launching = launching(&pending);
        let mut recovery = recover(&live, &launching, dirs().map(found).collect());
        match self.bug {
            Some(Bug::ForgottenAttempts) => recovery.adopt.clear(),
            Some(Bug::ForgottenDirectories) => recovery.clear.clear(),
            // As if no live attempt had a plan.
            Some(Bug::SharedInstanceCleared) => {
                let found = |attempt: &AttemptId| Found { attempt: attempt.clone(), plan: None };
                recovery.clear = recover(&live, &launching, dirs().map(found).collect()).clear;
            }
            _ => {}
        }
        self.server = Some(Server {
            control,
            timer: 0,
            turns: 0,
            decisions: 0,
            lanes: Lanes::default(),
            pool: WarmPool::restore(recovery.keys),
            machines_wake: None,
            attempts: BTreeMap::new(),
            prepared: BTreeMap::new(),
            ends: BTreeMap::new(),
            tuner: TunerQueue::new(TUNER_THREADS),
            studies: BTreeMap::new(),
        });
        for attempt in recovery.adopt {
            if let Some(plan) = self.disk.plans.get(&attempt).cloned() {
                let is_watched = !recovery.undecided.contains(&attempt);
                self.insert_attempt(Attempt { is_watched, ..Attempt::new(plan) });
            }
        }
        for (attempt, steps) in recovery.clear {
            for step in self.with_bugs(&attempt, steps)? {
                self.step(&attempt, step, None)?;
            }
        }
        if self.bug != Some(Bug::ForgottenActions) {
            self.dispatch(pending);
        }
        self.set_timer(Duration::ZERO);
        self.after(WATCH_MS, SimEvent::CheckAgents { epoch: self.epoch });
        Ok(())
    }
}
