//! The loop that owns the state of the control core: it folds the journal at a start, decides
//! commands, and takes a turn back that the journal refused.
//!
//! The driver appends a turn's events before anything else of it leaves the loop: no answer, no
//! effect, no change that readers see.

use std::time::Duration;

use shoal_plane::{
    Capacity, Catalog, Command, Effects, Event, EventError, Rejection, SnapshotError, State, Time, Turn, apply,
};

use crate::{Mono, Now};

/// After a start agents get this long to report what happened meanwhile, before deadlines that
/// passed meanwhile are decided.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(3);
/// Before commands are decided again after the journal refused: deadlines that are due would be
/// decided at once.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(200);
/// The wall clock may be set: it is read at least so often.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// Events between two snapshots.
pub const SNAPSHOT_INTERVAL: u64 = 10_000;

/// Why a journal cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// A newer version wrote the snapshot, or it is damaged.
    #[error("snapshot of the journal cannot be read ({0}); was it written by a newer shoal?")]
    Snapshot(#[from] SnapshotError),
    /// The same of an event.
    #[error("event {at} of the journal cannot be read ({source}); was it written by a newer shoal?")]
    Event {
        /// Its version.
        at: u64,
        /// What is wrong with it.
        source: EventError,
    },
    /// A state without what some events did is worse than none.
    #[error(
        "the journal's snapshot and events end at event {known} and continue at {next}: what lies between is missing; \
         are all files of the data directory of the same age?"
    )]
    Missing {
        /// The last version that is known.
        known: u64,
        /// The one that follows.
        next: u64,
    },
}

/// A state that is folded from a journal.
#[derive(Debug)]
pub struct Fold {
    state: State,
    version: u64,
}

impl Fold {
    /// Begins with the journal's snapshot and its version, or with nothing.
    ///
    /// # Errors
    /// The snapshot cannot be read.
    pub fn new(snapshot: Option<(u64, &[u8])>, capacity: Capacity, catalog: Catalog) -> Result<Self, FoldError> {
        let Some((version, bytes)) = snapshot else {
            return Ok(Self { state: State::new(capacity, catalog), version: 0 });
        };
        Ok(Self { state: State::from_snapshot(bytes, capacity, catalog)?, version })
    }

    /// The version behind which events are to be read.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The next event.
    ///
    /// # Errors
    /// It is not the next one, or cannot be read.
    pub fn event(&mut self, at: u64, bytes: &[u8]) -> Result<(), FoldError> {
        if at != self.version + 1 {
            return Err(FoldError::Missing { known: self.version, next: at });
        }
        apply(&mut self.state, &Event::decode(bytes).map_err(|source| FoldError::Event { at, source })?);
        self.version = at;
        Ok(())
    }

    /// All events were read; `end` is the journal's version.
    ///
    /// # Errors
    /// Some are missing.
    pub fn finish(self, end: u64) -> Result<Folded, FoldError> {
        if end != self.version {
            return Err(FoldError::Missing { known: self.version, next: end });
        }
        Ok(Folded { state: self.state, version: end })
    }
}

/// The state of a whole journal.
#[derive(Debug)]
pub struct Folded {
    /// After its last event.
    pub state: State,
    /// Number of its last event.
    pub version: u64,
}

/// The state, the version of the journal that it is of, and when deadlines are decided next.
#[derive(Debug)]
pub struct Control {
    state: State,
    version: u64,
    snapshot_at: u64,
    /// Time as the core sees it never goes back.
    last: Time,
    /// Until when no deadline counts.
    listening_until: Option<Mono>,
}

impl Control {
    /// Starts at `now`.
    #[must_use]
    pub fn new(Folded { state, version }: Folded, now: Mono) -> Self {
        let (last, listening_until) = (state.clock(), Some(now + RECONNECT_GRACE));
        Self { state, version, snapshot_at: version, last, listening_until }
    }

    /// As decided so far.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The journal's, as far as turns were appended.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The time of the last turn.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.last
    }

    /// What may not have been done when the previous server ended.
    #[must_use]
    pub fn pending(&self) -> Effects {
        self.state.pending()
    }

    /// Decides commands as one turn, and answers each.
    pub fn decide<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Command>,
        wall: Time,
    ) -> (Turn, Vec<Result<(), Rejection>>) {
        self.last = self.last.max(wall);
        let mut turn = Turn::default();
        let answers = commands.into_iter().map(|command| turn.take(&mut self.state, command, self.last)).collect();
        (turn, answers)
    }

    /// The last turn's events are durable; returns whether a snapshot of the state is due.
    pub fn appended(&mut self, version: u64) -> bool {
        self.version = version;
        let is_due = version >= self.snapshot_at + SNAPSHOT_INTERVAL;
        if is_due {
            self.snapshot_at = version;
        }
        is_due
    }

    /// The journal refused the last turn: nothing of it has happened. `folded` is what is durable.
    pub fn rewind(&mut self, folded: Folded) {
        self.state = folded.state;
        self.version = folded.version;
    }

    /// For how long the driver waits for commands, before it calls [`Control::timeout`]; `None`:
    /// until there are some.
    #[must_use]
    pub fn sleep(&self, now: Now) -> Option<Duration> {
        if let Some(until) = self.listening_until {
            return Some(until.since(now.mono));
        }
        let deadline = self.state.next_deadline()?;
        Some(Duration::from_millis(deadline.0.saturating_sub(now.wall.0)).min(LONGEST_SLEEP))
    }

    /// Nothing came for as long as [`Control::sleep`]: what is to be decided.
    pub fn timeout(&mut self) -> Command {
        self.listening_until = None;
        Command::Tick
    }
}

#[cfg(test)]
mod tests {
    use shoal_plane::{Action, AttemptId, Form, GangSpec, Host, InstanceReport, Node, Packing, StopCause};

    use super::*;
    use crate::random::Random;

    fn capacity() -> Capacity {
        Capacity::of(Node { cpus: 2, memory_bytes: 64 << 30, gpus: 0, instances: 8, ..Node::local() }, Packing::Promise)
    }

    fn create(name: &str) -> Command {
        let spec = GangSpec::new("ml.m5.large", 1, Form::Ends { max_runtime_s: 3600 }, 120);
        Command::CreateTrainingJob { name: name.into(), uid: format!("uid-{name}"), spec, name_taken: false }
    }

    fn control() -> Control {
        let fold = Fold::new(None, capacity(), Catalog::default()).unwrap();
        Control::new(fold.finish(0).unwrap(), Mono::default())
    }

    /// The bytes of one job's events.
    fn journal() -> Vec<Vec<u8>> {
        let (turn, _) = control().decide([&create("a")], Time(1000));
        turn.events.iter().map(Event::encode).collect()
    }

    fn folded(events: &[Vec<u8>]) -> Folded {
        let mut fold = Fold::new(None, capacity(), Catalog::default()).unwrap();
        (1..).zip(events).for_each(|(at, bytes)| fold.event(at, bytes).unwrap());
        fold.finish(events.len() as u64).unwrap()
    }

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: Mono(Duration::from_millis(mono_ms)), wall: Time(wall_ms) }
    }

    #[test]
    fn a_turn_that_the_journal_refuses_is_undone() {
        let mut control = control();
        let (turn, answers) = control.decide([&create("a"), &create("a")], Time(1000));
        assert!(matches!(&answers[..], [Ok(()), Err(Rejection::NameTaken(_))]), "{answers:?}");
        assert!(!turn.events.is_empty() && control.state().view("a").is_some());
        control.rewind(folded(&[]));
        assert_eq!((control.version(), control.state().view("a")), (0, None));
        let (again, answers) = control.decide([&create("a")], Time(1000));
        assert_eq!((again, answers), (turn, vec![Ok(())]));
    }

    #[test]
    fn what_is_missing_or_unreadable_is_an_error() {
        let events = journal();
        let fold = |at: u64| {
            let mut fold = Fold::new(None, capacity(), Catalog::default()).unwrap();
            fold.event(at, &events[0]).map(|()| fold)
        };
        assert!(matches!(fold(2), Err(FoldError::Missing { known: 0, next: 2 })));
        assert!(matches!(fold(1).unwrap().finish(2), Err(FoldError::Missing { known: 1, next: 2 })));
        let snapshot = folded(&events).state.snapshot();
        let behind = Fold::new(Some((9, &snapshot)), capacity(), Catalog::default()).unwrap();
        assert!(matches!(behind.finish(3), Err(FoldError::Missing { known: 9, next: 3 })));
        assert!(matches!(Fold::new(Some((1, b"{")), capacity(), Catalog::default()), Err(FoldError::Snapshot(_))));
        let mut fold = Fold::new(None, capacity(), Catalog::default()).unwrap();
        assert!(matches!(fold.event(1, b"{"), Err(FoldError::Event { at: 1, .. })));
    }

    #[test]
    fn time_does_not_go_back() {
        let mut control = control();
        let (turn, _) = control.decide([&create("a")], Time(5000));
        let (next, _) = control.decide([&create("b")], Time(1000));
        assert_eq!((turn.events[0].at, next.events[0].at), (Time(5000), Time(5000)));
        let events: Vec<_> = turn.events.iter().chain(&next.events).map(Event::encode).collect();
        let mut restarted = Control::new(folded(&events), Mono::default());
        let (turn, _) = restarted.decide([&create("c")], Time(0));
        assert_eq!(turn.events[0].at, Time(5000));
    }

    #[test]
    fn agents_are_heard_before_deadlines_that_passed_meanwhile() {
        let mut control = control();
        control.decide([&create("a")], Time(1000));
        assert_eq!(control.sleep(at(0, u64::MAX)), Some(RECONNECT_GRACE));
        assert_eq!(control.sleep(at(2000, u64::MAX)), Some(RECONNECT_GRACE - Duration::from_secs(2)));
        assert_eq!(control.sleep(at(9000, u64::MAX)), Some(Duration::ZERO));
        assert_eq!(control.timeout(), Command::Tick);
        let deadline = control.state().next_deadline().expect("an instance has a time to start");
        assert_eq!(control.sleep(at(9000, deadline.0)), Some(Duration::ZERO));
        assert_eq!(control.sleep(at(9000, deadline.0 - 10)), Some(Duration::from_millis(10)));
        assert_eq!(control.sleep(at(9000, 0)), Some(LONGEST_SLEEP), "the clock may be set meanwhile");
    }

    #[test]
    fn a_snapshot_is_due_after_so_many_events() {
        let mut control = control();
        let due = [SNAPSHOT_INTERVAL - 1, SNAPSHOT_INTERVAL, SNAPSHOT_INTERVAL + 1, 2 * SNAPSHOT_INTERVAL];
        assert_eq!(due.map(|version| control.appended(version)), [false, true, false, true]);
    }

    /// A command that clients, agents or timers may bring at any time.
    fn any_command(random: &mut Random, attempts: &[AttemptId]) -> Command {
        let name = ["a", "b", "c"][random.below(3)];
        let attempt = attempts.get(random.below(attempts.len().max(1))).cloned().unwrap_or_else(|| "none".into());
        let report = |report| Command::InstanceReported { attempt: attempt.clone(), host: Host(1), report };
        match random.below(10) {
            0 | 1 => create(name),
            2 => Command::StopTrainingJob { name: name.into(), cause: StopCause::User, ended: None },
            3 => report(InstanceReport::Downloading),
            4 => report(InstanceReport::Training),
            5 => report(InstanceReport::Uploaded),
            6 => report(InstanceReport::Lost { reason: "gone".to_owned() }),
            7 => Command::LaunchFailed { attempt, reason: "no room".to_owned() },
            8 => Command::ArtifactsFailed { attempt, reason: "full".to_owned() },
            _ => Command::Tick,
        }
    }

    #[test]
    fn the_state_is_that_of_the_journal_whatever_is_decided_and_refused() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut control, mut events) = (control(), Vec::<Vec<u8>>::new());
            let mut attempts: Vec<AttemptId> = Vec::new();
            for turn in 0..25_u64 {
                let commands: Vec<_> = (0..1 + random.below(3)).map(|_| any_command(&mut random, &attempts)).collect();
                let before = control.version();
                let (decided, answers) = control.decide(&commands, Time(1000 * turn + random.below(5000) as u64));
                assert_eq!(answers.len(), commands.len());
                assert!(
                    decided.effects.actions.is_empty() || !decided.events.is_empty(),
                    "seed {seed}: {:?} rest on no event",
                    decided.effects.actions
                );
                if !decided.events.is_empty() && random.one_in(4) {
                    control.rewind(folded(&events));
                    assert_eq!(control.version(), before, "seed {seed}");
                } else {
                    events.extend(decided.events.iter().map(Event::encode));
                    control.appended(events.len() as u64);
                    attempts.extend(decided.effects.actions.iter().filter_map(|action| match action {
                        Action::Launch { attempt, .. } => Some(attempt.clone()),
                        _ => None,
                    }));
                }
                let durable = folded(&events);
                assert_eq!(control.version(), durable.version, "seed {seed}");
                let texts = [control.state(), &durable.state].map(|state| String::from_utf8(state.snapshot()).unwrap());
                assert_eq!(texts[0], texts[1], "seed {seed}, turn {turn}: {commands:?}");
            }
        }
    }
}
