//! IAM policy documents: what they mean, and what they come to for a request.
//!
//! [`Policy`] is a parsed document, [`decide`] is IAM's evaluation logic for one account: an
//! explicit deny goes before any allow, an allow before the implicit deny ("Policy evaluation
//! logic", AWS IAM User Guide). What a document contains is done or refused: it has no operator,
//! condition key or variable that is not evaluated here. Pure.
//!
//! Written here, as translating documents into Cedar's language would leave IAM's own logic
//! (wildcards in actions, conditions on missing keys, principals of buckets' policies) to be
//! written all the same, beside 128 crates that take 340 s of processor time to compile and 5 MB of
//! the binary.

mod condition;
mod document;
mod evaluate;
mod pattern;

pub use document::{Effect, Policy, PolicyError};
pub use evaluate::{Decision, Request, decide};
