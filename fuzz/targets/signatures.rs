//! Heads of requests: routing and verifying never panic, a signed request verifies, and one byte of
//! it changed does not.
#![no_main]

use http::{Method, Request, Uri, request::Parts};
use libfuzzer_sys::fuzz_target;
use shoal_wire::{Route, route, sigv4};

const NOW: u64 = 1_795_000_000_000;

fn credentials() -> sigv4::Credentials {
    sigv4::Credentials { access_key_id: "AKIA".to_owned(), secret_access_key: "secret".to_owned(), session_token: None }
}

/// Lines: method, target, then `name: value`; what is no head is none.
fn head(text: &str) -> Option<Parts> {
    let mut lines = text.lines();
    let method = Method::from_bytes(lines.next()?.as_bytes()).ok()?;
    let mut request = Request::builder().method(method).uri(lines.next()?.parse::<Uri>().ok()?);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        request = request.header(name, value);
    }
    Some(request.body(()).ok()?.into_parts().0)
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (text, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let Some(mut head) = head(text) else { return };
    let routed = route(&head);
    assert!(sigv4::verify(&head, body.as_bytes(), &credentials(), NOW, 900).is_err(), "nobody has the secret");
    if !matches!(routed, Ok(Route::Api(_))) || head.headers.get("host").is_none() {
        return;
    }
    head.headers.remove("authorization");
    sigv4::sign(&mut head, body.as_bytes(), &credentials(), "us-east-1", "sagemaker", NOW);
    sigv4::verify(&head, body.as_bytes(), &credentials(), NOW, 900).expect("what we signed verifies");
    let mut altered = body.as_bytes().to_vec();
    altered.push(b' ');
    assert!(sigv4::verify(&head, &altered, &credentials(), NOW, 900).is_err(), "a changed body");
    let more = if head.uri.query().is_some() { format!("{}&x=y", head.uri) } else { format!("{}?x=y", head.uri) };
    if let Ok(uri) = more.parse() {
        head.uri = uri;
        assert!(sigv4::verify(&head, body.as_bytes(), &credentials(), NOW, 900).is_err(), "a changed query");
    }
});
