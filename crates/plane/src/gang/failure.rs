//! Which host is to blame for a failed attempt.
//!
//! One host's end is another's: when a rank dies, its peers lose a connection and exit too, often
//! reported before it. So of all failures that are known when the attempt fails, the culprit is the
//! one that can least be a consequence, and of equals the earliest by the agents' clocks:
//!
//! 1. ran out of memory, was killed by SIGKILL (which nobody does to itself), or was lost with its
//!    agent;
//! 2. died by another signal, or left a failure file;
//! 3. just exited.

use super::{
    Gang,
    instances::{Attempt, Instance},
};
use crate::{Host, RankEnd, Time};

pub(crate) const SIGKILL: i32 = 9;

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure<'a> {
    /// A program ended: badly, or at all where it was to serve.
    Program { host: Host, end: &'a RankEnd },
    /// An instance is gone, and not through its program.
    Lost { host: Host, reason: &'a str },
    /// No instance reported in time.
    NotLaunched,
    /// These hosts did not upload their artifacts in time.
    NotUploaded { hosts: Vec<Host> },
}

impl Gang {
    /// A program that ends so has failed.
    pub(crate) fn is_failure(&self, end: &RankEnd) -> bool {
        self.spec.serves() || !end.success()
    }

    /// When the server learnt of the attempt's first failure.
    pub(crate) fn first_failure(&self, attempt: &Attempt) -> Option<Time> {
        let counts = |(host, instance): (Host, _)| (!self.survives(attempt, host)).then_some(instance);
        let failures =
            Host::numbered().zip(&attempt.instances).filter_map(counts).filter_map(|instance| match instance {
                Instance::Ended { end, seen } if self.is_failure(end) => Some(*seen),
                Instance::Lost { seen, .. } => Some(*seen),
                _ => None,
            });
        failures.min()
    }

    /// The culprit's failure, if any instance has failed.
    pub(crate) fn failure<'a>(&self, attempt: &'a Attempt) -> Option<Failure<'a>> {
        let culprit = Host::numbered()
            .zip(&attempt.instances)
            .filter(|(host, _)| !self.survives(attempt, *host))
            .filter_map(|(host, instance)| self.blame(instance).map(|(rank, at)| (rank, at, host, instance)))
            .min_by_key(|(rank, at, host, _)| (*rank, *at, *host));
        match culprit? {
            (_, _, host, Instance::Ended { end, .. }) => Some(Failure::Program { host, end }),
            (_, _, host, Instance::Lost { reason, .. }) => Some(Failure::Lost { host, reason }),
            _ => None,
        }
    }

    /// Smaller is guiltier.
    fn blame(&self, instance: &Instance) -> Option<(u8, Time)> {
        match instance {
            Instance::Ended { end, .. } if !self.is_failure(end) => None,
            Instance::Ended { end, .. } => {
                let rank = match (end.out_of_memory || end.crowded_out.is_some(), end.signal, &end.failure_file) {
                    (true, ..) | (_, Some(SIGKILL), _) => 0,
                    (_, Some(_), _) | (_, _, Some(_)) => 1,
                    _ => 2,
                };
                Some((rank, end.at))
            }
            Instance::Lost { seen, .. } => Some((0, *seen)),
            _ => None,
        }
    }
}
