//! How a rule is declared.

use crate::parameters::{Parameter, Parameters};
use crate::rule::Rule;
use crate::system_rule::SystemRule;

/// A rule as it is declared.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// AWS's name, the value of `rule_to_invoke`.
    pub name: &'static str,
    /// What it judges.
    pub summary: &'static str,
    /// Its own parameters; each rule has `start_step`, `end_step` and `action_json` as well.
    pub parameters: &'static [Parameter],
    /// Collections that it reads with its defaults.
    pub collections: &'static [&'static str],
    pub(crate) make: Make,
}

/// What a rule judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Saved tensors: `DebugRuleConfigurations`.
    Tensors,
    /// System metrics: `ProfilerRuleConfigurations`.
    System,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Make {
    Tensors(fn(&Parameters) -> Box<dyn Rule>),
    System(fn(&Parameters) -> Box<dyn SystemRule>),
    /// Runs all other rules of the profiler.
    Report,
}

impl Declaration {
    /// What it judges.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self.make {
            Make::Tensors(_) => Subject::Tensors,
            Make::System(_) | Make::Report => Subject::System,
        }
    }
}
