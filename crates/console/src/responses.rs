//! Responses of the console.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};

/// Any response body.
pub type Body = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Vec::new()));
    *response.status_mut() = status;
    response
}

pub(crate) fn answer(kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(crate) fn html(page: String) -> Response<Body> {
    answer("text/html; charset=utf-8", page)
}

pub(crate) fn text(text: String) -> Response<Body> {
    answer("text/plain; charset=utf-8", text)
}

pub(crate) fn see_other(path: &str) -> Response<Body> {
    let mut response = empty(StatusCode::SEE_OTHER);
    // A path that cannot stand in a header is none of ours.
    response
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console")));
    response
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}
