//! Kinds of plain resources that are named by others, and of the links between them.

use shoal_store::ResourceKind;

pub(crate) const EXPERIMENT: ResourceKind = ResourceKind::new("experiment");
pub(crate) const TRIAL: ResourceKind = ResourceKind::new("experiment-trial");
/// A component of a training job has that job as its parent, as long as the job is there.
pub(crate) const TRIAL_COMPONENT: ResourceKind = ResourceKind::new("experiment-trial-component");
pub(crate) const ARTIFACT: ResourceKind = ResourceKind::new("artifact");
pub(crate) const ACTION: ResourceKind = ResourceKind::new("action");
pub(crate) const CONTEXT: ResourceKind = ResourceKind::new("context");

/// Which components are in which trials: its parent is the trial, its keys are the component and
/// the experiment.
pub(crate) const TRIAL_LINK: ResourceKind = ResourceKind::new("trial-association");
/// An association of lineage: its parent is the source's ARN, its keys are the destination's ARN
/// and type, its status is the source's type; its name has both ARNs and the association's type.
pub(crate) const ASSOCIATION: ResourceKind = ResourceKind::new("association");
