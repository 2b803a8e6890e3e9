//! Agents: what each serves, does, and has not sent.

use std::{collections::VecDeque, time::Duration};

use shoal_link::{Frame, Report, ReportBody, ToServer};
use shoal_plane::{AttemptId, Host, Time};

use super::events::SimEvent;
use crate::scenario::Program;

/// An agent that sends nothing for so long is taken for lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Not welcomed yet.
    Nothing,
    Downloading,
    /// So many steps are done.
    Training(u32),
    /// Ordered to end.
    Ending,
    /// So many parts are sent.
    Uploading(u32),
    /// Only the release is awaited.
    Waiting,
    /// Released; its instance stays if it is parked.
    Leaving {
        parks: bool,
    },
    /// It serves no attempt.
    Idle,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Agent {
    /// What it serves; none while it is idle.
    pub(crate) attempt: Option<AttemptId>,
    pub(crate) program: Program,
    /// For a trial.
    pub(crate) units: Option<Units>,
    /// It waits at the end of a step for the leave to go on.
    pub(crate) stands: bool,
    /// How often it was started though it ran: never.
    pub(crate) twins: u32,
    /// How often its instance was started, with this time.
    pub(crate) life: u32,
    /// Its instance is taken away.
    pub(crate) leaves: bool,
    /// Hosts that make up the attempt, as far as it knows.
    pub(crate) members: Vec<Host>,
    pub(crate) doing: Doing,
    /// Numbers what it does, so that a step of something else is known to be stale.
    pub(crate) step: u64,
    pub(crate) stop: bool,
    pub(crate) lines: u32,
    pub(crate) has_uploaded: bool,
    pub(crate) spool: VecDeque<(u64, Frame<ToServer>)>,
    pub(crate) next: u64,
    pub(crate) connection: Option<u64>,
    pub(crate) welcomed: bool,
    /// Highest number sent on this connection.
    pub(crate) sent: u64,
    /// When something was last sent on it.
    pub(crate) sent_at: u64,
    /// When it last had a connection.
    pub(crate) seen: u64,
    /// Files that are not answered.
    pub(crate) files: VecDeque<String>,
    pub(crate) mirror: Option<Mirror>,
    /// What happens to it while its process is stopped.
    pub(crate) stalled: Option<Vec<SimEvent>>,
}

impl Agent {
    /// Its lease begins at its start, whether a server is there or not.
    pub(crate) fn new(attempt: AttemptId, program: Program, units: Option<Units>, now: u64) -> Self {
        Self {
            attempt: Some(attempt),
            program,
            units,
            stands: false,
            twins: 0,
            life: 1,
            leaves: false,
            members: Vec::new(),
            doing: Doing::Nothing,
            step: 0,
            stop: false,
            lines: 0,
            has_uploaded: false,
            spool: VecDeque::new(),
            next: 1,
            connection: None,
            welcomed: false,
            sent: 0,
            sent_at: 0,
            seen: now,
            files: VecDeque::new(),
            mirror: None,
            stalled: None,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.doing == Doing::Gone
    }

    /// Its program has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Uploading(_) | Doing::Waiting | Doing::Leaving { .. })
    }

    pub(crate) fn report(&mut self, at: Time, body: ReportBody) {
        let report = Report { seq: self.next, at_ms: at.0, body };
        self.spool.push_back((self.next, Frame::Message(ToServer::Report(report))));
        self.next += 1;
    }

    /// Whether the evaluation of a rule is among what is durable now.
    pub(crate) fn acknowledged(&mut self, seq: u64) -> bool {
        let is_evaluation = |frame: &Frame<ToServer>| match frame {
            Frame::Message(ToServer::Report(report)) => matches!(report.body, ReportBody::RuleEvaluated { .. }),
            _ => false,
        };
        let has_evaluation = self.spool.iter().any(|(number, frame)| *number <= seq && is_evaluation(frame));
        self.spool.retain(|(number, _)| *number > seq);
        self.next = self.next.max(seq + 1);
        has_evaluation
    }

    /// Its program has a fault that a rule finds.
    pub(crate) fn evaluates(&self) -> bool {
        self.units.is_none() && (self.program.download_ms + u64::from(self.program.steps)).is_multiple_of(11)
    }

    pub(crate) fn next_step(&mut self, doing: Doing) -> u64 {
        self.doing = doing;
        self.step += 1;
        self.step
    }

    /// Whom it takes for the members, if it has been connected since then.
    pub(crate) fn known_members(&self, since: u64) -> Option<&Vec<Host>> {
        let is_served = self.connection.is_some() && self.welcomed && self.seen < since && self.stalled.is_none();
        (is_served && !self.is_gone() && !self.is_over()).then_some(&self.members)
    }
}

/// An agent that has sent a file not longer ago is not ended before it is answered, if it has been
/// connected for as long as it takes until what a release has learnt of it reaches the processes.
const SENT_MS: u64 = 5000;
const KNOWN_MS: u64 = 7000;

/// A connection for files.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) connection: u64,
    pub(crate) ready_at: Option<u64>,
    /// Of the files that are not answered, how many were sent on it.
    pub(crate) sent: usize,
    pub(crate) sent_at: u64,
}

impl Mirror {
    /// A release has to wait for it.
    pub(crate) fn is_sending(&self, now: u64) -> bool {
        self.ready_at.is_some_and(|at| now.saturating_sub(at) > KNOWN_MS) && now.saturating_sub(self.sent_at) < SENT_MS
    }
}

/// A trial's part of an agent.
#[derive(Debug, Clone)]
pub(crate) struct Units {
    pub(crate) uid: String,
    /// Behind it when the attempt began.
    pub(crate) from: u32,
    /// It stands still there.
    pub(crate) to: Option<u32>,
    pub(crate) frozen: bool,
}

impl Units {
    /// What it says after the attempt's line of this number.
    pub(crate) fn value_after(&self, line: u32) -> f64 {
        value(&self.uid, self.from + line)
    }

    /// It may begin another unit after so many steps.
    pub(crate) fn may_step(&self, steps: u32) -> bool {
        !self.frozen && self.to.is_none_or(|to| self.from + steps < to)
    }
}

/// What a trial reports after so many units: better from unit to unit, and different from trial to
/// trial.
fn value(uid: &str, unit: u32) -> f64 {
    let hash = uid.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    f64::from(hash % 1000) / 1000.0 + 1.0 / f64::from(unit)
}
