//! AWS Signature Version 4 in the `Authorization` header: checked for every service but S3, and
//! made for our own client.
//!
//! Source: "Signature Version 4 signing process" of the AWS General Reference. Pre-signed and
//! chunked requests are S3's and are not here.

use hex_simd::AsciiCase;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};

use crate::{Error, ErrorCode, timestamp};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";
const TOKEN: &str = "x-amz-security-token";
const CONTENT_HASH: &str = "x-amz-content-sha256";

/// A key pair, and the token that goes with temporary ones.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Public.
    pub access_key_id: String,
    /// Secret; not shown by `Debug`.
    pub secret_access_key: String,
    /// Of temporary keys; secret.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Who signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key that signed.
    pub access_key_id: String,
    /// Region that the client believes in, from the scope.
    pub region: String,
}

/// The access key that a request claims to be signed with, to look its secret up.
///
/// # Errors
/// The request is not signed, or its `Authorization` header cannot be read.
pub fn access_key_id(head: &Parts) -> Result<String, Error> {
    Ok(Authorization::of(head)?.access_key_id.to_owned())
}

/// The service in a signature's scope.
pub(crate) fn scope_service(head: &Parts) -> Result<&str, Error> {
    Ok(Authorization::of(head)?.service)
}

/// Checks what of a request can be checked before its body is read: key, signed headers, age and
/// session token, and the signature if the head has the body's hash. Gives whether the signature is
/// verified; [`verify`] checks the body, too.
///
/// # Errors
/// As [`verify`].
pub fn verify_head(head: &Parts, credentials: &Credentials, now_ms: u64, max_skew_s: u64) -> Result<bool, Error> {
    let request = Request::of(head, credentials, now_ms, max_skew_s)?;
    let hash = header_text(&head.headers, CONTENT_HASH).filter(|hash| hash.len() == 64);
    if let Some(hash) = hash {
        request.verify(head, hash, credentials)?;
    }
    Ok(hash.is_some())
}

/// Checks a request's signature, age and body.
///
/// `now_ms` is the time in milliseconds since the epoch; a request may be `max_skew_s` seconds off
/// in either direction. All `X-Amz-` headers that are present, and `Host`, have to be signed.
///
/// # Errors
/// Missing or malformed signature, a wrong one, a changed header, body, path or query, a wrong
/// session token, or a date too far off.
pub fn verify(
    head: &Parts,
    body: &[u8],
    credentials: &Credentials,
    now_ms: u64,
    max_skew_s: u64,
) -> Result<Identity, Error> {
    let request = Request::of(head, credentials, now_ms, max_skew_s)?;
    let hash = hex(&Sha256::digest(body));
    if let Some(claimed) = header_text(&head.headers, CONTENT_HASH)
        && claimed != hash
    {
        return Err(invalid(
            "The body does not have the SHA-256 that the header 'x-amz-content-sha256' states.".to_owned(),
        ));
    }
    request.verify(head, &hash, credentials)?;
    let Authorization { access_key_id, region, .. } = request.authorization;
    Ok(Identity { access_key_id: access_key_id.to_owned(), region: region.to_owned() })
}

/// A request whose head is as it should be, with a signature still to be verified.
struct Request<'a> {
    authorization: Authorization<'a>,
    signed: Vec<&'a str>,
    stamp: &'a str,
}

impl<'a> Request<'a> {
    fn of(head: &'a Parts, credentials: &Credentials, now_ms: u64, max_skew_s: u64) -> Result<Self, Error> {
        let authorization = Authorization::of(head)?;
        if authorization.access_key_id != credentials.access_key_id {
            return Err(Error::new(
                ErrorCode::UnrecognizedClient,
                "The security token included in the request is invalid.",
            ));
        }
        let signed: Vec<&str> = authorization.signed_headers.split(';').collect();
        let unsigned = head
            .headers
            .keys()
            .map(HeaderName::as_str)
            .chain(["host"])
            .find(|name| (*name == "host" || name.starts_with("x-amz-")) && !signed.contains(name));
        if let Some(name) = unsigned {
            return Err(invalid(format!(
                "The header '{name}' must be among the signed headers, but SignedHeaders is '{}'.",
                authorization.signed_headers
            )));
        }
        let stamp = header_text(&head.headers, DATE).ok_or_else(|| {
            Error::new(
                ErrorCode::IncompleteSignature,
                "Authorization header requires existence of either a 'X-Amz-Date' header.",
            )
        })?;
        let signed_at = timestamp::parse_basic(stamp).ok_or_else(|| {
            Error::new(
                ErrorCode::IncompleteSignature,
                format!("Date must be in ISO-8601 'basic format'. Got '{stamp}'; wanted one like '20261121T072428Z'."),
            )
        })?;
        if authorization.date != &stamp[..8] {
            return Err(invalid(format!(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != \
                 '{}', from '{stamp}'.",
                authorization.date,
                &stamp[..8]
            )));
        }
        check_age(stamp, signed_at, now_ms, max_skew_s)?;
        check_token(head, credentials)?;
        Ok(Self { authorization, signed, stamp })
    }

    /// Checks the signature over the head and a body with this hash.
    fn verify(&self, head: &Parts, hash: &str, credentials: &Credentials) -> Result<(), Error> {
        let Self { authorization, signed, stamp } = self;
        let canonical = canonical_request(head, signed, hash, authorization.service)?;
        let text = string_to_sign(stamp, &authorization.scope(), &canonical);
        let wanted = hex_simd::decode_to_vec(authorization.signature).unwrap_or_default();
        // `verify_slice` compares in constant time.
        let Authorization { date, region, service, .. } = authorization;
        let ours = signing(&credentials.secret_access_key, date, region, service, &text);
        ours.verify_slice(&wanted).map_err(|_| invalid(MISMATCH.to_owned()))
    }
}

/// Signs a request: adds `X-Amz-Date`, the session token if there is one, for S3 the body's hash,
/// and `Authorization`.
///
/// The head must have a `Host` header or an authority in its URI. Every header but those that
/// proxies change is signed. `now_ms` is the time in milliseconds since the epoch.
///
/// # Panics
/// If the access key, region or session token has characters that a header cannot carry, or there
/// is no host.
pub fn sign(head: &mut Parts, body: &[u8], credentials: &Credentials, region: &str, service: &str, now_ms: u64) {
    let stamp = timestamp::basic(now_ms);
    let hash = hex(&Sha256::digest(body));
    let value = |text: &str| HeaderValue::from_str(text).expect("keys, tokens and regions are printable ASCII");
    head.headers.insert(DATE, value(&stamp));
    if let Some(token) = &credentials.session_token {
        head.headers.insert(TOKEN, value(token));
    }
    if service == "s3" {
        head.headers.insert(CONTENT_HASH, value(&hash));
    }
    let skipped =
        [header::EXPECT, header::TRANSFER_ENCODING, header::USER_AGENT, header::CONNECTION, header::AUTHORIZATION];
    let mut signed: Vec<String> =
        head.headers.keys().filter(|name| !skipped.contains(name)).map(|name| name.as_str().to_owned()).collect();
    if !head.headers.contains_key(header::HOST) {
        signed.push("host".to_owned());
    }
    signed.sort_unstable();
    let names: Vec<&str> = signed.iter().map(String::as_str).collect();
    let canonical =
        canonical_request(head, &names, &hash, service).expect("the headers to sign are those that are there");
    let scope = format!("{}/{region}/{service}/aws4_request", &stamp[..8]);
    let text = string_to_sign(&stamp, &scope, &canonical);
    let signature =
        hex(&signing(&credentials.secret_access_key, &stamp[..8], region, service, &text).finalize().into_bytes());
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={}, Signature={signature}",
        credentials.access_key_id,
        names.join(";")
    );
    head.headers.insert(header::AUTHORIZATION, value(&authorization));
}

const MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS \
                        Secret Access Key and signing method. (`shoal env` prints the keys of this server.)";

/// The parts of an `Authorization` header.
struct Authorization<'a> {
    access_key_id: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn of(head: &'a Parts) -> Result<Self, Error> {
        let mut values = head.headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Err(Error::new(
                ErrorCode::MissingAuthenticationToken,
                "Missing Authentication Token: the request is not signed.",
            ));
        };
        let incomplete =
            |what: &str| Error::new(ErrorCode::IncompleteSignature, format!("Authorization header {what}."));
        if values.next().is_some() {
            return Err(incomplete("is there twice"));
        }
        let text = value.to_str().map_err(|_| incomplete("has characters that are not printable ASCII"))?;
        let rest = text.strip_prefix(ALGORITHM).ok_or_else(|| {
            incomplete("does not begin with 'AWS4-HMAC-SHA256', the only algorithm that is supported")
        })?;
        let part = |name: &str| {
            let found = rest.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
            found.filter(|part| !part.is_empty()).ok_or_else(|| incomplete(&format!("requires '{name}' parameter")))
        };
        let credential = part("Credential")?;
        // A key may hold slashes; a scope has always four parts.
        let mut parts = credential.rsplitn(5, '/');
        let (Some("aws4_request"), Some(service), Some(region), Some(date), Some(access_key_id)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(incomplete("has a Credential that is not <key>/<yyyymmdd>/<region>/<service>/aws4_request"));
        };
        Ok(Self {
            access_key_id,
            date,
            region,
            service,
            signed_headers: part("SignedHeaders")?,
            signature: part("Signature")?,
        })
    }

    fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.date, self.region, self.service)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::InvalidSignature, message)
}

fn check_age(stamp: &str, signed_at: u64, now_ms: u64, max_skew_s: u64) -> Result<(), Error> {
    let skew_ms = max_skew_s.saturating_mul(1000);
    let now = timestamp::basic(now_ms);
    if signed_at.saturating_add(skew_ms) < now_ms {
        let limit = timestamp::basic(now_ms - skew_ms);
        return Err(invalid(format!(
            "Signature expired: {stamp} is now earlier than {limit} ({now} - {max_skew_s} s.)"
        )));
    }
    if signed_at > now_ms.saturating_add(skew_ms) {
        let limit = timestamp::basic(now_ms + skew_ms);
        return Err(invalid(format!(
            "Signature not yet current: {stamp} is still later than {limit} ({now} + {max_skew_s} s.)"
        )));
    }
    Ok(())
}

fn check_token(head: &Parts, credentials: &Credentials) -> Result<(), Error> {
    let sent = head.headers.get(TOKEN).map_or(&[][..], HeaderValue::as_bytes);
    let wanted = credentials.session_token.as_deref().unwrap_or_default().as_bytes();
    // Hashes are compared, so that the time taken tells nothing of the token.
    if Sha256::digest(sent) == Sha256::digest(wanted) {
        return Ok(());
    }
    let hint = match (&credentials.session_token, sent.is_empty()) {
        (None, _) => " This key has no session token: unset AWS_SESSION_TOKEN.",
        (Some(_), true) => " This key is a temporary one: set AWS_SESSION_TOKEN.",
        (Some(_), false) => "",
    };
    Err(Error::new(
        ErrorCode::UnrecognizedClient,
        format!("The security token included in the request is invalid.{hint}"),
    ))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn canonical_request(head: &Parts, signed: &[&str], body_hash: &str, service: &str) -> Result<String, Error> {
    let path = if service == "s3" { head.uri.path().to_owned() } else { canonical_path(head.uri.path()) };
    let mut text = format!("{}\n{path}\n{}\n", head.method, canonical_query(head.uri.query().unwrap_or_default()));
    for name in signed {
        let mut values = Vec::new();
        for value in head.headers.get_all(*name) {
            // UTF-8 in a header is signed as it is; clients send user names and the like in it.
            let value = std::str::from_utf8(value.as_bytes())
                .map_err(|_| invalid(format!("The header '{name}' is not UTF-8.")))?;
            values.push(value.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
        }
        if values.is_empty() {
            match head.uri.authority() {
                // HTTP/2 carries the host in the URI.
                Some(authority) if *name == "host" => values.push(authority.to_string()),
                _ => return Err(invalid(format!("The header '{name}' is signed but not there."))),
            }
        }
        text.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    text.push_str(&format!("\n{}\n{body_hash}", signed.join(";")));
    Ok(text)
}

/// Without `.`, `..` and empty segments, and encoded once more than it came: all services but S3
/// sign the path so.
fn canonical_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    if segments.is_empty() {
        return "/".to_owned();
    }
    let end = if path.ends_with('/') { "/" } else { "" };
    let encoded: Vec<String> = segments.iter().map(|segment| percent_encoded(segment.as_bytes())).collect();
    format!("/{}{end}", encoded.join("/"))
}

/// Pairs encoded in the one canonical way and sorted.
fn canonical_query(query: &str) -> String {
    let encode = |text: &str| percent_encoded(&percent_decoded(text));
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// All but the unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The text as SigV4 writes it in paths and queries.
pub fn percent_encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, RESERVED).to_string()
}

/// Bytes of a percent-encoded text; a `%` without two hexadecimal digits stays.
pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

fn string_to_sign(stamp: &str, scope: &str, canonical: &str) -> String {
    format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical)))
}

/// The signature of a text, not yet read out.
fn signing(secret: &str, date: &str, region: &str, service: &str, text: &str) -> Hmac<Sha256> {
    let mac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(text.as_bytes());
        mac
    };
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [date, region, service, "aws4_request"] {
        key = mac(&key, part).finalize().into_bytes().to_vec();
    }
    mac(&key, text)
}

fn hex(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, AsciiCase::Lower)
}
