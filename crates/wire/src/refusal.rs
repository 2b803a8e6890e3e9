//! How requests are refused that break a rule which no table of shapes can say.

use std::str::FromStr as _;

use crate::{Error, S3Uri};

/// Names the member and what to do instead.
pub(crate) fn refuse<T>(path: &str, what: &str) -> Result<T, Error> {
    Err(Error::validation(format!("Invalid value at '{path}': {what}.")))
}

/// Programs cannot be given texts with a zero byte.
pub(crate) fn refuse_nul<'a>(path: &str, texts: impl IntoIterator<Item = &'a String>) -> Result<(), Error> {
    if texts.into_iter().any(|text| text.contains('\0')) {
        return refuse(path, "it has a NUL character, which no program can be given");
    }
    Ok(())
}

pub(crate) fn s3_uri(path: &str, text: &str) -> Result<S3Uri, Error> {
    S3Uri::from_str(text).or_else(|error| refuse(path, &format!("'{text}' is not an S3 location: {error}")))
}
