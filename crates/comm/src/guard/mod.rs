//! What every wait loop asks: has something gone wrong, and is there time left?

mod alarm;
mod stall;
mod watch;

use std::{
    cell::Cell,
    fmt,
    time::{Duration, Instant},
};

pub(crate) use self::{
    alarm::{Alarm, Fault},
    stall::Stall,
    watch::{Among, Watch},
};
use crate::{Call, Error, error::At, observer, timeline::Way};

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
}
