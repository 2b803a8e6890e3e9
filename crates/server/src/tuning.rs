//! Tuning jobs' searches: what the core asks of the tuner is computed here, on threads of their own, and goes back to it as commands.
//!
//! `strategy` makes studies of a request, `specs` what the core decides on; `searches` is one tuning job's studies and `worker` the threads that use
//! them; `children` composes trials' training jobs; `origins` knows which of them others can begin with; `parents` knows what a warm start knows; `near`
//! finds metric lines that nearly were the objective; `looks` keeps studies for people who look at them.

mod children;
mod looks;
mod near;
mod origins;
mod parents;
mod searches;
mod specs;
mod strategy;
#[cfg(test)]
mod tests;
mod worker;

use shoal_wire::{CreateTuningJob, Error, TuningDefinition};

pub(crate) use children::NewChild;
pub(crate) use looks::Looks;
pub use near::near_misses;
pub(crate) use searches::seed;
pub(crate) use specs::tuning_spec;
pub(crate) use strategy::{Design, designs};
pub(crate) use worker::{Tuner, start};

use crate::{Image, Images, options::known_image_of};

/// The request of a tuning job's row, with ranges for its parameters of Autotune.
///
/// # Errors
/// The row was written by a newer version.
pub(crate) fn restore(request: &[u8], images: &dyn Images) -> Result<CreateTuningJob, Error> {
    let mut request = shoal_wire::restore_tuning_job(request)?;
    settle(&mut request, images);
    Ok(request)
}

/// Gives parameters of Autotune their ranges.
pub(crate) fn settle(request: &mut CreateTuningJob, images: &dyn Images) {
    let autotune = request.autotune;
    let settled = |definition: TuningDefinition| {
        let tunable = match known_image_of(images, &definition.training) {
            Some(Image::Builtin(algorithm)) if autotune => algorithm.tunable,
            _ => Vec::new(),
        };
        definition.with_auto_ranges(&tunable, autotune)
    };
    request.definitions = std::mem::take(&mut request.definitions).into_iter().map(settled).collect();
}
