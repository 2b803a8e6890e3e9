//! Tells an open page that there is something new: server-sent events that only name what changed. The page asks for the rest itself, so an
//! event that is lost costs nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Console, frame::Trouble};
use crate::{core::now_ms, effects::World, http::Body};

/// Two events of the same kind are at least this far apart.
const PAUSE: Duration = Duration::from_millis(400);
/// After so long a silence a comment is sent, which finds out whether anybody listens.
const BREATH: Duration = Duration::from_secs(15);

/// What a page was last told of.
struct Listener {
    world: Arc<World>,
    job: Option<String>,
    version: watch::Receiver<u64>,
    /// Numbers of lines and of points.
    seen: (u64, u64),
    last: Instant,
    begun: bool,
    /// When the session ends, in seconds since the epoch.
    until_s: u64,
}

impl Console {
    /// The events `jobs` (some job's row changed), `logs` and `series` (of the job named).
    pub(super) fn changes(&self, job: Option<String>, until_s: u64) -> Response<Body> {
        let version = self.world.core.version();
        let listener = Listener { world: self.world.clone(), job, version, seen: (0, 0), last: Instant::now(), begun: false, until_s };
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
            self.seen = self.amounts().await;
            return Some("retry: 1000\n\n".to_owned());
        }
        sleep_until(self.last + PAUSE).await;
        loop {
            if now_ms() / 1000 >= self.until_s {
                return None;
            }
            let mut text = String::new();
            let changed = timeout_at(Instant::now() + PAUSE, self.version.changed()).await;
            match changed {
                Ok(Ok(())) => text.push_str("event: jobs\ndata:\n\n"),
                Ok(Err(_)) => return None,
                Err(_) => {}
            }
            let amounts = self.amounts().await;
            if amounts.0 != self.seen.0 {
                text.push_str("event: logs\ndata:\n\n");
            }
            if amounts.1 != self.seen.1 {
                text.push_str("event: series\ndata:\n\n");
            }
            self.seen = amounts;
            if text.is_empty() && self.last.elapsed() > BREATH {
                text.push_str(":\n\n");
            }
            if !text.is_empty() {
                self.last = Instant::now();
                return Some(text);
            }
        }
    }

    /// Numbers of lines and of points of the job, as far as they can be had.
    async fn amounts(&self) -> (u64, u64) {
        let Some(job) = self.job.clone() else { return (0, 0) };
        let (world, before) = (self.world.clone(), self.seen);
        let counted = super::blocking(move || {
            let streams = world.telemetry.streams(&format!("{job}/"), None, usize::MAX)?;
            let series = world.telemetry.series_lengths(&job)?;
            Ok::<_, Trouble>((streams.iter().map(|stream| stream.lines).sum(), series.iter().map(|(_, points)| points).sum()))
        });
        counted.await.unwrap_or(before)
    }
}
