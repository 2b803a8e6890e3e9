//! The store's errors as S3's.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use s3s::dto::TimestampFormat;
use s3s::{Body, S3Error, S3ErrorCode, S3Result, StdError, s3_error};
use shoal_encryption::KeyError;
use shoal_store::{ForeignFault, StoreError};

use crate::attributes;

/// Runs the store's synchronous code where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> S3Result<T> {
    blocking_s3(move || work().map_err(from_store)).await
}

/// The same for code that knows S3's errors.
pub(crate) async fn blocking_s3<T: Send + 'static>(work: impl FnOnce() -> S3Result<T> + Send + 'static) -> S3Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => Err(S3Error::with_source(S3ErrorCode::InternalError, Box::new(panic))),
    }
}

pub(crate) fn from_store(error: StoreError) -> S3Error {
    let (code, message) = match &error {
        StoreError::NoSuchBucket(_) => (S3ErrorCode::NoSuchBucket, "The specified bucket does not exist".to_owned()),
        StoreError::NoSuchKey { .. } => (S3ErrorCode::NoSuchKey, "The specified key does not exist.".to_owned()),
        StoreError::NoSuchVersion { .. } => {
            (S3ErrorCode::NoSuchVersion, "The specified version does not exist.".to_owned())
        }
        StoreError::DeleteMarker { version, modified_ms, is_named, .. } => {
            return delete_marker(version, *modified_ms, *is_named);
        }
        StoreError::BucketExists(_) => (S3ErrorCode::BucketAlreadyOwnedByYou, "You already own this \
                                                                               bucket.".to_owned()),
        StoreError::BucketNotEmpty(_) => (S3ErrorCode::BucketNotEmpty, "The bucket you tried to delete is not \
                                                                        empty. You must delete all versions in the \
                                                                        bucket.".to_owned()),
        StoreError::NoSuchUpload(_) => (
            S3ErrorCode::NoSuchUpload,
            "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or \
             completed."
                .to_owned(),
        ),
        StoreError::InvalidPart(_) => (S3ErrorCode::InvalidPart, error.to_string()),
        StoreError::InvalidPartOrder(_) => (S3ErrorCode::InvalidPartOrder, error.to_string()),
        StoreError::PreconditionFailed { .. } => {
            (S3ErrorCode::PreconditionFailed, "At least one of the pre-conditions you specified did not \
                                               hold".to_owned())
        }
        StoreError::Full(_) => return insufficient_storage(error),
        StoreError::Key(error) => return from_key(error),
        // With a status that clients do not retry: the object stays damaged.
        StoreError::DamagedObject { .. } => return own_code(error, "ObjectDamaged", StatusCode::UNPROCESSABLE_ENTITY),
        // Clients repeat it, and wait longer each time.
        StoreError::Elsewhere(_) => (S3ErrorCode::SlowDown, logged(&error)),
        StoreError::Foreign(foreign) => (foreign_code(foreign.fault), error.to_string()),
        StoreError::ObjectGone { .. } => (S3ErrorCode::ServiceUnavailable, error.to_string()),
        StoreError::NotDurable(_) => (S3ErrorCode::ServiceUnavailable, logged(&error)),
        _ => (S3ErrorCode::InternalError, logged(&error)),
    };
    let mut translated = S3Error::with_message(code, message);
    translated.set_source(Box::new(error));
    translated
}

/// Of buckets that show one elsewhere; clients repeat a request to one that is away.
fn foreign_code(fault: ForeignFault) -> S3ErrorCode {
    match fault {
        ForeignFault::Away => S3ErrorCode::ServiceUnavailable,
        ForeignFault::Refused | ForeignFault::ReadOnly => S3ErrorCode::AccessDenied,
        ForeignFault::NoBucket => S3ErrorCode::NoSuchBucket,
        ForeignFault::Rejected => S3ErrorCode::InvalidRequest,
        ForeignFault::Unsupported => S3ErrorCode::NotImplemented,
    }
}

/// What stands in an object's place: as if there were none, unless it is asked for by its own id.
fn delete_marker(version: &str, modified_ms: u64, is_named: bool) -> S3Error {
    let mut error = match is_named {
        false => S3Error::with_message(S3ErrorCode::NoSuchKey, "The specified key does not exist."),
        true => S3Error::with_message(
            S3ErrorCode::MethodNotAllowed,
            "The specified method is not allowed against this resource: the version is a delete marker.",
        ),
    };
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
    headers.extend(HeaderValue::from_str(version).map(|id| (HeaderName::from_static("x-amz-version-id"), id)));
    let mut date = Vec::new();
    if is_named && attributes::timestamp(modified_ms).format(TimestampFormat::HttpDate, &mut date).is_ok() {
        headers.extend(HeaderValue::from_bytes(&date).map(|date| (http::header::LAST_MODIFIED, date)));
        headers.insert(http::header::ALLOW, HeaderValue::from_static("DELETE"));
    }
    error.set_headers(headers);
    error
}

/// The message for clients of an error of the server, whose log names the file and the cause.
fn logged(error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    tracing::error!("S3: {error}{cause}");
    error.without_paths()
}

/// A key's holder may store no more; as other servers of S3's protocol answer.
pub(crate) fn quota_exceeded(message: String) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom("QuotaExceeded".into()), message);
    error.set_status_code(StatusCode::FORBIDDEN);
    error
}

/// An error of a key as S3 has it.
pub(crate) fn from_key(error: &KeyError) -> S3Error {
    let bad_request = |code, message| custom(code, StatusCode::BAD_REQUEST, message);
    match error {
        KeyError::Unknown(_) => bad_request("KMS.NotFoundException", error.to_string()),
        KeyError::Wrong(_) => bad_request("KMS.IncorrectKeyException", error.to_string()),
        KeyError::WrongCustomerKey => s3_error!(AccessDenied, "Access Denied: {}.", error),
        KeyError::NoCustomerKey => s3_error!(
            InvalidRequest,
            "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to \
             retrieve the object."
        ),
        KeyError::Unavailable(_) | KeyError::Declared(_) => {
            // The client repeats it; what the owner's command writes is for the owner.
            tracing::error!("S3: {error}");
            let message = "The command that has the keys of this server does not answer; the server's log has more.";
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, message)
        }
    }
}

/// An error whose code the framework does not know.
pub(crate) fn custom(code: &'static str, status: StatusCode, message: impl Into<Cow<'static, str>>) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

/// With a status that clients do not retry: the disk does not empty itself.
fn insufficient_storage(error: StoreError) -> S3Error {
    own_code(error, "InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE)
}

/// For what S3 has no code for.
fn own_code(error: StoreError, code: &'static str, status: StatusCode) -> S3Error {
    let mut translated = S3Error::with_message(S3ErrorCode::Custom(code.into()), error.without_paths());
    translated.set_status_code(status);
    translated.set_source(Box::new(error));
    translated
}

/// What went wrong while a request's body was read. The framework's stream errors are private
/// types; their texts name the case.
pub(crate) fn from_body(error: &StdError) -> S3Error {
    let text = error.to_string();
    if text.contains("Sha256Mismatch") {
        let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
        custom("XAmzContentSHA256Mismatch", StatusCode::BAD_REQUEST, message)
    } else if let Some((_, why)) = text.split_once("RequestTimeout: ") {
        let message = format!(
            "Your socket connection to the server was not read from or written to within the timeout period: {why}"
        );
        S3Error::with_message(S3ErrorCode::RequestTimeout, message)
    } else if text.contains("SignatureMismatch") {
        S3Error::with_message(
            S3ErrorCode::SignatureDoesNotMatch,
            "The signature of a chunk of the body does not match.",
        )
    } else {
        S3Error::with_message(S3ErrorCode::IncompleteBody, format!("The body could not be read: {text}"))
    }
}

/// An error of our own in place of the framework's answer. Neither text needs escaping.
pub(crate) fn document(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut response = Response::new(Body::from(xml));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// The answer to a form upload whose memory is needed for others; clients send it again.
pub fn slow_down() -> Response<Body> {
    document(
        StatusCode::SERVICE_UNAVAILABLE,
        "SlowDown",
        "Please reduce your request rate: many unfinished uploads by forms are open.",
    )
}

/// The answer to whoever speaks plain HTTP where only TLS is spoken.
pub fn tls_only(message: &str) -> Response<Body> {
    document(StatusCode::FORBIDDEN, "AccessDenied", message)
}

/// What an error code of the framework means, for people.
pub(crate) fn meaning(code: &str) -> &'static str {
    match code {
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing \
             method; `shoal env` prints this server's keys."
        }
        "InvalidAccessKeyId" => "This server does not know the access key; `shoal env` prints its keys.",
        "AccessDenied" => "Access Denied: the request is not signed, or its keys do not open this.",
        "RequestTimeTooSkewed" => "The difference between the request time and this server's time is too large.",
        "ExpiredToken" | "InvalidToken" => "The provided token is malformed, unknown or has expired.",
        "InvalidBucketName" => {
            "The specified bucket is not valid: 3 to 63 lower-case letters, digits, dots and hyphens, beginning and \
             ending with a letter or digit."
        }
        "InvalidURI" => "The specified URI could not be parsed.",
        "KeyTooLongError" => "Your key is too long: at most 1024 bytes.",
        "NotImplemented" => "This server does not serve that operation of S3, or a header of it.",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "BadDigest" => "The checksum that you specified did not match what we received.",
        "InvalidDigest" => "The Content-MD5 or checksum value that you specified is not valid.",
        "MissingContentLength" => "You must provide the Content-Length header.",
        "MalformedXML" => "The XML you provided was not well formed or did not validate.",
        "IncompleteBody" => "You did not provide the number of bytes that the Content-Length header specifies.",
        "EntityTooLarge" => "Your proposed upload exceeds the maximum allowed object size.",
        "InternalError" => "We encountered an internal error; the server's log has more.",
        _ => "The request cannot be served; see the error code.",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn clients_do_not_learn_where_the_server_keeps_its_files() {
        let path = PathBuf::from("/home/ann/.local/share/shoal/objects/ab");
        let source = || std::io::Error::other("why");
        for error in [
            StoreError::Full(path.display().to_string()),
            StoreError::NotDurable(format!("the disk did not take what was written to {}", path.display())),
            StoreError::Io { what: "write", path: path.clone(), source: source() },
            StoreError::Corrupt { path: path.clone(), detail: "short".to_owned() },
        ] {
            let translated = from_store(error);
            let message = translated.message().expect("a message");
            assert!(!message.contains("/home"), "{message}");
        }
    }
}
