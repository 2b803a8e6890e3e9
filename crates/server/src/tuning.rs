//! Tuning jobs' searches: what the core asks of the tuner is computed here, on threads of their
//! own, and goes back to it as commands.
//!
//! `strategy` makes studies of a request, `specs` what the core decides on; `searches` is one
//! tuning job's studies and `worker` the threads that use them; `children` composes trials'
//! training jobs; `origins` knows which of them others can begin with; `parents` knows what a warm
//! start knows; `near` finds metric lines that nearly were the objective; `looks` keeps studies for
//! people who look at them.

mod children;
mod looks;
mod near;
mod origins;
mod parents;
mod searches;
mod specs;
mod strategy;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

pub(crate) use looks::Looks;
pub use near::near_misses;
pub(crate) use searches::seed;
pub(crate) use specs::tuning_spec;
pub(crate) use strategy::{Design, designs};
pub(crate) use worker::{ServerDesk, Tuner, start};
