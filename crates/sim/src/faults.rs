//! What goes wrong, and when: drawn from the seed before the history begins, and where chance
//! belongs to the moment, during it.

use std::collections::BTreeMap;

use crate::{
    coverage::{ELASTIC, KINDS, Point, impossible},
    random::Random,
};

/// How bad it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing goes wrong: the outcome to compare with.
    None,
    /// Nothing that an outcome may depend on: crashes, refusals, interruptions, messages lost, late
    /// and repeated, small jumps of the clock.
    Mild,
    /// Agents die too, launches and uploads fail, the clock jumps by hours, the server stays away
    /// for longer than the agents' lease.
    Lethal,
}

/// Something that goes wrong at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is killed, wherever it is.
    KillServer,
    /// An agent's connection breaks, with all that is on its way.
    Cut,
    /// An agent is killed with its program.
    KillAgent,
    /// An agent's process is stopped for this many milliseconds.
    Stall(u64),
    /// The instances of a managed spot training are taken away.
    Interrupt,
    /// Some instances of a job that can lose them are taken away.
    InterruptSome,
    /// An agent of such a job is killed with its program.
    KillSome,
    /// The clock of the machine jumps, in milliseconds.
    Jump(i64),
    /// The journal refuses everything from now on, for so many milliseconds.
    Full(u64),
}

#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) severity: Severity,
    pub(crate) random: Random,
    /// How many times a cell is passed before it strikes.
    armed: BTreeMap<(&'static str, Point), u64>,
}

/// Most faults that strike at a cell, per history.
const CELLS: u64 = 12;
/// The same of what only happens to jobs that can lose instances.
const ELASTIC_CELLS: u64 = 10;
const RARE: [&str; 9] = [
    "instance_lost",
    "attempt_failed",
    "attempt_failed",
    "attempt_interrupted",
    "attempt_evicted",
    "job_ended",
    "stop_requested",
    "trial_raised",
    "attempt_thawed",
];

impl Faults {
    pub(crate) fn new(seed: u64, severity: Severity) -> Self {
        let mut random = Random::new(seed, 2);
        let mut armed = BTreeMap::new();
        if severity != Severity::None {
            for _ in 0..CELLS {
                // What happens rarely is waited for more often, and struck at once.
                let is_rare = random.one_in(2);
                let kind = random.pick(if is_rare { &RARE } else { &KINDS[..] });
                let (point, passes) = (random.pick(&Point::ALL), random.pick(&[0, 0, 0, 1, 2, 5, 11]));
                if impossible(kind, point).is_none() {
                    armed.insert((kind, point), if is_rare { 0 } else { passes });
                }
            }
            for _ in 0..ELASTIC_CELLS {
                let (kind, point, passes) =
                    (random.pick(&ELASTIC), random.pick(&Point::ALL), random.pick(&[0, 0, 1, 2]));
                if impossible(kind, point).is_none() {
                    armed.insert((kind, point), passes);
                }
            }
        }
        Self { severity, random, armed }
    }

    /// Faults that have a time.
    pub(crate) fn timed(&mut self) -> Vec<(u64, Fault)> {
        let mut timed = Vec::new();
        if self.severity == Severity::None {
            return timed;
        }
        let lethal = self.severity == Severity::Lethal;
        for _ in 0..self.random.between(4, 12) {
            let fault = match self.random.below(if lethal { 12 } else { 7 }) {
                0 | 1 => Fault::KillServer,
                2..=4 => Fault::Cut,
                5 => Fault::Jump(i64::try_from(self.random.below(6000)).expect("small") - 3000),
                6 => Fault::Full(self.random.between(10, 4000)),
                7 => Fault::Jump(i64::try_from(self.random.below(7_200_000)).expect("small") - 3_600_000),
                8 => Fault::Stall(self.random.between(1000, 200_000)),
                9 => Fault::Stall(self.random.between(1000, 10_000)),
                _ => Fault::KillAgent,
            };
            timed.push((self.random.below(60_000), fault));
        }
        for _ in 0..self.random.between(2, 8) {
            timed.push((self.random.below(60_000), Fault::Interrupt));
        }
        for _ in 0..self.random.between(4, 16) {
            let is_loss = lethal && self.random.one_in(2);
            timed.push((self.random.below(150_000), if is_loss { Fault::KillSome } else { Fault::InterruptSome }));
        }
        timed
    }

    /// Whether a fault strikes here.
    pub(crate) fn strikes(&mut self, kind: &'static str, point: Point) -> bool {
        match self.armed.get_mut(&(kind, point)) {
            None => false,
            Some(0) => {
                self.armed.remove(&(kind, point));
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// A chance that only exists where something goes wrong at all.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.severity != Severity::None && self.random.one_in(n)
    }

    pub(crate) fn lethal_one_in(&mut self, n: u64) -> bool {
        self.severity == Severity::Lethal && self.random.one_in(n)
    }

    /// How long a message takes, in milliseconds.
    pub(crate) fn latency(&mut self) -> u64 {
        if self.one_in(20) { self.random.between(100, 3000) } else { self.random.between(0, 3) }
    }

    /// How long the server is away after a crash.
    pub(crate) fn downtime(&mut self) -> u64 {
        if self.lethal_one_in(12) { self.random.between(60_000, 200_000) } else { self.random.between(1, 4000) }
    }
}
