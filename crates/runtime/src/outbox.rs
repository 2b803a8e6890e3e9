//! Deliveries of notifications: which is attempted when, and what becomes of those that fail. At
//! least once: a delivery leaves the outbox only when its end is recorded, and what a crash cut
//! short is attempted again.
//!
//! One endpoint has one attempt at a time, so that one that hangs keeps only its own deliveries
//! waiting. A delivery that waits for its next attempt lets later ones pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{Mono, Now};

/// Attempts that run at the same time.
const MAX_AT_ONCE: usize = 16;
/// Attempts of one delivery. With the delays between them they take some seven hours.
const MAX_ATTEMPTS: u32 = 50;
/// After the first attempt that failed; each later delay is twice as long,
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// up to this.
const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A delivery is stored, with as many attempts behind it.
    Queued {
        /// Its id.
        id: String,
        /// Which deliveries must not be attempted at the same time.
        endpoint: String,
        /// How often it was attempted before.
        attempts: u32,
    },
    /// An attempt has ended.
    Attempted {
        /// Of this delivery.
        id: String,
        /// How.
        outcome: Outcome,
    },
    /// What was to be recorded is durable.
    Recorded {
        /// Of this delivery.
        id: String,
    },
    /// The delivery is stored no more.
    Withdrawn {
        /// Its id.
        id: String,
    },
    /// [`Outbox::deadline`] has passed.
    Timeout,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint has it.
    Delivered,
    /// It failed in a way that may pass.
    Failed(String),
    /// The endpoint will never take it.
    Refused(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Io {
    /// Attempt a delivery, and answer with [`Event::Attempted`].
    Attempt {
        /// Its id.
        id: String,
    },
    /// Make durable what became of a delivery, and answer with [`Event::Recorded`].
    Record {
        /// Its id.
        id: String,
        /// How often it was attempted.
        attempts: u32,
        /// What became of it.
        progress: Progress,
    },
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It arrived.
    Delivered,
    /// It is attempted again after a time.
    Waiting {
        /// Time.
        delay: Duration,
        /// Why the last attempt failed.
        reason: String,
    },
    /// It is given up.
    Failed {
        /// Why the last attempt failed.
        reason: String,
    },
}

/// Deliveries that are not at their end.
#[derive(Debug, Default)]
pub struct Outbox {
    deliveries: BTreeMap<String, Delivery>,
    endpoints: BTreeMap<String, Endpoint>,
    /// Of each endpoint that is free, the next delivery: when, in which order, where.
    next: BTreeSet<(Mono, u64, String)>,
    running: usize,
    queued: u64,
}

#[derive(Debug)]
struct Delivery {
    endpoint: String,
    /// In which order deliveries came.
    order: u64,
    attempts: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(Mono),
    Attempting,
    /// Waits afterwards; `None`: it is at its end.
    Recording(Option<Duration>),
}

#[derive(Debug, Default)]
struct Endpoint {
    waiting: BTreeMap<(Mono, u64), String>,
    is_busy: bool,
}

impl Outbox {
    /// Takes what happened; the outputs are independent of each other.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        let mut io = Vec::new();
        match event {
            Event::Queued { id, endpoint, attempts } => self.on_queued(id, &endpoint, attempts, now.mono),
            Event::Attempted { id, outcome } => io.extend(self.on_attempted(id, outcome)),
            Event::Recorded { id } => self.on_recorded(&id, now.mono),
            Event::Withdrawn { id } => self.on_withdrawn(&id),
            Event::Timeout => {}
        }
        self.start(now.mono, &mut io);
        io
    }

    /// When [`Event::Timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        (self.running < MAX_AT_ONCE).then(|| self.next.first().map(|(due, ..)| *due)).flatten()
    }

    /// Deliveries that are not at their end.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    fn on_queued(&mut self, id: String, endpoint: &str, attempts: u32, now: Mono) {
        if self.deliveries.contains_key(&id) {
            return;
        }
        let order = self.queued;
        self.queued += 1;
        let delivery = Delivery { endpoint: endpoint.to_owned(), order, attempts, state: State::Waiting(now) };
        self.deliveries.insert(id.clone(), delivery);
        self.change(endpoint, |it| drop(it.waiting.insert((now, order), id)));
    }

    fn on_attempted(&mut self, id: String, outcome: Outcome) -> Option<Io> {
        let delivery = self.deliveries.get_mut(&id).filter(|it| it.state == State::Attempting)?;
        delivery.attempts += 1;
        let attempts = delivery.attempts;
        let progress = match outcome {
            Outcome::Delivered => Progress::Delivered,
            Outcome::Failed(reason) if attempts < MAX_ATTEMPTS => Progress::Waiting { delay: delay(attempts), reason },
            Outcome::Failed(reason) | Outcome::Refused(reason) => Progress::Failed { reason },
        };
        let delay = if let Progress::Waiting { delay, .. } = &progress { Some(*delay) } else { None };
        delivery.state = State::Recording(delay);
        let endpoint = delivery.endpoint.clone();
        self.running -= 1;
        self.change(&endpoint, |it| it.is_busy = false);
        Some(Io::Record { id, attempts, progress })
    }

    fn on_recorded(&mut self, id: &str, now: Mono) {
        let Some(delivery) = self.deliveries.get_mut(id) else { return };
        match delivery.state {
            State::Recording(Some(delay)) => {
                let (due, order, endpoint) = (now + delay, delivery.order, delivery.endpoint.clone());
                delivery.state = State::Waiting(due);
                self.change(&endpoint, |it| drop(it.waiting.insert((due, order), id.to_owned())));
            }
            State::Recording(None) => drop(self.deliveries.remove(id)),
            State::Waiting(_) | State::Attempting => {}
        }
    }

    fn on_withdrawn(&mut self, id: &str) {
        let Some(Delivery { endpoint, order, state, .. }) = self.deliveries.remove(id) else { return };
        self.running -= usize::from(state == State::Attempting);
        self.change(&endpoint, |it| match state {
            State::Waiting(due) => drop(it.waiting.remove(&(due, order))),
            State::Attempting => it.is_busy = false,
            State::Recording(_) => {}
        });
    }

    fn start(&mut self, now: Mono, io: &mut Vec<Io>) {
        while self.running < MAX_AT_ONCE {
            let Some((due, order, endpoint)) = self.next.first().filter(|(due, ..)| *due <= now).cloned() else {
                return;
            };
            let mut started = None;
            self.change(&endpoint, |it| {
                started = it.waiting.remove(&(due, order));
                it.is_busy = started.is_some();
            });
            if let Some(id) = started {
                self.running += 1;
                if let Some(delivery) = self.deliveries.get_mut(&id) {
                    delivery.state = State::Attempting;
                }
                io.push(Io::Attempt { id });
            }
        }
    }

    /// Changes an endpoint and what [`Self::next`] has of it.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Endpoint)) {
        let endpoint = self.endpoints.entry(name.to_owned()).or_default();
        let head = |it: &Endpoint| {
            let first = it.waiting.keys().next().filter(|_| !it.is_busy);
            first.map(|(due, order)| (*due, *order, name.to_owned()))
        };
        if let Some(before) = head(endpoint) {
            self.next.remove(&before);
        }
        change(endpoint);
        self.next.extend(head(endpoint));
        if endpoint.waiting.is_empty() && !endpoint.is_busy {
            self.endpoints.remove(name);
        }
    }
}

/// Before the next attempt after this number of them.
fn delay(attempts: u32) -> Duration {
    let doubled = 2_u32.checked_pow(attempts.saturating_sub(1)).and_then(|times| FIRST_DELAY.checked_mul(times));
    doubled.unwrap_or(LONGEST_DELAY).min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use shoal_plane::Time;

    use super::*;
    use crate::random::Random;

    fn at(ms: u64) -> Now {
        Now { mono: Mono(Duration::from_millis(ms)), wall: Time(ms) }
    }

    fn queued(id: &str, endpoint: &str) -> Event {
        Event::Queued { id: id.to_owned(), endpoint: endpoint.to_owned(), attempts: 0 }
    }

    fn attempted(id: &str, outcome: Outcome) -> Event {
        Event::Attempted { id: id.to_owned(), outcome }
    }

    fn recorded(id: &str) -> Event {
        Event::Recorded { id: id.to_owned() }
    }

    fn attempt(id: &str) -> Io {
        Io::Attempt { id: id.to_owned() }
    }

    fn failed() -> Outcome {
        Outcome::Failed("503".to_owned())
    }

    #[test]
    fn an_endpoint_has_one_attempt_at_a_time_and_hinders_no_other() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.handle(queued("a", "one"), at(0)), [attempt("a")]);
        assert_eq!(outbox.handle(queued("b", "one"), at(0)), []);
        assert_eq!(outbox.handle(queued("c", "two"), at(0)), [attempt("c")]);
        assert_eq!(outbox.handle(queued("a", "one"), at(0)), [], "it is there already");
        let done = Io::Record { id: "a".to_owned(), attempts: 1, progress: Progress::Delivered };
        assert_eq!(outbox.handle(attempted("a", Outcome::Delivered), at(1)), [done, attempt("b")]);
        assert_eq!(outbox.len(), 3, "until it is recorded");
        assert_eq!(outbox.handle(recorded("a"), at(2)), []);
        assert_eq!(outbox.len(), 2);
    }

    #[test]
    fn what_fails_is_attempted_again_later_and_later_and_then_given_up() {
        let mut outbox = Outbox::default();
        let mut now = 0;
        outbox.handle(queued("a", "one"), at(now));
        let mut delays = Vec::new();
        for attempts in 1..MAX_ATTEMPTS {
            let io = outbox.handle(attempted("a", failed()), at(now));
            let [Io::Record { attempts: found, progress: Progress::Waiting { delay, .. }, .. }] = io.as_slice() else {
                panic!("{io:?}")
            };
            assert_eq!(*found, attempts);
            delays.push(delay.as_secs());
            assert_eq!(outbox.handle(recorded("a"), at(now)), []);
            let due = u64::try_from(delay.as_millis()).unwrap();
            assert_eq!(outbox.handle(Event::Timeout, at(now + due - 1)), []);
            now += due;
            assert_eq!(outbox.deadline(), Some(at(now).mono));
            assert_eq!(outbox.handle(Event::Timeout, at(now)), [attempt("a")]);
        }
        assert_eq!(delays[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]);
        assert!((6 * 3600..8 * 3600).contains(&(now / 1000)), "{now}");
        let io = outbox.handle(attempted("a", failed()), at(now));
        assert!(matches!(io.as_slice(), [Io::Record { progress: Progress::Failed { .. }, .. }]), "{io:?}");
        outbox.handle(recorded("a"), at(now));
        assert!(outbox.is_empty() && outbox.endpoints.is_empty() && outbox.deadline().is_none());
    }

    #[test]
    fn a_delivery_that_waits_lets_others_pass_and_refusals_are_final() {
        let mut outbox = Outbox::default();
        outbox.handle(queued("a", "one"), at(0));
        outbox.handle(attempted("a", failed()), at(0));
        outbox.handle(recorded("a"), at(0));
        assert_eq!(outbox.handle(queued("b", "one"), at(10)), [attempt("b")]);
        let io = outbox.handle(attempted("b", Outcome::Refused("404".to_owned())), at(20));
        let refused = Progress::Failed { reason: "404".to_owned() };
        assert_eq!(io, [Io::Record { id: "b".to_owned(), attempts: 1, progress: refused }]);
        assert_eq!(outbox.handle(Event::Withdrawn { id: "a".to_owned() }, at(30)), []);
        assert_eq!(outbox.deadline(), None);
        assert_eq!(outbox.handle(attempted("a", failed()), at(40)), [], "late answers are ignored");
    }

    /// Whatever fails and crashes: everything is delivered, and no attempt follows a recorded end.
    #[test]
    fn nothing_is_lost_and_nothing_recorded_is_sent_again() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut now = 0;
            // What is stored: attempts of those that are not at their end.
            let mut stored: BTreeMap<String, u32> = (0..40).map(|n| (format!("d{n:02}"), 0)).collect();
            let endpoint = |id: &str| format!("e{}", id.as_bytes()[2] % 5);
            let restart = |stored: &BTreeMap<String, u32>, now| {
                let (mut outbox, mut io) = (Outbox::default(), Vec::new());
                for (id, attempts) in stored {
                    let event = Event::Queued { id: id.clone(), endpoint: endpoint(id), attempts: *attempts };
                    io.extend(outbox.handle(event, at(now)));
                }
                (outbox, io)
            };
            let (mut outbox, mut pending) = restart(&stored, now);
            for _ in 0..20_000 {
                if stored.is_empty() {
                    break;
                }
                if random.below(100) == 0 {
                    (outbox, pending) = restart(&stored, now);
                }
                if pending.is_empty() {
                    let due = outbox.deadline().expect("something waits");
                    now = now.max(u64::try_from(due.0.as_millis()).unwrap());
                    pending = outbox.handle(Event::Timeout, at(now));
                    continue;
                }
                let at_random = random.below(pending.len());
                let event = match pending.swap_remove(at_random) {
                    Io::Attempt { id } => {
                        assert!(stored.contains_key(&id), "seed {seed}: {id} was at its end");
                        let outcome = if random.below(2) == 0 { failed() } else { Outcome::Delivered };
                        Event::Attempted { id, outcome }
                    }
                    Io::Record { id, attempts, progress } => {
                        match progress {
                            Progress::Waiting { .. } => drop(stored.insert(id.clone(), attempts)),
                            Progress::Delivered | Progress::Failed { .. } => drop(stored.remove(&id)),
                        }
                        Event::Recorded { id }
                    }
                };
                pending.extend(outbox.handle(event, at(now)));
                assert!(outbox.running <= MAX_AT_ONCE);
            }
            assert!(stored.is_empty() && outbox.is_empty(), "seed {seed}: {stored:?}");
        }
    }
}
