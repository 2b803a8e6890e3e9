//! What happened. The journal is a list of these, and the state is their fold.
//!
//! An event carries all that applying it needs, texts included: a later version words or decides otherwise without contradicting an old journal.

use serde::{Deserialize, Serialize};

use crate::{JobStatus, MetricValue, Placement, RankEnd, SecondaryStatus, Time, TrainingSpec};

/// Version of the encoding, the `v` of each event. It changes only when a decoder could misread an event; new kinds and new optional
/// fields do not change it.
pub const EVENT_FORMAT: u32 = 1;

/// Something that happened to a training job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When; never before the event before it.
    pub at: Time,
    /// Training job's name.
    pub job: String,
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
        spec: TrainingSpec,
        /// Status message.
        message: String,
    },
    /// It left the queue: capacity is held from here to [`Fact::Released`].
    AttemptLaunched {
        /// `<uid>-<number>`.
        attempt: String,
        /// What each instance may use.
        placement: Placement,
        /// The agents' lease, in seconds.
        lease_s: u64,
        /// Status message.
        message: String,
    },
    /// The job's secondary status followed its instances, or it has to wait. `Starting` while it holds capacity: its launch is delayed, and
    /// counts from here.
    JobMoved {
        /// To where.
        secondary: SecondaryStatus,
        /// Status message.
        message: String,
    },
    /// An instance entered a phase.
    InstanceMoved {
        /// Which attempt.
        attempt: String,
        /// From 1.
        host: u32,
        /// Where it is.
        phase: InstancePhase,
    },
    /// The training program on an instance is over.
    RankEnded {
        /// Which attempt.
        attempt: String,
        /// From 1.
        host: u32,
        /// How.
        end: RankEnd,
        /// Last value of every metric of this host.
        final_metrics: Vec<MetricValue>,
    },
    /// A checkpoint file is durable in the object store: its receipt, whose time is the event's. Changes nothing here.
    CheckpointSaved {
        /// Which attempt.
        attempt: String,
        /// From 1.
        host: u32,
        /// Below the checkpoint directory, and below the prefix in S3.
        path: String,
        /// Its length.
        bytes: u64,
        /// SHA-256 of its content, hexadecimal.
        sha256: String,
    },
    /// An instance's artifacts are with the server.
    InstanceUploaded {
        /// Which attempt.
        attempt: String,
        /// From 1.
        host: u32,
    },
    /// An instance is gone, and not through its program.
    InstanceLost {
        /// Which attempt.
        attempt: String,
        /// From 1.
        host: u32,
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
        attempt: String,
    },
    /// The job has its final status. Its row is final but for metrics of hosts that are still being stopped.
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
    /// The attempt failed through our own side and another one follows when it is released.
    AttemptFailed {
        /// Which attempt.
        attempt: String,
        /// What the job's failure reason would be.
        reason: String,
        /// Status message.
        message: String,
    },
    /// Nothing is awaited from the attempt's instances any more.
    ReleaseOrdered {
        /// Which attempt.
        attempt: String,
    },
    /// Its capacity is free. A job that is over leaves the hot state; one whose attempt failed waits for the next.
    Released {
        /// Which attempt; none for a job that was in the queue.
        attempt: Option<String>,
    },
}

/// Where an instance is, before its program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstancePhase {
    /// Channels are being mounted.
    Downloading,
    /// The training program runs.
    Training,
}

/// Why a running job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// `StopTrainingJob`.
    User,
    /// `MaxRuntimeInSeconds`.
    MaxRuntime,
}

/// The bytes are no event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Written by a newer version.
    #[error("event of format {found}, and this version reads formats up to {EVENT_FORMAT}: use the version that wrote it or a newer one")]
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
    /// The job whose view this event changed. Take the view after applying this event and before applying the next one: after
    /// [`Fact::Released`] there is none, and the row stays as it was.
    pub fn job(&self) -> Option<&str> {
        Some(&self.job)
    }

    /// Whether the views of waiting jobs changed too: their places, or what is free.
    pub fn moves_queue(&self) -> bool {
        matches!(self.fact, Fact::AttemptLaunched { .. } | Fact::JobEnded { .. } | Fact::Released { .. })
    }

    /// One line of JSON: `{"v":1,"at":..,"job":..,"type":..}` and the fact's own fields.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { v: EVENT_FORMAT, event: self }).expect("strings, numbers and lists always serialise")
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
