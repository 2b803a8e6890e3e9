//! What happened. The journal is a list of these, and the state is their fold.
//!
//! An event carries all that applying it needs, texts included: a later version words or decides
//! otherwise without contradicting an old journal.

use serde::{Deserialize, Serialize};

use shoal_tuner::Outcome;

use crate::{
    AttemptId, GangSpec, Host, InstancePhase, JobName, JobStatus, MetricValue, Placement, RankEnd, RuleVerdict,
    SecondaryStatus, StopCause, StudyRecord, Time, TrialEnd, TrialStart, TuningEnd, TuningSpec, TuningStatus,
};

/// Version of the encoding, the `v` of each event. It changes only when a decoder could misread an
/// event; new kinds and new optional fields do not change it.
pub const EVENT_FORMAT: u32 = 1;

/// Something that happened to a training job or to a tuning job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When; never before the event before it.
    pub at: Time,
    /// The training job's name, or the tuning job's: [`Fact::is_of_tuning`].
    #[serde(rename = "job")]
    pub name: String,
    /// What.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    /// A request was accepted; the job stands at the end of the queue.
    JobCreated {
        /// Attempts are named `<uid>-<number>`.
        uid: String,
        /// What the core decides on.
        spec: GangSpec,
        /// Status message.
        message: String,
        /// Whose trial it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trial: Option<TrialStart>,
    },
    /// It left the queue: capacity is held from here to [`Fact::Released`].
    AttemptLaunched {
        /// `<uid>-<number>`.
        attempt: AttemptId,
        /// What each instance may use.
        placement: Placement,
        /// The agents' lease, in seconds.
        lease_s: u64,
        /// Status message.
        message: String,
    },
    /// The job's secondary status followed its instances, or it has to wait. `Starting` while it
    /// holds capacity: its launch is delayed, and counts from here.
    JobMoved {
        /// To where.
        secondary: SecondaryStatus,
        /// Status message.
        message: String,
    },
    /// An instance entered a phase.
    InstanceMoved {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
        /// Where it is.
        phase: InstancePhase,
    },
    /// The training program on an instance is over.
    RankEnded {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
        /// How.
        end: RankEnd,
        /// Last value of every metric of this host.
        final_metrics: Vec<MetricValue>,
    },
    /// The receipt of a checkpoint file, durable at the event's time; changes nothing here.
    CheckpointSaved {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
        /// Below the checkpoint directory, and below the prefix in S3.
        path: String,
        /// Its length.
        bytes: u64,
        /// SHA-256 of its content, hexadecimal.
        sha256: String,
    },
    /// The evaluation of a rule is over on an instance.
    RuleEvaluated {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
        /// `RuleConfigurationName`.
        rule: String,
        /// What it found.
        verdict: RuleVerdict,
        /// For people.
        details: String,
    },
    /// An instance's artifacts are with the server.
    InstanceUploaded {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
    },
    /// An instance is gone, and not through its program.
    InstanceLost {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1.
        host: Host,
        /// Why.
        reason: String,
    },
    /// A stop began.
    StopRequested {
        /// Who wants it.
        cause: StopCause,
        /// Status message.
        message: String,
    },
    /// All instances' artifacts are with the server; they are to be joined and stored.
    UploadsEnded {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// The job has its final status; metrics of hosts that are being stopped may follow.
    JobEnded {
        /// `Completed`, `Failed` or `Stopped`.
        status: JobStatus,
        /// The same, finer.
        secondary: SecondaryStatus,
        /// Status message.
        message: String,
        /// For `Failed`.
        failure_reason: Option<String>,
    },
    /// The attempt failed and another one follows when it is released.
    AttemptFailed {
        /// Which attempt.
        attempt: AttemptId,
        /// What the job's failure reason would be.
        reason: String,
        /// Status message.
        message: String,
        /// It had served, and does not count as a retry.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaced: bool,
    },
    /// The instances of a managed spot training are taken away: its programs receive SIGTERM, and
    /// another attempt follows when this one is released.
    AttemptInterrupted {
        /// Which attempt.
        attempt: AttemptId,
        /// Status message.
        message: String,
    },
    /// The machine's memory ran short, and this attempt is ended: its programs receive SIGTERM, and
    /// another attempt follows when there is room.
    AttemptEvicted {
        /// Which attempt.
        attempt: AttemptId,
        /// Memory that its instances used together, in bytes: what the next attempt holds from its
        /// start.
        used_bytes: u64,
        /// Status message.
        message: String,
    },
    /// These instances are taken away, the others continue: SIGTERM follows after a notice.
    InstancesInterrupted {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
        /// Status message.
        message: String,
    },
    /// These instances were lost or have left, the others continue: their rest is to be removed.
    InstancesVacated {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
        /// Status message, where it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Nothing is left of these instances, and their capacity is free.
    InstancesCleared {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
        /// No others start in their places before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Time>,
    },
    /// Instances may start in these places again.
    ReplacementAllowed {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
    },
    /// New instances start in these places of an attempt that runs: they hold capacity from here.
    InstancesAdded {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
        /// GPU indexes of each.
        gpus: Vec<Vec<u32>>,
        /// The node of each; none: where those before them were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<String>,
        /// Status message.
        message: String,
    },
    /// Nothing is awaited from the attempt's instances any more.
    ReleaseOrdered {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// Its capacity is free. A job that is over leaves the hot state; one whose attempt failed or
    /// was interrupted waits for the next.
    Released {
        /// Which attempt; none for a job that was in the queue.
        attempt: Option<AttemptId>,
    },
    /// A trial's training job reported a value of its objective.
    ObjectiveReported {
        /// Which attempt.
        attempt: AttemptId,
        /// From 1; the host whose values count.
        host: Host,
        /// Units of resource that the trial has behind it, from 1.
        resource: u32,
        /// None: it is not a finite number.
        value: Option<f64>,
        /// Number of the request that the tuner judges it; none when the tuning job ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    },
    /// A trial's training job makes room for others, until [`Fact::TrialResumed`].
    TrialPaused {
        /// Which attempt, if it is on instances.
        attempt: Option<AttemptId>,
        /// Its programs are frozen and hold their memory; otherwise they are ended, and the attempt
        /// is released.
        frozen: bool,
        /// Status message.
        message: String,
        /// What its hosts upload is stored before the release.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stores: bool,
        /// Its secondary status stays what it is, though its attempt is ended, and through the
        /// start of the next one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unseen: bool,
    },
    /// A frozen trial's memory is wanted: its attempt is ended and released. It stays paused.
    TrialParked {
        /// Which attempt.
        attempt: AttemptId,
        /// Status message.
        message: String,
        /// What its hosts upload is stored before the release.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stores: bool,
        /// Its rest is no run time. Events of earlier versions do not say so, and counted it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rested: bool,
    },
    /// A paused trial is to go on: it waits for capacity.
    TrialResumed {
        /// It pauses there.
        to: Option<u32>,
        /// Status message.
        message: String,
    },
    /// A trial that is not paused may run further.
    TrialRaised {
        /// It pauses there.
        to: Option<u32>,
    },
    /// A frozen attempt goes on.
    AttemptThawed {
        /// Which attempt.
        attempt: AttemptId,
        /// Status message.
        message: String,
    },
    /// A request for a tuning job was accepted.
    TuningCreated {
        /// Random, from outside.
        uid: String,
        /// What the core decides on.
        spec: Box<TuningSpec>,
    },
    /// The tuner is asked for trials.
    SuggestionsWanted {
        /// Number of the request.
        seq: u64,
        /// How many may run beside those that do.
        wanted: u32,
        /// How many of them may be new.
        starts: u32,
    },
    /// It has answered. Its trials' training jobs follow in the same turn.
    Suggested {
        /// Number of the request.
        seq: u64,
        /// To be kept for its studies.
        records: Vec<StudyRecord>,
        /// Definitions of which there will be no more trials.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        exhausted: Vec<u32>,
        /// It has nothing more to do until something happens.
        waits: bool,
    },
    /// The tuner has judged a report or an end. What follows for the trials comes in the same turn.
    Judged {
        /// Number of the request.
        seq: u64,
        /// To be kept for its studies.
        records: Vec<StudyRecord>,
        /// Convergence is detected, for the first time.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        converged: bool,
    },
    /// A trial is over: its training job has ended.
    TrialEnded {
        /// Index of its definition.
        definition: u32,
        /// Number in the definition's study.
        trial: u32,
        /// Training job's name.
        training_job: JobName,
        /// How the training job ended.
        end: TrialEnd,
        /// What the tuner is told.
        outcome: Outcome,
        /// Final value of the first objective.
        value: Option<f64>,
        /// It is the best one now.
        is_best: bool,
        /// Trials in a row that did not improve the best by 1 %, this one included.
        not_improving: u32,
        /// Its training time, in seconds.
        training_s: u64,
        /// Number of the request that the tuner learns of it; none when the tuning job ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
    },
    /// More or fewer trials may run at once from now on. None is stopped for it.
    ParallelChanged {
        /// At least 1.
        max_parallel: u32,
    },
    /// The tuning job comes to its end: no trial is started any more, and those that live are
    /// stopped in the same turn.
    TuningStopping {
        /// Why.
        end: TuningEnd,
        /// For one that will have failed.
        failure_reason: Option<String>,
    },
    /// The tuning job has its final status: no trial lives.
    TuningEnded {
        /// `Completed`, `Failed` or `Stopped`.
        status: TuningStatus,
        /// Why.
        end: TuningEnd,
        /// For `Failed`.
        failure_reason: Option<String>,
    },
    /// All its training jobs are released: it leaves the hot state.
    TuningReleased,
}

impl Fact {
    /// The event's `job` is a tuning job.
    pub fn is_of_tuning(&self) -> bool {
        matches!(
            self,
            Fact::TuningCreated { .. }
                | Fact::SuggestionsWanted { .. }
                | Fact::Suggested { .. }
                | Fact::Judged { .. }
                | Fact::TrialEnded { .. }
                | Fact::ParallelChanged { .. }
                | Fact::TuningStopping { .. }
                | Fact::TuningEnded { .. }
                | Fact::TuningReleased
        )
    }
}

/// The bytes are no event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Written by a newer version.
    #[error(
        "event of format {found}, and this version reads formats up to {EVENT_FORMAT}: use the version that wrote it \
         or a newer one"
    )]
    Format {
        /// Its `v`.
        found: u32,
    },
    /// Not JSON of an event.
    #[error("malformed event")]
    Malformed(#[from] serde_json::Error),
}

#[derive(Serialize)]
struct Envelope<'a> {
    v: u32,
    #[serde(flatten)]
    event: &'a Event,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

impl Event {
    /// The training job whose view this event changed. Take the view after applying this event and
    /// before applying the next one: after [`Fact::Released`] there is none, and the row stays as
    /// it was.
    pub fn job(&self) -> Option<&str> {
        (!self.fact.is_of_tuning()).then_some(&self.name)
    }

    /// The tuning job that this event is about.
    pub fn tuning(&self) -> Option<&str> {
        self.fact.is_of_tuning().then_some(&self.name)
    }

    /// Whether who waits or what is free has changed.
    pub(crate) fn moves_capacity(&self) -> bool {
        matches!(
            self.fact,
            Fact::JobCreated { .. }
                | Fact::TrialPaused { .. }
                | Fact::TrialResumed { .. }
                | Fact::InstancesCleared { .. }
                | Fact::ReplacementAllowed { .. }
                | Fact::Released { .. }
        )
    }

    /// Whether the views of waiting jobs changed too: their places, or what is free.
    pub fn moves_queue(&self) -> bool {
        matches!(
            self.fact,
            Fact::AttemptLaunched { .. }
                | Fact::AttemptThawed { .. }
                | Fact::JobEnded { .. }
                | Fact::TrialPaused { .. }
                | Fact::TrialResumed { .. }
                | Fact::InstancesCleared { .. }
                | Fact::InstancesAdded { .. }
                | Fact::Released { .. }
        )
    }

    /// One line of JSON: `{"v":1,"at":..,"job":..,"type":..}` and the fact's own fields.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { v: EVENT_FORMAT, event: self })
            .expect("strings, numbers and lists always serialise")
    }

    /// The event of these bytes.
    ///
    /// # Errors
    /// They are from a newer version, or none at all.
    pub fn decode(bytes: &[u8]) -> Result<Event, EventError> {
        let Version { v } = serde_json::from_slice(bytes)?;
        if v > EVENT_FORMAT {
            return Err(EventError::Format { found: v });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}
