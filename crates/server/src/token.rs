//! Tokens of pages: where a list goes on, sealed to the question that it is the answer of.

use serde::Serialize;
use shoal_wire::Error;

use crate::{
    hex::{hex, sha256_hex, text_of_hex},
    internal::internal,
};

/// Hexadecimal digits of the seal.
const SEAL: usize = 16;

/// The text that distinguishes a question from others: its parts, without the page.
pub(crate) fn question(parts: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(parts).map_err(|error| internal(&error))
}

/// The token of a place in the answer to a question.
pub(crate) fn seal(question: &str, place: &str) -> String {
    format!("{}{}", digest(question, place), hex(place.as_bytes()))
}

/// The place of a token.
///
/// # Errors
/// It was not given out for this question, or is not what was given out.
pub(crate) fn open(question: &str, token: &str) -> Result<String, Error> {
    let place = token.get(SEAL..).and_then(text_of_hex);
    place.filter(|place| digest(question, place) == token[..SEAL]).ok_or_else(|| {
        Error::validation(
            "Invalid pagination token (nextToken): give the token of the page before unchanged, with the same filters \
             and order.",
        )
    })
}

fn digest(question: &str, place: &str) -> String {
    let mut digest = sha256_hex(&format!("{question}\0{place}"));
    digest.truncate(SEAL);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_opens() {
        for place in ["", "1795245868250/a-1", "é\n/\""] {
            let token = seal("by name", place);
            assert!(token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
            assert_eq!(open("by name", &token).as_deref(), Ok(place));
            assert!(open("by time", &token).is_err(), "another question");
            for at in 0..token.len() {
                let mut bytes = token.clone().into_bytes();
                bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
                let tampered = String::from_utf8(bytes).unwrap();
                assert!(open("by name", &tampered).is_err(), "{tampered}");
            }
        }
        for made_up in
            ["", "x", "made up", "1795245868250/a-1", "0123456789abcdé", "0123456789abcdef0", "0123456789abcdefzz"]
        {
            assert!(open("by name", made_up).is_err(), "{made_up}");
        }
    }
}
