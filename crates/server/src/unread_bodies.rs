//! Requests that are answered before their bodies have been read: most are refused by their head.
//! hyper closes such a connection without a word unless the rest is there already, and a client
//! that uses it again for its next request loses that one. So a short rest is read first, and where
//! it does not come the answer closes the connection (`Connection: close`). With
//! `Expect: 100-continue` (RFC 9110, 10.1.1) it is open whether a body still follows: botocore
//! leaves it out. Such an answer closes the connection at once.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Bytes of a body that are read for nothing.
const MOST_BYTES: u64 = 64 << 10;
/// For these, from a client that has sent the head.
const TIME: Duration = Duration::from_secs(2);

/// A request's body; what is not read of it stays with [`Unread`].
pub(crate) struct TrackedBody<B: Body = Incoming> {
    /// There until the drop.
    body: Option<B>,
    /// None for a request without a body.
    rest: Option<Arc<Mutex<Rest<B>>>>,
}

/// What is left of a body when its request is answered.
pub(crate) struct Unread<B: Body = Incoming> {
    rest: Option<Arc<Mutex<Rest<B>>>>,
    /// The client waits with the body.
    is_expecting: bool,
}

enum Rest<B> {
    /// A handler reads it.
    Held,
    Dropped(B),
    Nothing,
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    pub(crate) fn of(request: Request<B>) -> (Self, Request<TrackedBody<B>>) {
        // There is no other expectation than this one.
        let is_expecting = request.headers().contains_key(header::EXPECT);
        let rest = (!request.body().is_end_stream()).then(|| Arc::new(Mutex::new(Rest::Held)));
        let tracked = |body| TrackedBody { body: Some(body), rest: rest.clone() };
        let request = request.map(tracked);
        (Self { rest, is_expecting }, request)
    }

    /// Reads a short rest; closes the connection with the answer of these headers if there is more,
    /// or there may be.
    pub(crate) async fn settle(&self, answer: &mut HeaderMap) {
        let Some(rest) = &self.rest else { return };
        let rest = mem::replace(&mut *rest.lock().expect("no holder of this lock panics"), Rest::Held);
        let is_read = match rest {
            Rest::Nothing => true,
            Rest::Dropped(body) if !self.is_expecting => is_drained(body).await,
            Rest::Dropped(_) | Rest::Held => false,
        };
        if !is_read {
            answer.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Whether it ends soon.
async fn is_drained<B: Body<Data = Bytes> + Unpin>(mut body: B) -> bool {
    if body.size_hint().lower() > MOST_BYTES {
        return false;
    }
    let drained = async {
        let mut left = MOST_BYTES;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => return false,
            }
        }
        true
    };
    tokio::time::timeout(TIME, drained).await.unwrap_or(false)
}

impl<B: Body> TrackedBody<B> {
    fn body(&self) -> &B {
        self.body.as_ref().expect("it is there until the drop")
    }
}

impl<B: Body> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(rest)) = (self.body.take(), &self.rest) {
            let left = if body.is_end_stream() { Rest::Nothing } else { Rest::Dropped(body) };
            *rest.lock().expect("no holder of this lock panics") = left;
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let body = self.body.as_mut().expect("it is there until the drop");
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None))
            && let Some(rest) = self.rest.take()
        {
            *rest.lock().expect("no holder of this lock panics") = Rest::Nothing;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream::{self, StreamExt};
    use http_body_util::{Full, StreamBody};

    use super::*;

    async fn closes<B: Body<Data = Bytes> + Unpin>(body: B, expects: bool, frames_read: usize) -> bool
    where
        B::Error: std::fmt::Debug,
    {
        let mut request = Request::new(body);
        if expects {
            request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        let (unread, request) = Unread::of(request);
        let mut body = request.into_body();
        for _ in 0..frames_read {
            body.frame().await.unwrap().unwrap();
        }
        drop(body);
        let mut answer = HeaderMap::new();
        unread.settle(&mut answer).await;
        answer.contains_key(header::CONNECTION)
    }

    #[tokio::test]
    async fn an_answer_before_an_expected_body_closes_the_connection() {
        for (expects, body, frames_read, expected) in
            [(true, "x", 0, true), (true, "x", 1, false), (true, "", 0, false), (false, "x", 0, false)]
        {
            let found = closes(Full::new(Bytes::from(body)), expects, frames_read).await;
            assert_eq!(found, expected, "{expects} {body:?} {frames_read}");
        }
        // One without a length ends with no frame.
        let mut request = Request::new(StreamBody::new(stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::new()))])));
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        let (unread, request) = Unread::of(request);
        request.into_body().collect().await.unwrap();
        let mut answer = HeaderMap::new();
        unread.settle(&mut answer).await;
        assert!(answer.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_rest_is_read_and_a_long_or_late_one_is_not() {
        let frame = |bytes: usize| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; bytes])));
        let frames = |sizes: Vec<usize>| stream::iter(sizes).map(frame);
        let late = |seconds| stream::once(tokio::time::sleep(Duration::from_secs(seconds))).map(move |()| frame(1));
        for frames_read in [0, 1] {
            assert!(!closes(StreamBody::new(frames(vec![1, 60_000])), false, frames_read).await);
            assert!(closes(StreamBody::new(frames(vec![1, 60_000, 60_000])), false, frames_read).await);
            assert!(!closes(StreamBody::new(Box::pin(frames(vec![1]).chain(late(1)))), false, frames_read).await);
            assert!(closes(StreamBody::new(Box::pin(frames(vec![1]).chain(late(3)))), false, frames_read).await);
        }
    }
}
