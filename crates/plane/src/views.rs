//! What the state is asked for from outside: views of jobs, why they wait, and what is to be done.

use crate::{Effects, JobName, JobView, PendingReason, State, TuningView, queue};

impl State {
    /// All that is to be done as things stand, for a server that has just started.
    pub fn pending(&self) -> Effects {
        Effects {
            actions: self.holders().flat_map(|(job, _)| job.pending_actions()).collect(),
            requests: self.tunings.values().flat_map(|tuning| tuning.pending_requests()).collect(),
        }
    }

    /// A live job as of now; `None` once it is released.
    pub fn view(&self, job: &str) -> Option<JobView> {
        let job = self.jobs.get(job)?;
        Some(job.view(queue::reason(self, job)))
    }

    /// A live tuning job as of now; `None` once all its training jobs are released.
    pub fn tuning(&self, name: &str) -> Option<TuningView> {
        Some(self.tunings.get(name)?.view())
    }

    /// Waiting jobs from the head of the queue on, and why each waits as of now.
    pub fn waiting(&self) -> impl Iterator<Item = (&JobName, PendingReason)> {
        queue::reasons(self)
    }
}
