//! Where histories were cut: kinds of events by the place of the fault.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use shoal_plane::Fact;

/// Where a fault strikes relative to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    /// The journal refuses the record; the server lives on.
    Refused,
    /// Decided; a crash before the record is durable.
    BeforeAppend,
    /// The record is durable; a crash before anything that follows from it.
    AfterAppend,
    /// A crash in the middle of the event's action.
    MidAction,
    /// The event's action is done; a crash before its answer.
    AfterAction,
    /// A crash before the asker is answered.
    BeforeReply,
    /// The core has answered; a crash before the report's number is durable.
    BeforeAck,
    /// A crash right after the record, and a restart from a snapshot that ends with it.
    Snapshot,
}

impl Point {
    pub(crate) const ALL: [Point; 8] = [
        Point::Refused,
        Point::BeforeAppend,
        Point::AfterAppend,
        Point::MidAction,
        Point::AfterAction,
        Point::BeforeReply,
        Point::BeforeAck,
        Point::Snapshot,
    ];

    fn title(self) -> &'static str {
        match self {
            Point::Refused => "refused",
            Point::BeforeAppend => "<append",
            Point::AfterAppend => "append>",
            Point::MidAction => "action",
            Point::AfterAction => "action>",
            Point::BeforeReply => "<reply",
            Point::BeforeAck => "<ack",
            Point::Snapshot => "snapshot",
        }
    }
}

pub(crate) const KINDS: [&str; 14] = [
    "job_created",
    "attempt_launched",
    "job_moved",
    "instance_moved",
    "rank_ended",
    "checkpoint_saved",
    "instance_uploaded",
    "instance_lost",
    "stop_requested",
    "uploads_ended",
    "job_ended",
    "attempt_failed",
    "release_ordered",
    "released",
];

/// The event's `type`.
pub(crate) fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::JobCreated { .. } => "job_created",
        Fact::AttemptLaunched { .. } => "attempt_launched",
        Fact::JobMoved { .. } => "job_moved",
        Fact::InstanceMoved { .. } => "instance_moved",
        Fact::RankEnded { .. } => "rank_ended",
        Fact::CheckpointSaved { .. } => "checkpoint_saved",
        Fact::InstanceUploaded { .. } => "instance_uploaded",
        Fact::InstanceLost { .. } => "instance_lost",
        Fact::StopRequested { .. } => "stop_requested",
        Fact::UploadsEnded { .. } => "uploads_ended",
        Fact::JobEnded { .. } => "job_ended",
        Fact::AttemptFailed { .. } => "attempt_failed",
        Fact::ReleaseOrdered { .. } => "release_ordered",
        Fact::Released { .. } => "released",
        _ => "tuning",
    }
}

/// Why a cell of the table cannot be struck.
pub(crate) fn impossible(kind: &str, point: Point) -> Option<&'static str> {
    let has_action = ["attempt_launched", "stop_requested", "uploads_ended", "job_ended", "attempt_failed", "release_ordered"];
    let no_report_leads_to_it = ["job_created", "attempt_launched", "released"];
    match point {
        Point::MidAction | Point::AfterAction if !has_action.contains(&kind) => Some("the event has no action"),
        Point::Snapshot if kind == "job_created" => Some("another event ends its turn"),
        Point::BeforeAck if no_report_leads_to_it.contains(&kind) => Some("no report of an agent leads to it"),
        _ => None,
    }
}

/// How often each kind of event was struck at each point.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    hits: BTreeMap<(&'static str, Point), u64>,
}

impl Coverage {
    pub(crate) fn hit(&mut self, kind: &'static str, point: Point) {
        *self.hits.entry((kind, point)).or_default() += 1;
    }

    /// Takes another history's in.
    pub fn add(&mut self, other: &Coverage) {
        for (cell, hits) in &other.hits {
            *self.hits.entry(*cell).or_default() += hits;
        }
    }

    /// Cells that could have been struck and were not, and cells that were though they are said to be impossible.
    pub fn holes(&self) -> Vec<String> {
        let cells = KINDS.iter().flat_map(|kind| Point::ALL.map(|point| (*kind, point)));
        let is_wrong = |cell: &(&'static str, Point)| self.hits.contains_key(cell) == impossible(cell.0, cell.1).is_some();
        cells.filter(is_wrong).map(|(kind, point)| format!("{kind} at {}", point.title())).collect()
    }
}

/// The table; `-` for what cannot be, with the reasons below.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons = BTreeMap::<&str, Vec<String>>::new();
        write!(f, "{:18}", "event")?;
        for point in Point::ALL {
            write!(f, "{:>10}", point.title())?;
        }
        for kind in KINDS {
            write!(f, "\n{kind:18}")?;
            for point in Point::ALL {
                match impossible(kind, point) {
                    Some(reason) => {
                        reasons.entry(reason).or_default().push(format!("{kind} at {}", point.title()));
                        write!(f, "{:>10}", "-")?;
                    }
                    None => write!(f, "{:>10}", self.hits.get(&(kind, point)).unwrap_or(&0))?,
                }
            }
        }
        for (reason, cells) in reasons {
            let mut line = String::new();
            write!(line, "{reason}: {}", cells.join(", "))?;
            write!(f, "\n- {line}")?;
        }
        Ok(())
    }
}
