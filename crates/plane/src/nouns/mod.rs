//! Nouns: what commands, events, actions and rows are made of. They know nothing of states.

mod claim;
mod gang;
mod host;
mod names;
mod training;
mod trial;
mod trial_state;
mod tuning;
mod view;

pub use claim::Claim;
pub use gang::{Form, GangSpec, InstanceGroup};
pub use host::Host;
pub use names::{AttemptId, JobName, TuningName};
pub use training::{
    InstancePhase, JobStatus, MetricValue, RankEnd, RuleVerdict, SecondaryStatus, StopCause, Transition,
};
pub use trial::{TrialLaunch, TrialStart, TrialView};
pub use trial_state::{TrialState, trial_state};
pub use tuning::{
    BestTrial, DefinitionSpec, Objective, ObjectiveCounters, Pause, StudyRecord, TrainingCounters, TrialEnd, TuningEnd,
    TuningSpec, TuningStatus, TuningView,
};
pub use view::{JobView, PendingReason, QuotaLimit, RuleEvaluation};

/// For `skip_serializing_if`: the value that a field has where it is left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
