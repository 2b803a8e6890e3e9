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

/// Of jobs that can lose instances.
pub(crate) const ELASTIC: [&str; 5] =
    ["instances_interrupted", "instances_vacated", "instances_cleared", "replacement_allowed", "instances_added"];

pub(crate) const KINDS: [&str; 37] = [
    "job_created",
    "attempt_launched",
    "job_moved",
    "instance_moved",
    "rank_ended",
    "checkpoint_saved",
    "rule_evaluated",
    "instance_uploaded",
    "instance_lost",
    "stop_requested",
    "uploads_ended",
    "job_ended",
    "attempt_failed",
    "attempt_interrupted",
    "attempt_evicted",
    "instances_interrupted",
    "instances_vacated",
    "instances_cleared",
    "replacement_allowed",
    "instances_added",
    "release_ordered",
    "released",
    "objective_reported",
    "trial_paused",
    "trial_parked",
    "trial_resumed",
    "trial_raised",
    "attempt_thawed",
    "tuning_created",
    "suggestions_wanted",
    "suggested",
    "judged",
    "trial_ended",
    "parallel_changed",
    "tuning_stopping",
    "tuning_ended",
    "tuning_released",
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
        Fact::RuleEvaluated { .. } => "rule_evaluated",
        Fact::InstanceUploaded { .. } => "instance_uploaded",
        Fact::InstanceLost { .. } => "instance_lost",
        Fact::StopRequested { .. } => "stop_requested",
        Fact::UploadsEnded { .. } => "uploads_ended",
        Fact::JobEnded { .. } => "job_ended",
        Fact::AttemptFailed { .. } => "attempt_failed",
        Fact::AttemptInterrupted { .. } => "attempt_interrupted",
        Fact::AttemptEvicted { .. } => "attempt_evicted",
        Fact::InstancesInterrupted { .. } => "instances_interrupted",
        Fact::InstancesVacated { .. } => "instances_vacated",
        Fact::InstancesCleared { .. } => "instances_cleared",
        Fact::ReplacementAllowed { .. } => "replacement_allowed",
        Fact::InstancesAdded { .. } => "instances_added",
        Fact::ReleaseOrdered { .. } => "release_ordered",
        Fact::Released { .. } => "released",
        Fact::ObjectiveReported { .. } => "objective_reported",
        Fact::TrialPaused { .. } => "trial_paused",
        Fact::TrialParked { .. } => "trial_parked",
        Fact::TrialResumed { .. } => "trial_resumed",
        Fact::TrialRaised { .. } => "trial_raised",
        Fact::AttemptThawed { .. } => "attempt_thawed",
        Fact::TuningCreated { .. } => "tuning_created",
        Fact::SuggestionsWanted { .. } => "suggestions_wanted",
        Fact::Suggested { .. } => "suggested",
        Fact::Judged { .. } => "judged",
        Fact::TrialEnded { .. } => "trial_ended",
        Fact::ParallelChanged { .. } => "parallel_changed",
        Fact::TuningStopping { .. } => "tuning_stopping",
        Fact::TuningEnded { .. } => "tuning_ended",
        Fact::TuningReleased => "tuning_released",
    }
}

/// Why a cell of the table cannot be struck.
pub(crate) fn impossible(kind: &str, point: Point) -> Option<&'static str> {
    let has_action = [
        "attempt_launched",
        "stop_requested",
        "uploads_ended",
        "job_ended",
        "attempt_failed",
        "attempt_interrupted",
        "attempt_evicted",
        "instances_interrupted",
        "instances_vacated",
        "instances_added",
        "release_ordered",
        "objective_reported",
        "trial_paused",
        "trial_raised",
        "attempt_thawed",
        "suggestions_wanted",
        "trial_ended",
    ];
    let no_report_leads_to_it =
        ["job_created", "attempt_launched", "attempt_interrupted", "attempt_evicted", "instances_cleared", "released"];
    match point {
        Point::MidAction | Point::AfterAction if !has_action.contains(&kind) => Some("the event has no action"),
        Point::Snapshot if kind == "job_created" => Some("another event ends its turn"),
        Point::BeforeAck if no_report_leads_to_it.contains(&kind) => Some("no report of an agent leads to it"),
        _ => None,
    }
}

/// Whether the suite must have struck here: at every point where it can be, but for facts of tuning
/// jobs and of instances that are lost or added while the others run, of which some come so seldom
/// alone or last in a turn that only the record itself is asked for.
fn is_due(kind: &str, point: Point) -> bool {
    let is_of_tuning = KINDS.iter().position(|known| *known == kind).is_some_and(|place| place >= 21);
    let is_seldom = is_of_tuning || ELASTIC.contains(&kind);
    let is_at_record = matches!(point, Point::BeforeAppend | Point::AfterAppend);
    impossible(kind, point).is_none() && (!is_seldom || (is_at_record && kind != "trial_parked"))
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

    /// Cells that could have been struck and were not, and cells that were though they are said to
    /// be impossible.
    pub fn holes(&self) -> Vec<String> {
        let cells = KINDS.iter().flat_map(|kind| Point::ALL.map(|point| (*kind, point)));
        let is_wrong = |cell: &(&'static str, Point)| match self.hits.contains_key(cell) {
            true => impossible(cell.0, cell.1).is_some(),
            false => is_due(cell.0, cell.1),
        };
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
