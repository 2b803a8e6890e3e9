//! The Debugger's rules over saved tensors and the profiler's over system metrics, with AWS's
//! names, parameters and defaults. Pure: steps, readings and times come in, findings go out.
//!
//! [`declarations()`] lists every rule with its parameters. [`Evaluation`] is one rule at work for
//! a training job: it is created from the `RuleParameters` of the request, observes [`Step`]s in
//! their order and ends with a status as AWS has them. [`SystemEvaluation`] is the same for the
//! profiler's rules. What a rule remembers is bounded, whatever the training job saves.

mod catalogue;
mod check;
mod debugger;
mod declaration;
mod declarations;
mod evaluation;
mod finding;
mod parameters;
mod profiler;
mod rule;
mod selection;
mod snapshots;
mod statistics;
mod step;
mod system_evaluation;
mod system_rule;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod training;

pub use catalogue::Catalogue;
pub use check::check;
pub use declaration::{Declaration, Subject};
pub use declarations::{declaration, declarations};
pub use evaluation::{Conclusion, Evaluation, Status};
pub use finding::Finding;
pub use parameters::{Kind, Parameter, ParameterError};
pub use selection::Groups;
pub use statistics::Statistics;
pub use step::{Saved, Step};
pub use system_evaluation::{SystemEvaluation, found_by_report};
pub use system_rule::{Reading, Spent, StepTime};
