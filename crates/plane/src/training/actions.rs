//! What the shell is to do for a training job as things stand.

use super::{TrainingJob, messages};
use crate::{Action, gang::orders::Order};

impl TrainingJob {
    /// At most one action.
    pub(crate) fn pending_action(&self) -> Option<Action> {
        let gang = &self.gang;
        let current = gang.attempt.as_ref()?;
        let (job, attempt, number) = (gang.name.clone(), current.id.clone(), gang.number_of(current));
        let Some(order) = gang.order() else {
            let trial = self.trial.as_ref().filter(|trial| trial.raised && gang.in_progress() && !current.is_leaving())?;
            return Some(Action::Resume { attempt, until: trial.to });
        };
        Some(match order {
            Order::Launch => Action::Launch {
                job,
                attempt,
                number,
                placement: current.placement.clone(),
                instances: gang.spec.instances,
                lease_s: current.lease_s,
                trial: self.trial.as_ref().map(|trial| trial.launch()),
            },
            Order::Freeze => Action::Freeze { attempt },
            Order::Stop { hosts, grace_s, reason } => {
                Action::StopInstances { attempt, hosts, grace_s, reason: messages::stop_reason(self, reason).to_owned() }
            }
            Order::Store { hosts } => Action::StoreArtifacts { job, attempt, number, hosts },
            Order::Release => Action::Release { job, attempt },
        })
    }
}
