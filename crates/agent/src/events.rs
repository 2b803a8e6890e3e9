//! What the agent's main loop waits for.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use shoal_link::{Assignment, Order, Visit};

use crate::output::Said;
use crate::pack::PackError;
use crate::program::Ended;

/// Everything that can happen to an agent.
#[derive(Debug)]
pub(crate) enum Event {
    /// The server said what to do: first of all, and once.
    Assigned {
        /// What to do.
        assignment: Box<Assignment>,
        /// What the server has of this instance already: something only if an earlier agent of it
        /// has died.
        acked: u64,
    },
    /// The server wants something; orders are repeated after every reconnection.
    Order(Order),
    /// The server does not want this agent.
    Refused {
        /// Why.
        reason: String,
    },
    /// The server has been away for too long.
    LeaseOver {
        /// For people: how long it was waited for, and what to check.
        reason: String,
        /// What the program gets to end by itself.
        grace: Duration,
    },
    /// The first host's agent has made the job's network.
    Network {
        /// What it is joined by.
        handle: String,
    },
    /// Somebody wants to look after the instance.
    Visit {
        /// Names the visit.
        id: String,
        /// What for.
        visit: Visit,
    },
    /// The program has written more than it may.
    Overfull {
        /// So much.
        bytes: u64,
    },
    /// A pipe cannot be fed, as the channel's data is not as requested.
    Unfed {
        /// Why.
        reason: String,
    },
    /// The program has ended.
    Exited(Ended),
    /// All rules have come to their conclusions.
    Evaluated,
    /// The same of the user's own rules.
    OwnEvaluated,
    /// The files of a directory that is mirrored are saved, as far as they can be.
    Mirrored,
    /// What the program left is on its way, or cannot be.
    Packed(Result<(), PackError>),
    /// All that the program has said is on its way.
    Said(Said),
}

/// The next one; `None` when the time has come.
pub(crate) fn next_event(arriving: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let Some(until) = until else { return arriving.recv().ok() };
    arriving.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}
