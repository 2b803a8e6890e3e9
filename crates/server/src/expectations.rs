//! Requests with `Expect: 100-continue` (RFC 9110, 10.1.1): the client sends the body only once it
//! is told to. An answer that comes instead leaves open whether the body still follows. hyper takes
//! what comes next for it, so that a client which leaves it out (botocore does) and uses the
//! connection again loses the first bytes of its next request. Such an answer closes its
//! connection.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// A request's body, which notes when it has been read to its end.
pub(crate) struct ExpectedBody<B = Incoming> {
    body: B,
    is_read: Option<Arc<AtomicBool>>,
}

/// What the answer to a request depends on: whether its client waited with the body, and the body
/// was then read.
pub(crate) struct Expectation {
    /// None where the client does not wait.
    is_read: Option<Arc<AtomicBool>>,
}

impl Expectation {
    pub(crate) fn of<B: Body>(request: Request<B>) -> (Self, Request<ExpectedBody<B>>) {
        // There is no other expectation than this one.
        let is_expecting = request.headers().contains_key(header::EXPECT);
        let is_read = is_expecting.then(|| Arc::new(AtomicBool::new(request.body().is_end_stream())));
        (Self { is_read: is_read.clone() }, request.map(|body| ExpectedBody { body, is_read }))
    }

    /// Closes the connection with the answer of these headers if the body may still follow, or not.
    pub(crate) fn settle(&self, answer: &mut HeaderMap) {
        if self.is_read.as_ref().is_some_and(|is_read| !is_read.load(Ordering::Acquire)) {
            answer.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ExpectedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Some(is_read) = &self.is_read
            && (matches!(polled, Poll::Ready(None)) || self.body.is_end_stream())
        {
            is_read.store(true, Ordering::Release);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn an_answer_before_the_body_closes_the_connection() {
        for (expects, body, reads, closes) in
            [(true, "x", false, true), (true, "x", true, false), (true, "", false, false), (false, "x", false, false)]
        {
            let mut request = Request::new(Full::new(Bytes::from(body)));
            if expects {
                request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
            }
            let (expectation, request) = Expectation::of(request);
            if reads {
                // The first frame is the last one, as that of a body with a Content-Length is.
                request.into_body().frame().await.unwrap().unwrap();
            }
            let mut answer = HeaderMap::new();
            expectation.settle(&mut answer);
            assert_eq!(answer.contains_key(header::CONNECTION), closes, "{expects} {body:?} {reads}");
        }
    }
}
