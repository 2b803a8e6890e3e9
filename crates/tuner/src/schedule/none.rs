//! No scheduling.

use crate::{History, Next, Record, Rng, Scheduler, TrialId, Verdict};

/// Every trial runs to its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everyone;

impl Scheduler for Everyone {
    fn next(&self, _history: &History, may_start: bool, _rng: &mut Rng) -> Next {
        if may_start { Next::New { bracket: 0, to: None } } else { Next::End }
    }

    fn judge(&self, _history: &History, _trial: TrialId) -> Vec<(TrialId, Verdict)> {
        Vec::new()
    }

    fn follow(&mut self, _history: &History, _record: &Record) {}
}
