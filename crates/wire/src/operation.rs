//! What is known of an operation: its names, and what goes in and out.

use crate::{
    Service,
    shape::{Member, Shape},
};

/// An operation that is served.
#[derive(Debug)]
pub struct Operation {
    /// Whose signature opens it.
    pub service: Service,
    /// Unique among its service's.
    pub name: &'static str,
    /// `X-Amz-Target` in awsJson: `SageMaker.ListTags`; empty in other protocols.
    pub target: &'static str,
    /// Method and path.
    pub http: (&'static str, &'static str),
    /// None: the typed input checks all.
    pub(crate) input: Option<&'static Shape>,
    /// Members of the output, each with those of its items if it is a list of structures. None: the
    /// response has no body.
    pub output: Option<&'static [(&'static str, &'static [&'static str])]>,
    /// Names of the errors that are its own, beside those that all operations have.
    pub errors: &'static [&'static str],
}

impl Operation {
    /// Members of the input, in the model's order.
    pub fn input_members(&self) -> impl Iterator<Item = &'static str> {
        self.members().iter().map(|member| member.name)
    }

    /// Whether the input must have this member.
    pub fn requires(&self, member: &str) -> bool {
        self.members().iter().any(|it| it.name == member && it.required)
    }

    /// The output's member of this name.
    pub fn output_member(&self, member: &str) -> Option<&'static (&'static str, &'static [&'static str])> {
        self.output?.iter().find(|(name, _)| *name == member)
    }

    /// The member of the output that is a list of structures, and their members.
    pub fn output_list(&self) -> Option<&'static (&'static str, &'static [&'static str])> {
        self.output?.iter().find(|(_, items)| !items.is_empty())
    }

    fn members(&self) -> &'static [Member] {
        match self.input {
            Some(Shape::Structure(members)) => members,
            _ => &[],
        }
    }
}
