//! What clients know: those of training jobs and those of tuning jobs.

use crate::scenario::{Job, tunings::Tuning};

/// What a job's client knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// It has asked before, and was not answered.
    pub(crate) asked: bool,
    pub(crate) created: bool,
    pub(crate) stopped: bool,
    /// Something has happened to the job that its outcome may depend on.
    pub(crate) touched: bool,
}

impl Client {
    pub(crate) fn is_done(&self, job: &Job) -> bool {
        self.created && (self.stopped || job.stop_after_ms.is_none())
    }
}

/// What a tuning job's client knows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuner {
    pub(crate) asked: bool,
    pub(crate) created: bool,
    pub(crate) stopped: bool,
}

impl Tuner {
    pub(crate) fn is_done(self, tuning: &Tuning) -> bool {
        self.created && (self.stopped || tuning.stop_after_ms.is_none())
    }
}
