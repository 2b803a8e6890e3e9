//! The query protocol's requests: a form with `Action`, read into the same JSON values that awsJson services send.

use serde_json::{Map, Value};

use crate::{
    Error, ErrorCode,
    constraints::{Member, Shape},
    sigv4::percent_decode,
};

/// Pairs of a form or a query string.
pub(crate) fn pairs(form: &[u8]) -> Result<Vec<(String, String)>, Error> {
    let malformed = || Error::new(ErrorCode::SerializationException, "The form in the request's body is not UTF-8.");
    let form = std::str::from_utf8(form).map_err(|_| malformed())?;
    let decode = |text: &str| String::from_utf8(percent_decode(&text.replace('+', " "))).map_err(|_| malformed());
    form.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| Ok((decode(name)?, decode(value)?)))
        .collect()
}

/// The members of an operation's input. Only plain texts are read: no operation that is served has other members.
pub(crate) fn input(shape: &Shape, pairs: &[(String, String)]) -> Value {
    let Shape::Structure(members) = shape else { return Value::Null };
    let text = |member: &Member| {
        let (_, value) = pairs.iter().find(|(name, _)| name == member.name)?;
        Some((member.name.to_owned(), Value::String(value.clone())))
    };
    Value::Object(members.iter().filter_map(text).collect::<Map<_, _>>())
}
