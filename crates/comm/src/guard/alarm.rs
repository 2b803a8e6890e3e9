//! What ends the work of a group, and the word that its wait loops poll.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU32, Ordering},
};

/// Something that ends the work of the whole group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A rank's process is gone.
    Died { rank: usize, how: String },
    /// A rank is silent.
    Hung { rank: usize, milliseconds: u64 },
    /// Another rank gave up by itself.
    GaveUp { rank: usize, why: String },
    /// Ranks called different things as this number, which counts messages where it is between two
    /// (sender, receiver).
    Dispute { number: u64, between: Option<(usize, usize)> },
    /// The group was re-formed.
    Revoked,
    /// Something that concerns only a group that was split off: its members by their numbers here,
    /// and the fault by their numbers there.
    Within { members: Vec<usize>, fault: Box<Fault> },
}

impl Fault {
    /// What this means to a group of these members, if it concerns them.
    fn within(&self, members: &[usize]) -> Option<Self> {
        let place = |rank: &usize| members.iter().position(|member| member == rank);
        match self {
            Self::Died { rank, how } => Some(Self::Died { rank: place(rank)?, how: how.clone() }),
            Self::Hung { rank, milliseconds } => Some(Self::Hung { rank: place(rank)?, milliseconds: *milliseconds }),
            Self::GaveUp { rank, why } => Some(Self::GaveUp { rank: place(rank)?, why: why.clone() }),
            Self::Revoked => Some(Self::Revoked),
            Self::Within { members: concerned, fault } if concerned == members => Some((**fault).clone()),
            Self::Within { .. } | Self::Dispute { .. } => None,
        }
    }
}

/// One word per group and process that every wait loop polls. The first fault stays.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    raised: AtomicU32,
    fault: Mutex<Option<Fault>>,
    /// Of groups that were split off, with their members.
    parts: Mutex<Vec<(Vec<usize>, Weak<Alarm>)>>,
    /// Ranks that said goodbye: what waits for one of them waits in vain, and nothing else is
    /// wrong.
    left: Mutex<Vec<usize>>,
}

impl Alarm {
    /// Raises the alarm, if nobody has. Groups that were split off hear of what concerns them.
    pub(crate) fn raise(&self, fault: Fault) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|(_, part)| part.strong_count() > 0);
        for (members, part) in parts.iter() {
            if let (Some(fault), Some(part)) = (fault.within(members), part.upgrade()) {
                part.raise(fault);
            }
        }
        drop(parts);
        if matches!(fault, Fault::Within { .. }) {
            return;
        }
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        self.raised.store(1, Ordering::Release);
    }

    /// That rank ends in order. Whoever does not need it any more goes on.
    pub(crate) fn leave(&self, rank: usize) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(rank);
        for (members, part) in self.parts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let (Some(place), Some(part)) = (members.iter().position(|member| *member == rank), part.upgrade()) {
                part.leave(place);
            }
        }
    }

    /// Whether that rank said goodbye.
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains(&rank)
    }

    /// The alarm of a group that was split off.
    pub(super) fn part(&self, members: &[usize]) -> Arc<Self> {
        let part = Arc::new(Self::default());
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((members.to_vec(), Arc::downgrade(&part)));
        if let Some(fault) = self.fault().and_then(|fault| fault.within(members)) {
            part.raise(fault);
        }
        (0..members.len()).filter(|place| self.has_left(members[*place])).for_each(|place| part.leave(place));
        part
    }

    /// Whether anything is wrong: one load.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed) != 0
    }

    /// What is wrong.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_stays() {
        let alarm = Alarm::default();
        assert!(!alarm.is_raised());
        alarm.raise(Fault::Died { rank: 1, how: "gone".to_owned() });
        alarm.raise(Fault::Hung { rank: 2, milliseconds: 1 });
        assert_eq!(alarm.fault(), Some(Fault::Died { rank: 1, how: "gone".to_owned() }));
    }

    #[test]
    fn groups_that_were_split_off_hear_of_what_concerns_them() {
        let whole = Alarm::default();
        let (one, two) = (whole.part(&[2, 0]), whole.part(&[1, 3]));
        whole
            .raise(Fault::Within { members: vec![1, 3], fault: Box::new(Fault::Dispute { number: 5, between: None }) });
        assert_eq!((whole.fault(), one.fault()), (None, None));
        assert_eq!(two.fault(), Some(Fault::Dispute { number: 5, between: None }));
        whole.raise(Fault::Hung { rank: 2, milliseconds: 7 });
        assert_eq!(one.fault(), Some(Fault::Hung { rank: 0, milliseconds: 7 }));
        assert_eq!(whole.part(&[1]).fault(), None);
        assert!(whole.part(&[2]).is_raised());
    }
}
