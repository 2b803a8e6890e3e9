//! `Range` headers that are not one range of bytes. S3 ignores them, as RFC 9110 (section 14.2) has
//! it; the framework refuses them, and as the header may be signed it cannot be left out before the
//! signature is verified. So such a request is answered in two steps: the framework checks it and
//! refuses the range, then it is served without the header.

use std::sync::{Arc, OnceLock};

use http::header::{AUTHORIZATION, RANGE};
use http::{Extensions, Method, Request, Uri};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::Range;
use s3s::{Body, S3Result};

use crate::query::Query;

/// Set where signature and scope of a request have been checked; an extension of the request.
#[derive(Clone, Default)]
pub(crate) struct Passed(Arc<OnceLock<Extensions>>);

impl Passed {
    /// With what the second form of the request needs of the check.
    pub(crate) fn set(&self, found: Extensions) {
        let _ = self.0.set(found);
    }
}

/// A request to read, without its range and without what is signed.
pub(crate) struct Unranged {
    request: Request<Body>,
    passed: Passed,
}

/// The second form of a request whose range S3 ignores; `None` for all others.
pub(crate) fn without_bad_range(request: &mut Request<Body>) -> Option<Unranged> {
    let range = request.headers().get(RANGE)?;
    let good = range.to_str().is_ok_and(|text| Range::parse(text).is_ok());
    if good || !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let passed = Passed::default();
    request.extensions_mut().insert(passed.clone());
    let mut second = Request::new(Body::empty());
    *second.method_mut() = request.method().clone();
    *second.uri_mut() = unsigned(request.uri())?;
    *second.headers_mut() = request.headers().clone();
    second.headers_mut().remove(RANGE);
    second.headers_mut().remove(AUTHORIZATION);
    Some(Unranged { request: second, passed })
}

impl Unranged {
    /// The request, if its first form was signed by a key that may read the object.
    pub(crate) fn if_passed(mut self) -> Option<Request<Body>> {
        let found = self.passed.0.get()?.clone();
        self.request.extensions_mut().extend(found);
        Some(self.request)
    }
}

/// The address without what signs it.
fn unsigned(uri: &Uri) -> Option<Uri> {
    let signs = |pair: &&str| {
        Query::of(Some(pair)).names().any(|name| {
            let name = name.to_ascii_lowercase();
            name.starts_with("x-amz-") || matches!(name.as_str(), "signature" | "awsaccesskeyid" | "expires")
        })
    };
    let kept: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(|pair| !signs(pair)).collect();
    format!("{}?{}", uri.path(), kept.join("&")).parse().ok()
}

/// Lets requests pass that have been checked.
pub(crate) struct AlreadyChecked;

#[async_trait::async_trait]
impl S3Access for AlreadyChecked {
    async fn check(&self, _: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }
}
