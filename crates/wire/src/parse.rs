//! A request's body becomes a call that keeps the constraints of the table.

use http::request::Parts;
use serde_json::Value;

use crate::{
    Call, CreateTuningJob, Error, ErrorCode, Protocol, Service, constraints, operation, query, tuning_job,
    validate::validate,
};

/// Bytes of the largest request that is read; the constraint table allows no request near it.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Finds the operation that a request calls, and checks its input. The signature is
/// [`crate::sigv4::verify`]'s business.
///
/// # Errors
/// The operation is not served, the body cannot be read, or the input violates constraints, all of
/// which are reported together.
pub fn parse(service: Service, head: &Parts, body: &[u8]) -> Result<Call, Error> {
    if body.len() > MAX_REQUEST_BYTES {
        return Err(Error::new(
            ErrorCode::RequestTooLarge,
            format!("The request has {} bytes; {MAX_REQUEST_BYTES} are allowed.", body.len()),
        ));
    }
    let operation = operation(service, head, body)?;
    let mut input = match (Protocol::of(service, head), operation.input) {
        (Protocol::Query, Some(shape)) => query::input(shape, &query::request_pairs(head, body)?),
        _ => serde_json::from_slice(if body.is_empty() { b"{}" } else { body }).map_err(|error| {
            Error::new(ErrorCode::SerializationException, format!("The request's body is not valid JSON: {error}"))
        })?,
    };
    if let Some(shape) = operation.input {
        validate(shape, &mut input)?;
    }
    Ok(Call { operation, input })
}

/// A CreateHyperParameterTuningJob request as [`parse`] has it, for clients that want to know
/// before they send it.
///
/// # Errors
/// Those of [`parse`].
pub fn check_tuning_job(mut input: Value) -> Result<CreateTuningJob, Error> {
    if let Some(shape) = constraints::input(Service::SageMaker, "CreateHyperParameterTuningJob") {
        validate(shape, &mut input)?;
    }
    tuning_job::create_tuning_job(input)
}
