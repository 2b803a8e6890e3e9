//! What the shell is to do for a training job as things stand.

use super::{TrainingJob, messages};
use crate::{
    Action,
    gang::{elastic::ElasticOrder, instances::Instance, orders::Order},
    limits::LEAVE_NOTICE_S,
};

impl TrainingJob {
    /// All that is to be done, in order.
    pub(crate) fn pending_actions(&self) -> Vec<Action> {
        let attempt = self.gang.attempt.as_ref().map(|attempt| attempt.id.clone()).unwrap_or_default();
        let of_places = self.gang.elastic_orders().into_iter().map(|order| {
            let attempt = attempt.clone();
            match order {
                ElasticOrder::Members { hosts } => Action::SetMembers { attempt, hosts },
                ElasticOrder::Clear { hosts } => Action::ClearInstances { attempt, hosts },
                ElasticOrder::Interrupt { hosts } => Action::InterruptInstances {
                    attempt,
                    hosts,
                    notice_s: LEAVE_NOTICE_S,
                    grace_s: self.gang.spec.grace_s,
                    reason: messages::TAKEN_AWAY.to_owned(),
                },
            }
        });
        self.pending_action().into_iter().chain(of_places).collect()
    }

    /// What is to be done for the attempt as a whole.
    fn pending_action(&self) -> Option<Action> {
        let gang = &self.gang;
        let current = gang.attempt.as_ref()?;
        let (job, attempt, number) = (gang.name.clone(), current.id.clone(), gang.number_of(current));
        let Some(order) = gang.order() else {
            let trial =
                self.trial.as_ref().filter(|trial| trial.raised && gang.in_progress() && !current.is_leaving())?;
            return Some(Action::Resume { attempt, until: trial.to });
        };
        Some(match order {
            Order::Launch => Action::Launch {
                job,
                attempt,
                number,
                placement: current.placement.clone(),
                instances: gang.spec.instances,
                hosts: current.hosts(|instance| *instance == Instance::Starting),
                joins: current.complete,
                lease_s: current.lease_s,
                trial: self.trial.as_ref().map(|trial| trial.launch()),
            },
            Order::Freeze => Action::Freeze { attempt },
            Order::Stop { hosts, grace_s, reason } => Action::StopInstances {
                attempt,
                hosts,
                grace_s,
                reason: messages::stop_reason(self, reason).to_owned(),
            },
            Order::Store { hosts } => Action::StoreArtifacts { job, attempt, number, hosts },
            Order::Release => Action::Release { job, attempt },
        })
    }
}

/// What of an action was not to be done before. How far a trial may run is another thing each time,
/// and so is who is a member; what is to be done for instances is news for those that were not
/// among them.
pub(super) fn news(before: &[Action], mut action: Action) -> Option<Action> {
    if let Action::Resume { .. } | Action::SetMembers { .. } = action {
        return (!before.contains(&action)).then_some(action);
    }
    let earlier = before.iter().find(|before| std::mem::discriminant(*before) == std::mem::discriminant(&action));
    let Some(earlier) = earlier else { return Some(action) };
    match (earlier, &mut action) {
        (Action::Launch { hosts: before, .. }, Action::Launch { hosts, .. })
        | (Action::InterruptInstances { hosts: before, .. }, Action::InterruptInstances { hosts, .. })
        | (Action::ClearInstances { hosts: before, .. }, Action::ClearInstances { hosts, .. }) => {
            hosts.retain(|host| !before.contains(host));
            (!hosts.is_empty()).then_some(action)
        }
        _ => None,
    }
}
