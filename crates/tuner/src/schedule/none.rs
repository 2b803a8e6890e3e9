//! No scheduling.

use crate::{History, Next, Record, Rng, Scheduler, Stage, TrialId, Verdict};

/// Every trial runs to its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everyone;

impl Scheduler for Everyone {
    fn next(&self, stage: &Stage<'_>, _rng: &mut Rng) -> Next {
        start_or_end(stage)
    }

    fn judge(&self, _stage: &Stage<'_>, _trial: TrialId) -> Vec<(TrialId, Verdict)> {
        Vec::new()
    }

    fn follow(&mut self, _history: &History, _record: &Record) {}
}

/// What an idle worker is to do where trials only start and stop.
pub(super) fn start_or_end(stage: &Stage<'_>) -> Next {
    if stage.may_start {
        Next::New { bracket: 0, to: None }
    } else if stage.history.running() > 0 {
        Next::Wait
    } else {
        Next::End
    }
}
