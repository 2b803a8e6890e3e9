//! IAM policy documents: what they mean, and what they come to for a request.
//!
//! [`Policy`] is a parsed document, [`decide`] is IAM's evaluation logic for one account: an
//! explicit deny goes before any allow, an allow before the implicit deny ("Policy evaluation
//! logic", AWS IAM User Guide). What a document says is done or refused: it names no operator,
//! condition key or variable that is not evaluated here. Pure; no regular expressions.

mod condition;
mod document;
mod evaluate;
mod pattern;

pub use document::{Effect, Policy, PolicyError};
pub use evaluate::{Decision, Request, decide};
