//! Hexadecimal texts: of bytes, of chance and of digests.

use std::io;

use hex_simd::AsciiCase;
use sha2::{Digest, Sha256};

/// `bytes` random bytes as hexadecimal.
///
/// # Errors
/// The system gives no randomness.
pub(crate) fn random_hex(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).map_err(io::Error::other)?;
    Ok(hex(&buffer))
}

/// SHA-256 of a text as hexadecimal.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// The text whose bytes this hexadecimal text has.
pub(crate) fn text_of_hex(hex: &str) -> Option<String> {
    String::from_utf8(hex_simd::decode_to_vec(hex).ok()?).ok()
}

/// Bytes as hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, AsciiCase::Lower)
}
