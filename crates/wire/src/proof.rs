//! Proofs that the holder of a secret key wrote a text: HMAC-SHA256 in hexadecimal. The label in
//! front of the text names the purpose; a proof for one purpose is worth nothing for another.

use hex_simd::AsciiCase;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

fn hmac(secret: &str, label: &str, text: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(label.as_bytes());
    mac.update(text.as_bytes());
    mac
}

/// The proof of a text.
#[must_use]
pub fn of(secret: &str, label: &str, text: &str) -> String {
    hex_simd::encode_to_string(hmac(secret, label, text).finalize().into_bytes(), AsciiCase::Lower)
}

/// Whether `proof` is that of the text, in a time that does not depend on how much of it is right.
#[must_use]
pub fn holds(secret: &str, label: &str, text: &str, proof: &str) -> bool {
    let bytes = hex_simd::decode_to_vec(proof);
    proof.len() == 64 && bytes.is_ok_and(|bytes| hmac(secret, label, text).verify_slice(&bytes).is_ok())
}

/// Whether two texts are equal, in a time that does not depend on how much of them is.
#[must_use]
pub fn equal(secret: &str, one: &str, other: &str) -> bool {
    const LABEL: &str = "comparison:";
    holds(secret, LABEL, one, &of(secret, LABEL, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_secret_one_purpose_and_one_text() {
        let proof = of("secret", "label:", "text");
        for (secret, label, text, proof, expected) in [
            ("secret", "label:", "text", proof.as_str(), true),
            ("other", "label:", "text", &proof, false),
            ("secret", "other:", "text", &proof, false),
            ("secret", "label:", "texts", &proof, false),
            ("secret", "label:", "text", &proof[..63], false),
            ("secret", "label:", "text", "", false),
            ("secret", "label:", "text", &"x".repeat(64), false),
        ] {
            assert_eq!(holds(secret, label, text, proof), expected, "{secret} {label} {text} {proof}");
        }
        assert!(equal("secret", "a", "a") && !equal("secret", "a", "b") && !equal("secret", "a", ""));
    }
}
