//! Bodies of requests: how slowly they may come, and how much memory those have whose signature is
//! not verified yet.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use shoal_wire::{Error, ErrorCode, MAX_REQUEST_BYTES};
use tokio::{
    sync::Notify,
    time::{Instant, Sleep, sleep, timeout},
};

/// What a body may be late by. Bytes give time back, never more than this.
const SLACK: Duration = Duration::from_secs(30);
/// The slowest that a body may come for long, in bytes per second: less than a link of the
/// nineties.
const MIN_BYTES_PER_S: u64 = 2 << 10;
/// How long the body of an unverified request may take in all; such bodies are short.
pub(crate) const UNVERIFIED_TIMEOUT: Duration = Duration::from_secs(20);
/// Memory of all bodies that are not verified yet, in bytes.
const UNVERIFIED_BYTES: usize = 64 << 20;

/// How long a body may still be waited for.
#[derive(Debug, Clone, Copy)]
struct Pace {
    left: Duration,
}

impl Pace {
    fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    fn received(&mut self, bytes: u64) {
        self.left = (self.left + Duration::from_micros(bytes * 1_000_000 / MIN_BYTES_PER_S)).min(SLACK);
    }
}

/// A body that ends with an error when it comes too slowly. Only the time counts in which the
/// server waits for it: a slow disk is not the client's fault.
pub(crate) struct PacedBody<B = Incoming> {
    body: B,
    /// Memory of a body that is gathered before its signature is verified.
    part: Option<Part>,
    pace: Pace,
    /// Since when the server waits, and until when.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> PacedBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, part: None, pace: Pace { left: SLACK }, waiting: None }
    }

    /// The same for a body that counts against the memory of unverified ones.
    pub(crate) fn unverified(body: B, part: Part) -> Self {
        Self { part: Some(part), ..Self::new(body) }
    }
}

/// Why a body that came too slowly is read no further. S3's front knows it by its text.
#[derive(Debug, thiserror::Error)]
#[error("RequestTimeout: the body came slower than {MIN_BYTES_PER_S} bytes per second; send the request again")]
pub(crate) struct TooSlow;

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some((since, _)) = self.waiting.take() {
                    self.pace.waited(since.elapsed());
                }
                if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(|frame| frame.data_ref())) {
                    let length = data.map_or(0, Bytes::len);
                    self.pace.received(length as u64);
                    if self.part.as_mut().is_some_and(|part| !part.grow(length)) {
                        return Poll::Ready(Some(Err(no_memory().into())));
                    }
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let left = self.pace.left;
                let (_, until) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
                match until.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(TooSlow.into()))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Memory for bodies whose signature is not verified yet. When it is used up, the body that has
/// most of it ends: requests of honest clients are short.
pub(crate) struct Unverified {
    timeout: Duration,
    bodies: Mutex<Bodies>,
}

impl Default for Unverified {
    fn default() -> Self {
        Self { timeout: UNVERIFIED_TIMEOUT, bodies: Mutex::default() }
    }
}

#[derive(Default)]
struct Bodies {
    held: usize,
    last: u64,
    by_size: BTreeSet<(usize, Reverse<u64>)>,
    dropped: HashMap<u64, Arc<Notify>>,
}

/// One body's part.
pub(crate) struct Part {
    all: Arc<Unverified>,
    number: u64,
    bytes: usize,
    dropped: Arc<Notify>,
}

impl Unverified {
    /// Reads a whole body of a request whose signature covers it.
    ///
    /// # Errors
    /// It is longer than any request, comes too slowly, breaks off, or there is no memory for it
    /// now.
    pub(crate) async fn collect<B>(self: &Arc<Self>, headers: &HeaderMap, body: B) -> Result<Bytes, Error>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        ensure_short(headers)?;
        let mut part = self.part();
        let taken = part.is_taken();
        let read = async {
            tokio::select! {
                () = taken => Err(no_memory()),
                read = read_all(body, |bytes| part.grow(bytes)) => read,
            }
        };
        timeout(self.timeout, read).await.unwrap_or_else(|_| Err(too_slow()))
    }

    /// A part for another body, and what is notified when it is taken away.
    pub(crate) fn part(self: &Arc<Self>) -> Part {
        let mut bodies = self.bodies();
        bodies.last += 1;
        let (number, dropped) = (bodies.last, Arc::new(Notify::new()));
        bodies.by_size.insert((0, Reverse(number)));
        bodies.dropped.insert(number, dropped.clone());
        Part { all: self.clone(), number, bytes: 0, dropped }
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().expect("no holder of this lock panics")
    }
}

impl Part {
    /// Ready when another body needed the memory.
    pub(crate) fn is_taken(&self) -> impl Future<Output = ()> + Send + use<> {
        let dropped = self.dropped.clone();
        async move { dropped.notified().await }
    }

    /// Takes more memory; false if this body has the most, and none is left.
    fn grow(&mut self, by: usize) -> bool {
        let mut bodies = self.all.bodies();
        if !bodies.by_size.remove(&(self.bytes, Reverse(self.number))) {
            return false;
        }
        self.bytes += by;
        bodies.held += by;
        bodies.by_size.insert((self.bytes, Reverse(self.number)));
        while bodies.held > UNVERIFIED_BYTES {
            let Some((bytes, Reverse(number))) = bodies.by_size.pop_last() else { return true };
            bodies.held -= bytes;
            if let Some(dropped) = bodies.dropped.remove(&number) {
                dropped.notify_one();
            }
            if number == self.number {
                return false;
            }
        }
        true
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut bodies = self.all.bodies();
        if bodies.by_size.remove(&(self.bytes, Reverse(self.number))) {
            bodies.held -= self.bytes;
            bodies.dropped.remove(&self.number);
        }
    }
}

/// Reads a whole body of a request whose head was verified: it comes from somebody who has keys.
///
/// # Errors
/// It is longer than any request, comes too slowly, or breaks off.
pub(crate) async fn collect_verified<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    ensure_short(headers)?;
    read_all(PacedBody::new(body), |_| true).await
}

/// Refuses a body that is declared to be longer than any request.
fn ensure_short(headers: &HeaderMap) -> Result<(), Error> {
    let declared =
        headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_REQUEST_BYTES as u64) { Err(too_large()) } else { Ok(()) }
}

async fn read_all<B>(mut body: B, mut grow: impl FnMut(usize) -> bool) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    // Copied: a short frame may hold a long buffer.
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(ErrorCode::SerializationException, format!("the request's body broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > MAX_REQUEST_BYTES {
            return Err(too_large());
        }
        if !grow(data.len()) {
            return Err(no_memory());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.into())
}

fn too_large() -> Error {
    Error::new(ErrorCode::RequestTooLarge, format!("the request is longer than {MAX_REQUEST_BYTES} bytes"))
}

fn too_slow() -> Error {
    let seconds = UNVERIFIED_TIMEOUT.as_secs();
    Error::new(
        ErrorCode::RequestTimeout,
        format!("the request's body took longer than {seconds} s; send the request again"),
    )
}

fn no_memory() -> Error {
    Error::new(
        ErrorCode::ServiceUnavailable,
        "there is no memory now for a request of this length, since many unfinished ones are open; send the request \
         again",
    )
}

#[cfg(test)]
mod tests;
