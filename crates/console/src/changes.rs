//! Tells an open page that there is something new: server-sent events that only name what changed.
//! The page asks for the rest itself, so an event that is lost costs nothing.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Console, job_changes::Growth, now_ms, responses::Body};

/// Least time between two messages.
const PAUSE: Duration = Duration::from_millis(400);
/// After so long a silence a comment is sent, which finds out whether anybody listens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A page that is open.
struct Listener {
    version: watch::Receiver<u64>,
    /// Of the job that the page shows.
    growth: Option<watch::Receiver<Growth>>,
    /// What the page was last told of.
    seen: Growth,
    last: Instant,
    begun: bool,
    /// When the session ends, in seconds since the epoch.
    until_s: u64,
}

impl Console {
    /// The events `jobs` (some job's row changed), `logs` and `series` (of the job named).
    pub(super) fn changes(&self, job: Option<&str>, until_s: u64) -> Response<Body> {
        let growth = job.map(|job| self.sources.job_changes.watch(job));
        let seen = growth.as_ref().map(|growth| *growth.borrow()).unwrap_or_default();
        let listener = Listener {
            version: self.sources.version.clone(),
            growth,
            seen,
            last: Instant::now(),
            begun: false,
            until_s,
        };
        let events = stream::unfold(listener, |mut listener| async move {
            let text = listener.next().await?;
            Some((Ok(Frame::data(Bytes::from(text))), listener))
        });
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(events)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

impl Listener {
    /// The next events; `None` when the session or the server ends.
    async fn next(&mut self) -> Option<String> {
        if !self.begun {
            self.begun = true;
            return Some("retry: 1000\n\n".to_owned());
        }
        sleep_until(self.last + PAUSE).await;
        let session = Duration::from_millis((self.until_s * 1000).saturating_sub(now_ms()));
        let silence = (self.last + KEEP_ALIVE).min(Instant::now() + session);
        let heard = timeout_at(silence, async {
            tokio::select! {
                changed = self.version.changed() => changed.map(|()| true),
                changed = changed(&mut self.growth) => changed.map(|()| false),
            }
        });
        let rows_changed = match heard.await {
            Ok(Ok(rows_changed)) => rows_changed,
            Ok(Err(_)) => return None,
            Err(_) if now_ms() >= self.until_s * 1000 => return None,
            Err(_) => false,
        };
        let mut text = String::new();
        if rows_changed || self.version.has_changed().ok()? {
            self.version.mark_unchanged();
            text.push_str("event: jobs\ndata:\n\n");
        }
        let growth = self.growth.as_mut().map(|growth| *growth.borrow_and_update()).unwrap_or_default();
        if growth.lines != self.seen.lines {
            text.push_str("event: logs\ndata:\n\n");
        }
        if growth.points != self.seen.points {
            text.push_str("event: series\ndata:\n\n");
        }
        if text.is_empty() {
            text.push_str(":\n\n");
        }
        self.seen = growth;
        self.last = Instant::now();
        Some(text)
    }
}

/// Waits for a job's lines and points; for ever if there is no job.
async fn changed(growth: &mut Option<watch::Receiver<Growth>>) -> Result<(), watch::error::RecvError> {
    match growth {
        Some(growth) => growth.changed().await,
        None => pending().await,
    }
}
