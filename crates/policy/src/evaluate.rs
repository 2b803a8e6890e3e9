//! What documents come to.

use crate::{Effect, Policy};

/// What is asked for, and by whom.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// Twelve digits; there is one account.
    pub account: &'a str,
    /// The caller's ARN, and that of the role whose session it is.
    pub principals: Vec<String>,
    /// `sagemaker:CreateTrainingJob`.
    pub action: &'a str,
    /// An ARN, or `*` where the action is about none.
    pub resource: &'a str,
    /// Condition keys and values: names in lower case, but for the name of a tag behind `/`.
    pub keys: Vec<(String, String)>,
}

impl Request<'_> {
    pub(crate) fn values(&self, key: &str) -> Vec<&str> {
        self.keys.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.values("aws:username").into_iter().next()
    }
}

/// What follows for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Some statement permits it, and none forbids it.
    Allowed,
    /// A statement forbids it.
    ExplicitDeny,
    /// No statement is about it.
    ImplicitDeny,
}

/// What these documents come to together: those of an identity and those of the resource in its
/// own account alike. A deny goes before every allow, and without an allow nothing is permitted.
pub fn decide<'a>(policies: impl IntoIterator<Item = &'a Policy>, request: &Request<'_>) -> Decision {
    let mut decision = Decision::ImplicitDeny;
    for statement in policies.into_iter().flat_map(|policy| &policy.statements) {
        match statement.effect {
            Effect::Deny if statement.fits(request) => return Decision::ExplicitDeny,
            Effect::Allow if decision != Decision::Allowed && statement.fits(request) => decision = Decision::Allowed,
            Effect::Allow | Effect::Deny => {}
        }
    }
    decision
}

#[cfg(test)]
mod tests;
