//! What an ID token states, and whether it is the answer to a request (OpenID Connect Core 1.0,
//! 3.1.3.7). Its signature is not looked at: it comes from the token endpoint itself, whose TLS
//! certificate was verified, which that section permits.

use serde_json::{Map, Value};

/// How far the provider's clock may be off, in seconds.
const SKEW_S: u64 = 300;

/// What must be true of a token.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: u64,
}

/// The claims of a token that is the answer to the request.
///
/// # Errors
/// What is wrong with it.
pub(super) fn claims(token: &str, expected: &Expected<'_>) -> Result<Map<String, Value>, String> {
    let payload = token.split('.').nth(1).ok_or("its ID token is no JWT")?;
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(payload);
    let claims = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(Value::Object(claims)) = claims else { return Err("its ID token is no JWT".to_owned()) };
    check(&claims, expected)?;
    Ok(claims)
}

fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), String> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(format!("its ID token has the issuer '{}', not '{}'", text("iss").unwrap_or(""), expected.issuer));
    }
    let audience = strings(claims.get("aud"));
    if !audience.contains(&expected.client_id) {
        return Err(format!("its ID token is for {}, not for {}", audience.join(", "), expected.client_id));
    }
    let party = text("azp");
    if party.map_or(audience.len() > 1, |party| party != expected.client_id) {
        return Err("its ID token was issued to another client".to_owned());
    }
    // Some providers have fractions.
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let now_s = expected.now_s as f64;
    let skew_s = f64::from(u32::try_from(SKEW_S).unwrap_or(u32::MAX));
    match claims.get("exp").and_then(Value::as_f64) {
        Some(end_s) if now_s < end_s + skew_s => {}
        Some(_) => return Err("its ID token has expired: is one of the two clocks wrong?".to_owned()),
        None => return Err("its ID token has no end".to_owned()),
    }
    if text("nonce") != Some(expected.nonce) {
        return Err("its ID token belongs to another request".to_owned());
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err("its ID token has no subject".to_owned());
    }
    Ok(())
}

/// A claim that is a text or a list of texts.
pub(super) fn strings(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://login.example.org", client_id: "shoal", nonce: "n", now_s: 1_000_000 };

    fn token(changed: &Value) -> String {
        let mut claims =
            json!({"iss": "https://login.example.org", "sub": "7", "aud": "shoal", "nonce": "n", "exp": 1_000_060});
        for (name, value) in changed.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let encoded = base64_simd::URL_SAFE_NO_PAD.encode_to_string(claims.to_string());
        format!("e30.{encoded}.c2ln")
    }

    #[test]
    fn only_the_answer_to_the_request_counts() {
        for right in [
            json!({}),
            json!({"aud": ["shoal"]}),
            json!({"aud": ["other", "shoal"], "azp": "shoal"}),
            json!({"exp": 999_900.5}),
        ] {
            assert_eq!(
                claims(&token(&right), &EXPECTED).map(|claims| claims["sub"].clone()),
                Ok(json!("7")),
                "{right}"
            );
        }
        for (bad, what) in [
            (json!({"iss": "https://login.example.org.evil"}), "issuer"),
            (json!({"iss": null}), "issuer"),
            (json!({"aud": "other"}), "for other"),
            (json!({"aud": ["shoal", "other"]}), "another client"),
            (json!({"azp": "other"}), "another client"),
            (json!({"exp": 999_000}), "expired"),
            (json!({"exp": "never"}), "no end"),
            (json!({"nonce": "m"}), "another request"),
            (json!({"nonce": null}), "another request"),
            (json!({"sub": ""}), "no subject"),
        ] {
            let why = claims(&token(&bad), &EXPECTED).unwrap_err();
            assert!(why.contains(what), "{bad}: {why}");
        }
        for no_token in ["", "a.b", "e30.e30", "e30.W10.x"] {
            assert!(claims(no_token, &EXPECTED).is_err(), "{no_token}");
        }
    }

    #[test]
    fn claims_are_texts_or_lists() {
        assert_eq!(strings(Some(&json!(["a", 7, "b"]))), ["a", "b"]);
        assert_eq!(strings(Some(&json!("a"))), ["a"]);
        assert!(strings(Some(&json!(7))).is_empty() && strings(None).is_empty());
    }
}
