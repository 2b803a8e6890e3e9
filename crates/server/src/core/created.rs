//! What commands bring for rows that the core does not know.

use std::collections::HashMap;

use shoal_plane::{Child, Command, JobName, TuningName};
use shoal_store::RowChange;
use shoal_wire::Stored;

/// The part of a new job's row that the core does not know: a training job's or a tuning job's.
#[derive(Debug, Clone)]
pub(crate) struct Opaque {
    pub(crate) uid: String,
    pub(crate) arn: String,
    pub(crate) request: Vec<u8>,
    pub(crate) spec: Vec<u8>,
    pub(crate) tags: Vec<u8>,
    pub(crate) creator: Option<String>,
}

impl Opaque {
    pub(crate) fn new(uid: String, arn: String, request: &impl Stored, creator: Option<String>) -> Self {
        let raw = request.raw();
        let (received, tags) = (serde_json::to_vec(raw), serde_json::to_vec(&raw.get("Tags")));
        let written = "JSON always serialises";
        let (request, spec, tags) = (received.expect(written), request.to_stored(), tags.expect(written));
        Self { uid, arn, request, spec, tags, creator }
    }
}

/// A trial's training job, with what the core does not know of it.
#[derive(Debug, Clone)]
pub(crate) struct NewChild {
    pub(crate) child: Child,
    pub(crate) opaque: Opaque,
    /// Names and texts of the tuned hyperparameters, as a JSON list of pairs in the order of the
    /// space.
    pub(crate) tuned: Vec<u8>,
}

/// What is new in a turn beside what the core knows of it.
#[derive(Default)]
pub(super) struct Created {
    /// Training jobs by name.
    pub(super) jobs: HashMap<JobName, Opaque>,
    /// Tuning jobs by name.
    pub(super) tunings: HashMap<TuningName, Opaque>,
    /// Rows beside those of jobs.
    pub(super) beside: Vec<RowChange>,
    /// What was tuned, by training job.
    pub(super) tuned: HashMap<JobName, Vec<u8>>,
}

impl Created {
    pub(super) fn note(&mut self, command: Command, opaque: Option<Opaque>, children: Vec<NewChild>) {
        match (command, opaque) {
            (Command::CreateTrainingJob { name, .. }, Some(opaque)) => drop(self.jobs.insert(name, opaque)),
            (Command::CreateTuningJob { name, .. }, Some(opaque)) => drop(self.tunings.insert(name, opaque)),
            _ => {}
        }
        for NewChild { child, opaque, tuned } in children {
            self.tuned.insert(child.name.clone(), tuned);
            self.jobs.insert(child.name, opaque);
        }
    }
}
