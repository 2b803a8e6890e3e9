//! Creation judged without a server: what follows from the request and the table of images alone,
//! for clients that want to know before they upload anything. What a server stores (buckets,
//! objects, parents, names) only the server can judge.

use serde_json::Value;
use shoal_wire::{Error, check_tuning_job};

use crate::{Images, admission, tuning};

/// Whether a server with these images could take a CreateHyperParameterTuningJob request.
///
/// # Errors
/// What the server would answer.
pub fn check_tuning_request(request: Value, images: &dyn Images) -> Result<(), Error> {
    let request = check_tuning_job(request)?;
    for definition in &request.definitions {
        admission::check_definition(images, &request, definition)?;
    }
    // No suggestion is asked for, so any seed does.
    let designs = tuning::designs(&request, 0, images)?;
    admission::check_objectives(images, &request, &designs)?;
    admission::check_end(&request, &designs)
}
