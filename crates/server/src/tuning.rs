//! Tuning jobs' searches: what the core asks of the tuner is computed here, on threads of their own, and goes back to it as commands.
//!
//! `strategy` makes studies of a request, `specs` what the core decides on; `searches` is one tuning job's studies and `worker` the threads that use
//! them; `children` composes trials' training jobs; `near` finds metric lines that nearly were the objective.

mod children;
#[allow(dead_code, reason = "for the operations of the API")]
mod near;
mod searches;
#[allow(dead_code, reason = "for the operations of the API")]
mod specs;
mod strategy;
mod worker;

use shoal_wire::{CreateTuningJob, Error};

pub(crate) use children::NewChild;
#[allow(unused_imports, reason = "for the operations of the API")]
pub(crate) use near::near_misses;
#[allow(unused_imports, reason = "for the operations of the API")]
pub(crate) use searches::seed;
#[allow(unused_imports, reason = "for the operations of the API")]
pub(crate) use specs::tuning_spec;
pub(crate) use strategy::{Design, designs};
pub(crate) use worker::{Tuner, start};

/// The request of a tuning job's row, with ranges for its parameters of Autotune.
///
/// # Errors
/// The row was written by a newer version.
pub(crate) fn restore(request: &[u8]) -> Result<CreateTuningJob, Error> {
    let mut request = shoal_wire::restore_tuning_job(request)?;
    settle(&mut request);
    Ok(request)
}

/// Gives parameters of Autotune their ranges.
pub(crate) fn settle(request: &mut CreateTuningJob) {
    let autotune = request.autotune;
    let definitions = std::mem::take(&mut request.definitions);
    request.definitions = definitions.into_iter().map(|definition| definition.with_auto_ranges(&[], autotune)).collect();
}
