//! What every wait loop asks: has something gone wrong, and is there time left?

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Call, Error, error::At, observer, timeline::Way};

/// Something that ends the work of the whole group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A rank's process is gone.
    Died { rank: usize, how: String },
    /// A rank is silent.
    Hung { rank: usize, milliseconds: u64 },
    /// Another rank gave up by itself.
    GaveUp { rank: usize, why: String },
    /// Ranks called different things as this number, which counts messages where it is between two
    /// (sender, receiver).
    Dispute { number: u64, between: Option<(usize, usize)> },
    /// The group was re-formed.
    Revoked,
    /// Something that concerns only a group that was split off: its members by their numbers here,
    /// and the fault by their numbers there.
    Within { members: Vec<usize>, fault: Box<Fault> },
}

impl Fault {
    /// What this means to a group of these members, if it concerns them.
    fn within(&self, members: &[usize]) -> Option<Self> {
        let place = |rank: &usize| members.iter().position(|member| member == rank);
        match self {
            Self::Died { rank, how } => Some(Self::Died { rank: place(rank)?, how: how.clone() }),
            Self::Hung { rank, milliseconds } => Some(Self::Hung { rank: place(rank)?, milliseconds: *milliseconds }),
            Self::GaveUp { rank, why } => Some(Self::GaveUp { rank: place(rank)?, why: why.clone() }),
            Self::Revoked => Some(Self::Revoked),
            Self::Within { members: concerned, fault } if concerned == members => Some((**fault).clone()),
            Self::Within { .. } | Self::Dispute { .. } => None,
        }
    }
}

/// One word per group and process that every wait loop polls. The first fault stays.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    raised: AtomicU32,
    fault: Mutex<Option<Fault>>,
    /// Of groups that were split off, with their members.
    parts: Mutex<Vec<(Vec<usize>, Weak<Alarm>)>>,
    /// Ranks that said goodbye: what waits for one of them waits in vain, and nothing else is
    /// wrong.
    left: Mutex<Vec<usize>>,
}

impl Alarm {
    /// Raises the alarm, if nobody has. Groups that were split off hear of what concerns them.
    pub(crate) fn raise(&self, fault: Fault) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|(_, part)| part.strong_count() > 0);
        for (members, part) in parts.iter() {
            if let (Some(fault), Some(part)) = (fault.within(members), part.upgrade()) {
                part.raise(fault);
            }
        }
        drop(parts);
        if matches!(fault, Fault::Within { .. }) {
            return;
        }
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        self.raised.store(1, Ordering::Release);
    }

    /// That rank ends in order. Whoever does not need it any more goes on.
    pub(crate) fn leave(&self, rank: usize) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(rank);
        for (members, part) in self.parts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let (Some(place), Some(part)) = (members.iter().position(|member| *member == rank), part.upgrade()) {
                part.leave(place);
            }
        }
    }

    /// Whether that rank said goodbye.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains(&rank)
    }

    /// The alarm of a group that was split off.
    fn part(&self, members: &[usize]) -> Arc<Self> {
        let part = Arc::new(Self::default());
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((members.to_vec(), Arc::downgrade(&part)));
        if let Some(fault) = self.fault().and_then(|fault| fault.within(members)) {
            part.raise(fault);
        }
        (0..members.len()).filter(|place| self.has_left(members[*place])).for_each(|place| part.leave(place));
        part
    }

    /// Whether anything is wrong: one load.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed) != 0
    }

    /// What is wrong.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How a wait loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Look again at once.
    Again,
    /// Nothing came for about a millisecond: the caller may sleep this long, in a futex or a poll,
    /// before it looks again.
    Sleep(Duration),
}

/// The turns of one wait loop.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    turns: u32,
}

impl Backoff {
    /// Of a loop that sleeps from its first turn on, because whoever ends the wait also wakes it.
    pub(crate) fn asleep() -> Self {
        Self { turns: u32::MAX - 1 }
    }
}

/// Turns of `sched_yield` (about a microsecond each) before a wait loop may sleep.
const YIELDS: u32 = 1000;
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
/// The longest sleep: an alarm, or a wake-up that was lost, is seen after it.
const LONGEST_SLEEP: Duration = Duration::from_millis(2);

/// The limit of a wait that may last as long as the other lives, and of which nobody need be told.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 86_400);

/// After how long a wait may mean that the ranks called different things and wait for each other;
/// and how often to look again.
const SUSPICIOUS: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Watches over one operation of one rank.
pub(crate) struct Guard<'a> {
    call: &'a Call,
    rank: usize,
    number: u64,
    epoch: u64,
    alarm: &'a Alarm,
    limit: Duration,
    /// Pauses of the processor before the first yield.
    spins: u32,
    /// When the first wait had lasted long enough to read the clock; a few microseconds late.
    started: Cell<Option<Instant>>,
    stall: &'a Stall,
    told: Cell<bool>,
    watch: Option<&'a dyn Watch>,
    /// When the others were asked last whether they wait in the same call.
    asked: Cell<Option<Instant>>,
    /// How the transport does it, for the timeline.
    way: Cell<Way>,
    /// Of a step among some ranks: these, by the numbers of the group whose operation it is.
    members: Option<&'a [usize]>,
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guard of {} (operation {})", self.call, self.number)
    }
}

/// What the guards of one group have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) epoch: u64,
    pub(crate) alarm: &'a Alarm,
    /// How long the operation may wait.
    pub(crate) limit: Duration,
    /// Pauses of the processor before the first yield.
    pub(crate) spins: u32,
    pub(crate) stall: &'a Stall,
    /// Whom a rank that waits long tells what it waits in.
    pub(crate) watch: Option<&'a dyn Watch>,
}

/// Gets what waits, for how long it has, and for which ranks.
type Tell = dyn Fn(&At, Duration, &[usize]) + Send + Sync;

/// Whom to tell, and after how long, that an operation waits for ranks that have not come.
pub(crate) struct Stall {
    /// After how long.
    pub(crate) after: Duration,
    /// Who.
    pub(crate) tell: Box<Tell>,
}

impl fmt::Debug for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stall after {:?}", self.after)
    }
}

impl Default for Stall {
    /// Says so on standard error after 30 s.
    fn default() -> Self {
        let tell = |at: &At, waited: Duration, ranks: &[usize]| {
            eprintln!("shoal-comm: {at} has waited {:.0} s for ranks {ranks:?}", waited.as_secs_f64());
        };
        Self { after: Duration::from_secs(30), tell: Box::new(tell) }
    }
}

impl<'a> Guard<'a> {
    /// `rank` calls `call` as number `number`.
    pub(crate) fn new(call: &'a Call, rank: usize, number: u64, terms: &Terms<'a>) -> Self {
        let Terms { epoch, alarm, limit, spins, stall, watch } = *terms;
        let (started, told, asked) = (Cell::new(None), Cell::new(false), Cell::new(None));
        Self {
            call,
            rank,
            number,
            epoch,
            alarm,
            limit,
            spins,
            started,
            stall,
            told,
            watch,
            asked,
            way: Cell::default(),
            members: None,
        }
    }

    /// Watches over a step of the operation among some of its ranks, whose transport numbers them
    /// in this order. Errors name ranks by the group's numbers, and the operation's time goes on.
    pub(crate) fn step<'b>(&'b self, members: &'b [usize]) -> Guard<'b> {
        let started = self.started.get().unwrap_or_else(Instant::now);
        self.started.set(Some(started));
        Guard {
            call: self.call,
            started: Cell::new(Some(started)),
            told: self.told.clone(),
            asked: self.asked.clone(),
            way: Cell::default(),
            members: Some(members),
            ..*self
        }
    }

    /// What ranks of this step must agree on: what is called here, and the operation that it is a
    /// step of.
    #[inline]
    pub(crate) fn signature(&self, call: &Call) -> u64 {
        let own = call.signature(self.epoch);
        if self.members.is_some() { own.rotate_left(1) ^ self.call.signature(self.epoch) } else { own }
    }

    /// The group's number of a rank of this step.
    pub(crate) fn member(&self, rank: usize) -> usize {
        self.members.map_or(rank, |members| members[rank])
    }

    /// What this guard polls.
    pub(crate) fn alarm(&self) -> &Alarm {
        self.alarm
    }

    /// The transport says how it does this operation.
    #[inline]
    pub(crate) fn took(&self, way: Way) {
        self.way.set(way);
    }

    /// How the transport said that it does it.
    pub(crate) fn way(&self) -> Way {
        self.way.get()
    }

    /// What this guard watches over, for errors.
    pub(crate) fn at(&self) -> At {
        At { operation: self.call.to_string(), number: self.number }
    }

    /// Whether something went wrong in the group: one load where nothing did.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.alarm.is_raised() { Err(self.failure()) } else { Ok(()) }
    }

    /// The alarm as an error of this operation. A dispute becomes [`Error::Disagreement`] with the
    /// calls' texts in the front.
    #[cold]
    fn failure(&self) -> Error {
        let at = self.at();
        match self.alarm.fault() {
            Some(Fault::Died { rank, how }) => Error::PeerDied { rank, how, at },
            Some(Fault::Hung { rank, milliseconds }) => Error::PeerHung { rank, milliseconds, at },
            Some(Fault::GaveUp { rank, why }) => Error::PeerGaveUp { rank, why, at },
            Some(Fault::Dispute { number, .. }) => Error::Disagreement { number, calls: Vec::new() },
            Some(Fault::Revoked | Fault::Within { .. }) | None => Error::Revoked { epoch: self.epoch },
        }
    }

    /// This rank and another were found to call different things as this operation: raises the
    /// alarm, and is the error.
    #[cold]
    pub(crate) fn dispute(&self) -> Error {
        self.dispute_of(self.number)
    }

    /// The same where the other's part is of an earlier operation, in which nobody here waited for
    /// it.
    #[cold]
    pub(crate) fn dispute_of(&self, number: u64) -> Error {
        self.alarm.raise(Fault::Dispute { number: number.min(self.number), between: self.call.between(self.rank) });
        self.failure()
    }

    /// A message and its receive were found to differ in type or length: raises the alarm, and is
    /// the error. `number` counts the messages of these two.
    #[cold]
    pub(crate) fn dispute_between(&self, number: u64, sender: usize, receiver: usize) -> Error {
        self.alarm.raise(Fault::Dispute { number, between: Some((sender, receiver)) });
        self.failure()
    }

    /// One turn of a wait loop that found nothing: pauses, then yields the core, then lets the
    /// caller sleep. `missing` are the ranks waited for; it is asked only when the time is over or
    /// somebody wants to know.
    ///
    /// # Errors
    /// What went wrong in the group, or that the time is over.
    #[inline]
    pub(crate) fn turn(&self, backoff: &mut Backoff, missing: &dyn Fn() -> Vec<usize>) -> Result<Pace, Error> {
        backoff.turns = backoff.turns.saturating_add(1);
        if backoff.turns <= self.spins {
            std::hint::spin_loop();
            return self.check().map(|()| Pace::Again);
        }
        self.slow_turn(backoff, missing)
    }

    #[cold]
    fn slow_turn(&self, backoff: &Backoff, missing: &dyn Fn() -> Vec<usize>) -> Result<Pace, Error> {
        self.check()?;
        let yields = backoff.turns - self.spins;
        let asleep = yields > YIELDS;
        // The clock costs more than a look: every 16th yield, every sleep, and once at first.
        if asleep || yields % 16 == 1 {
            self.look_at_clock(missing)?;
        }
        if asleep {
            let waited = self.started.get().map_or(Duration::ZERO, |started| started.elapsed());
            // An eighth of what it has waited: whoever is late makes nobody much later.
            let nap = (waited / 8).clamp(SHORTEST_SLEEP, LONGEST_SLEEP);
            return Ok(Pace::Sleep(nap.min(self.limit.saturating_sub(waited)).max(SHORTEST_SLEEP)));
        }
        std::thread::yield_now();
        Ok(Pace::Again)
    }

    fn look_at_clock(&self, missing: &dyn Fn() -> Vec<usize>) -> Result<(), Error> {
        let missing = || missing().into_iter().map(|rank| self.member(rank)).collect::<Vec<_>>();
        let now = Instant::now();
        let Some(started) = self.started.get() else {
            self.started.set(Some(now));
            return Ok(());
        };
        let waited = now - started;
        if waited >= self.limit {
            let milliseconds = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Deadline { waiting_for: missing(), milliseconds, at: self.at() });
        }
        if let Some(rank) = missing().into_iter().find(|rank| self.alarm.has_left(*rank)) {
            let fault = Fault::Died { rank, how: "it has left the group".to_owned() };
            // The others hear why before they hear what this rank does about it.
            self.watch.into_iter().for_each(|watch| watch.tell(&fault));
            self.alarm.raise(fault);
            return Err(self.failure());
        }
        // Of messages the sender's number is not the receiver's.
        let is_asked = self.call.kind.tag().is_none() && self.asked.get().is_none_or(|asked| now - asked >= ASK_AGAIN);
        if waited >= SUSPICIOUS && is_asked {
            self.asked.set(Some(now));
            if self.watch.is_some_and(|watch| watch.waits(None, self.number, None, self.call.signature(self.epoch))) {
                return Err(self.dispute());
            }
        }
        if let Some(observer) = observer::current() {
            if waited >= observer.after() && observer.waits(waited, &missing()) {
                let milliseconds = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Deadline { waiting_for: missing(), milliseconds, at: self.at() });
            }
            return Ok(());
        }
        if waited >= self.stall.after && self.limit < UNLIMITED && !self.told.replace(true) {
            (self.stall.tell)(&self.at(), waited, &missing());
        }
        Ok(())
    }
}

/// How one group's ranks hear of each other's fate. Implementations raise the alarm by themselves.
pub(crate) trait Watch: Send + Sync + fmt::Debug {
    /// What every wait loop of this group polls.
    fn alarm(&self) -> &Arc<Alarm>;

    /// Tells every rank of the group, this one included.
    fn tell(&self, fault: &Fault);

    /// Tells every rank that this one makes the group anew, and before that why: whoever has not
    /// heard of the loss yet is not left without its name.
    fn revoke(&self) {
        if let Some(fault @ (Fault::Died { .. } | Fault::Hung { .. } | Fault::GaveUp { .. })) = self.alarm().fault() {
            self.tell(&fault);
        }
        self.tell(&Fault::Revoked);
    }

    /// Tells the others what this rank called in a dispute of a group of these members (if it
    /// knows), and gives what each member said; waits at most `patience` for those that have not
    /// yet. A group has one dispute in its life.
    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>>;

    /// This rank has waited long in operation `number` of these members (all if not said), or of
    /// `between` two of them, and called what `signature` says. Whether another waits in the same
    /// operation and called something else. Transports where every call meets every other need not
    /// know.
    fn waits(
        &self,
        _members: Option<&[usize]>,
        _number: u64,
        _between: Option<(usize, usize)>,
        _signature: u64,
    ) -> bool {
        false
    }
}

/// The watch of a group that was split off.
#[derive(Debug)]
pub(crate) struct Among {
    whole: Arc<dyn Watch>,
    members: Vec<usize>,
    alarm: Arc<Alarm>,
}

impl Among {
    /// `members` of the whole group, by their numbers there, in the order of their new ones.
    pub(crate) fn new(whole: &Arc<dyn Watch>, members: &[usize]) -> Self {
        Self { whole: Arc::clone(whole), members: members.to_vec(), alarm: whole.alarm().part(members) }
    }
}

impl Watch for Among {
    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn tell(&self, fault: &Fault) {
        self.whole.tell(&Fault::Within { members: self.members.clone(), fault: Box::new(fault.clone()) });
    }

    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>> {
        let members: Vec<_> = members.iter().map(|member| self.members[*member]).collect();
        self.whole.calls(&members, mine, patience)
    }

    fn waits(&self, members: Option<&[usize]>, number: u64, between: Option<(usize, usize)>, signature: u64) -> bool {
        let members = members.map_or_else(
            || self.members.clone(),
            |members| members.iter().map(|member| self.members[*member]).collect(),
        );
        self.whole.waits(Some(&members), number, between, signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_over_and_the_error_names_who_is_missing() {
        let (call, alarm) = (Call::barrier(), Alarm::default());
        let stall = Stall::default();
        let guard = Guard::new(
            &call,
            0,
            4,
            &Terms { epoch: 0, alarm: &alarm, limit: Duration::from_millis(5), spins: 10, stall: &stall, watch: None },
        );
        let mut backoff = Backoff::default();
        let error = loop {
            match guard.turn(&mut backoff, &|| vec![2]) {
                Ok(Pace::Sleep(time)) => std::thread::sleep(time),
                Ok(Pace::Again) => {}
                Err(error) => break error,
            }
        };
        let at = At { operation: "barrier".to_owned(), number: 4 };
        assert_eq!(error, Error::Deadline { waiting_for: vec![2], milliseconds: 5, at });
    }

    #[test]
    fn the_first_fault_stays() {
        let alarm = Alarm::default();
        assert!(!alarm.is_raised());
        alarm.raise(Fault::Died { rank: 1, how: "gone".to_owned() });
        alarm.raise(Fault::Hung { rank: 2, milliseconds: 1 });
        assert_eq!(alarm.fault(), Some(Fault::Died { rank: 1, how: "gone".to_owned() }));
    }

    #[test]
    fn groups_that_were_split_off_hear_of_what_concerns_them() {
        let whole = Alarm::default();
        let (one, two) = (whole.part(&[2, 0]), whole.part(&[1, 3]));
        whole
            .raise(Fault::Within { members: vec![1, 3], fault: Box::new(Fault::Dispute { number: 5, between: None }) });
        assert_eq!((whole.fault(), one.fault()), (None, None));
        assert_eq!(two.fault(), Some(Fault::Dispute { number: 5, between: None }));
        whole.raise(Fault::Hung { rank: 2, milliseconds: 7 });
        assert_eq!(one.fault(), Some(Fault::Hung { rank: 0, milliseconds: 7 }));
        assert_eq!(whole.part(&[1]).fault(), None);
        assert!(whole.part(&[2]).is_raised());
    }
}
