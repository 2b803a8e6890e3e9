//! How ranks hear of each other's fate.

use std::{fmt, sync::Arc, time::Duration};

use super::{Alarm, Fault};

/// How one group's ranks hear of each other's fate. Implementations raise the alarm by themselves.
pub(crate) trait Watch: Send + Sync + fmt::Debug {
    /// What every wait loop of this group polls.
    fn alarm(&self) -> &Arc<Alarm>;

    /// Tells every rank of the group, this one included.
    fn tell(&self, fault: &Fault);

    /// Tells every rank that this one makes the group anew, and before that why: whoever has not
    /// heard of the loss yet is not left without its name.
    fn revoke(&self) {
        if let Some(fault @ (Fault::Died { .. } | Fault::Hung { .. } | Fault::GaveUp { .. })) = self.alarm().fault() {
            self.tell(&fault);
        }
        self.tell(&Fault::Revoked);
    }

    /// Tells the others what this rank called in a dispute of a group of these members (if it
    /// knows), and gives what each member said; waits at most `patience` for those that have not
    /// yet. A group has one dispute in its life.
    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>>;

    /// This rank has waited long in operation `number` of these members (all if not said), or of
    /// `between` two of them, and called what `signature` says. Whether another waits in the same
    /// operation and called something else. Transports where every call meets every other need not
    /// know.
    fn waits(
        &self,
        _members: Option<&[usize]>,
        _number: u64,
        _between: Option<(usize, usize)>,
        _signature: u64,
    ) -> bool {
        false
    }
}

/// The watch of a group that was split off.
#[derive(Debug)]
pub(crate) struct Among {
    whole: Arc<dyn Watch>,
    members: Vec<usize>,
    alarm: Arc<Alarm>,
}

impl Among {
    /// `members` of the whole group, by their numbers there, in the order of their new ones.
    pub(crate) fn new(whole: &Arc<dyn Watch>, members: &[usize]) -> Self {
        Self { whole: Arc::clone(whole), members: members.to_vec(), alarm: whole.alarm().part(members) }
    }
}

impl Watch for Among {
    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn tell(&self, fault: &Fault) {
        self.whole.tell(&Fault::Within { members: self.members.clone(), fault: Box::new(fault.clone()) });
    }

    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>> {
        let members: Vec<_> = members.iter().map(|member| self.members[*member]).collect();
        self.whole.calls(&members, mine, patience)
    }

    fn waits(&self, members: Option<&[usize]>, number: u64, between: Option<(usize, usize)>, signature: u64) -> bool {
        let members = members.map_or_else(
            || self.members.clone(),
            |members| members.iter().map(|member| self.members[*member]).collect(),
        );
        self.whole.waits(Some(&members), number, between, signature)
    }
}
