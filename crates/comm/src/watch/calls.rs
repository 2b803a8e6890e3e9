//! What ranks said of their calls: in a dispute, and while they wait.

use std::collections::BTreeMap;

use super::message::Waiting;

/// Statements of one rank that are kept: it waits in few operations at a time.
const KEPT: usize = 8;

/// A group within an epoch.
type Group = (u64, Vec<u32>);

/// What ranks said of their calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// In disputes: by group, then by node.
    disputes: BTreeMap<Group, BTreeMap<usize, Option<String>>>,
    /// While waiting, the newest last.
    waiting: BTreeMap<usize, Vec<(u64, Waiting)>>,
}

impl Calls {
    /// That node said what it called. The first word counts: a group has one dispute in its life.
    pub(super) fn heard(&mut self, epoch: u64, members: Vec<u32>, node: usize, text: Option<String>) {
        self.disputes.entry((epoch, members)).or_default().entry(node).or_insert(text);
    }

    /// What that node said, if it said something.
    pub(super) fn said(&self, epoch: u64, members: &[u32], node: usize) -> Option<Option<String>> {
        self.disputes.get(&(epoch, members.to_vec()))?.get(&node).cloned()
    }

    /// That node waits.
    pub(super) fn waits(&mut self, epoch: u64, node: usize, waiting: Waiting) {
        let kept = self.waiting.entry(node).or_default();
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((epoch, waiting));
    }

    /// Whether that node has said exactly this.
    pub(super) fn has_said(&self, epoch: u64, node: usize, waiting: &Waiting) -> bool {
        self.waiting.get(&node).is_some_and(|kept| kept.iter().any(|(of, said)| *of == epoch && said == waiting))
    }

    /// Whether anybody waits in the same operation with another call.
    pub(super) fn disagrees(&self, epoch: u64, mine: &Waiting) -> bool {
        let same = |other: &Waiting| {
            other.members == mine.members && other.number == mine.number && other.between == mine.between
        };
        self.waiting
            .values()
            .flatten()
            .any(|(of, other)| *of == epoch && same(other) && other.signature != mine.signature)
    }

    /// Forgets groups before that epoch.
    pub(super) fn forget_before(&mut self, epoch: u64) {
        self.disputes.retain(|(of, _), _| *of >= epoch);
        self.waiting.values_mut().for_each(|kept| kept.retain(|(of, _)| *of >= epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_calls_of_the_same_operation_disagree() {
        let waiting = |number, signature| Waiting { members: vec![0, 1], number, between: None, signature };
        let mut calls = Calls::default();
        calls.waits(1, 0, waiting(5, 77));
        assert!(calls.disagrees(1, &waiting(5, 78)));
        for agreed in [(1, waiting(5, 77)), (1, waiting(6, 78)), (2, waiting(5, 78))] {
            assert!(!calls.disagrees(agreed.0, &agreed.1), "{agreed:?}");
        }
        assert!(calls.has_said(1, 0, &waiting(5, 77)) && !calls.has_said(1, 1, &waiting(5, 77)));
        calls.forget_before(2);
        assert!(!calls.disagrees(1, &waiting(5, 78)));
    }

    #[test]
    fn the_first_word_counts() {
        let mut calls = Calls::default();
        calls.heard(0, vec![0, 1], 1, Some("barrier".into()));
        calls.heard(0, vec![0, 1], 1, None);
        assert_eq!(calls.said(0, &[0, 1], 1), Some(Some("barrier".into())));
        assert_eq!(calls.said(0, &[0, 1], 0), None);
    }
}
