//! Calls of operations, and how they become typed inputs.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, ErrorCode, Operation};

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

/// A validated input as its request's type.
pub(crate) fn read<T: DeserializeOwned>(input: Value) -> Result<T, Error> {
    // The table has checked every type that is read here, so this is about numbers at the edges of
    // their types.
    serde_json::from_value(input).map_err(|error| Error::new(ErrorCode::SerializationException, error.to_string()))
}
