//! What is to be done for a gang as things stand.

use super::{
    Gang, Stop,
    instances::{Attempt, Instance, Stage},
};
use crate::{
    Host, StopCause,
    limits::{EVICTION_GRACE_S, PEER_GRACE_S},
};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    Launch,
    Freeze,
    Stop {
        hosts: Vec<Host>,
        grace_s: u32,
        reason: StopReason,
    },
    Store {
        /// Those whose artifacts are complete.
        hosts: Vec<Host>,
    },
    Release,
}

/// Why instances are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The machine's memory ran short.
    Evicted,
    /// The instances are taken away.
    Interrupted,
    /// To make room for others.
    Paused,
    /// Another attempt follows.
    AttemptFailed,
    /// The gang has failed.
    Failed,
    Cause(StopCause),
}

impl Gang {
    /// At most one thing at a time.
    pub(crate) fn order(&self) -> Option<Order> {
        let attempt = self.attempt.as_ref()?;
        match attempt.stage {
            Stage::Running => self.order_while_running(attempt),
            Stage::Storing => Some(Order::Store { hosts: attempt.hosts(|instance| *instance == Instance::Uploaded) }),
            Stage::Releasing => Some(Order::Release),
        }
    }

    fn order_while_running(&self, attempt: &Attempt) -> Option<Order> {
        let stop =
            |hosts: Vec<Host>, grace_s, reason| (!hosts.is_empty()).then_some(Order::Stop { hosts, grace_s, reason });
        match (&self.end, &self.stop) {
            (Some(end), _) if end.failed => stop(attempt.hosts(Instance::active), PEER_GRACE_S, StopReason::Failed),
            (Some(_), _) => None,
            (None, Some(Stop { cause, .. })) => {
                let awaited = attempt.hosts(|instance| {
                    instance.is_member() && !matches!(instance, Instance::Uploaded | Instance::Lost { .. })
                });
                stop(awaited, self.spec.grace_s, StopReason::Cause(*cause))
            }
            (None, None) if attempt.failed.is_some() => {
                let (grace_s, reason) = match () {
                    () if attempt.evicted => (self.spec.grace_s.min(EVICTION_GRACE_S), StopReason::Evicted),
                    () if attempt.interrupted => (self.spec.grace_s, StopReason::Interrupted),
                    () if self.rest.is_some() => (PEER_GRACE_S, StopReason::Paused),
                    () => (PEER_GRACE_S, StopReason::AttemptFailed),
                };
                stop(attempt.hosts(Instance::active), grace_s, reason)
            }
            (None, None) if attempt.any(|instance| *instance == Instance::Starting) => Some(Order::Launch),
            (None, None) => self.rests_frozen().then_some(Order::Freeze),
        }
    }
}
