//! A request's body becomes a call, and a call a typed input.

use http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    CreateTuningJob, Error, ErrorCode, Operation, Protocol, Service, operation, operations, query, tuning_job,
    validate::validate,
};

/// Bytes of the largest request that is read; the constraint table allows no request near it.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;

/// A call of an operation whose input keeps the constraints of the table.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is called.
    pub operation: &'static Operation,
    /// Without members that are null or unknown to the table.
    pub input: Value,
}

/// The typed input of an operation, or of several that are alike.
pub trait Input: Sized {
    /// Reads a call's input, and checks what a table of shapes cannot say.
    ///
    /// # Errors
    /// The first rule that is broken.
    fn read(call: Call) -> Result<Self, Error>;
}

impl Call {
    /// The typed input.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn read<I: Input>(self) -> Result<I, Error> {
        I::read(self)
    }
}

/// For callers that read the members themselves.
impl Input for Call {
    fn read(call: Call) -> Result<Self, Error> {
        Ok(call)
    }
}

impl Input for () {
    fn read(_: Call) -> Result<Self, Error> {
        Ok(())
    }
}

/// Inputs without rules beyond those of the table.
macro_rules! plain_inputs {
    ($($input:ty),* $(,)?) => {
        $(impl $crate::Input for $input {
            fn read(call: $crate::Call) -> Result<Self, $crate::Error> {
                $crate::call::read(call.input)
            }
        })*
    };
}
pub(crate) use plain_inputs;

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
    if let Some(shape) = operations::input(Service::SageMaker, "CreateHyperParameterTuningJob") {
        validate(shape, &mut input)?;
    }
    tuning_job::create_tuning_job(input)
}

/// A validated input as its request's type.
pub(crate) fn read<T: DeserializeOwned>(input: Value) -> Result<T, Error> {
    // The table has checked every type that is read here, so this is about numbers at the edges of
    // their types.
    serde_json::from_value(input).map_err(|error| Error::new(ErrorCode::SerializationException, error.to_string()))
}
