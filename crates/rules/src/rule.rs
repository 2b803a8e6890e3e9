//! What the Debugger's rules have in common.

use std::fmt::Debug;

use crate::finding::Finding;
use crate::selection::Selection;
use crate::step::Step;

/// A rule over saved tensors.
pub(crate) trait Rule: Debug + Send {
    /// What it reads. The job saves something of each, or the rule cannot be evaluated.
    fn needs(&self) -> &[Selection];

    /// What it reads besides where it is saved.
    fn also_reads(&self) -> Vec<&Selection> {
        Vec::new()
    }

    /// Judges the next step.
    fn observe(&mut self, step: &Step<'_>) -> Option<Finding>;

    /// Receives the next step of another run.
    fn observe_other(&mut self, _run: usize, _step: &Step<'_>) {}

    /// Judges the time that passed.
    fn pass_time(&mut self, _now_ms: u64) -> Option<Finding> {
        None
    }

    /// A file for people, with its name, once the training job has ended.
    fn report(&self) -> Option<(&'static str, String)> {
        None
    }

    /// The training job has ended. An error is why the rule could not be evaluated.
    fn end(&mut self) -> Result<Option<Finding>, String> {
        Ok(None)
    }
}
