//! What the state is asked for from outside: views of jobs, why they wait, and what is to be done.

use std::collections::BTreeSet;

use crate::{Effects, JobName, JobView, Limits, PendingReason, QuotaUse, State, Time, TuningView, queue};

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

    /// What each user and each tag with a quota holds as of `now`, and may hold.
    pub fn quota_use(&self, now: Time) -> Vec<QuotaUse> {
        let (quotas, claimed) = (&self.capacity.quotas, &self.index.claimed);
        let users: BTreeSet<_> = quotas.users.keys().chain(claimed.users()).chain(self.usage.users()).collect();
        let of_user = |user: &String| QuotaUse {
            name: format!("user:{user}"),
            limits: quotas.of_user(user),
            held: claimed.user(user),
            used_s: quotas.half_life_s.map(|_| self.used_by(user, now.max(self.clock)) / 1000.0),
        };
        let of_tag = |(tag, limits): (&String, &Limits)| QuotaUse {
            name: format!("tag:{tag}"),
            limits: *limits,
            held: claimed.tag(tag),
            used_s: None,
        };
        users.into_iter().map(of_user).chain(quotas.tags.iter().map(of_tag)).collect()
    }

    /// Waiting jobs in order of creation, and why each waits as of now.
    pub fn waiting(&self) -> impl Iterator<Item = (&JobName, PendingReason)> {
        queue::reasons(self)
    }
}
