//! An object on its way to the store: as one request, or in parts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{ETAG, HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::bucket::PART_BYTES;
use crate::documents::{self, ErrorDocument};
use crate::requests::{Request, Requests};
use crate::{Condition, Error};

/// Parts of one object on their way.
const PARTS_AT_ONCE: usize = 4;
/// S3 takes 10,000 of them.
const MAX_PARTS: u64 = 9_000;
/// Of memory.
const UNIT: u64 = 1 << 20;
/// Units for the bodies of all objects on their way to a bucket. Parts of an object of terabytes
/// are long: fewer of them go at once.
pub(crate) const MEMORY: usize = 256;
/// Until the answer to an upload's end begins: some stores put the object together before.
const COMPLETION: Duration = Duration::from_secs(300);

/// An object on its way.
pub(crate) struct Sending {
    pub(crate) requests: Arc<Requests>,
    /// Of [`MEMORY`], for all objects.
    pub(crate) memory: Arc<Semaphore>,
    /// As the store has it.
    pub(crate) name: String,
    pub(crate) file: Arc<File>,
    pub(crate) size: u64,
}

impl Sending {
    /// Returns the ETag.
    pub(crate) async fn send(&self, kept: HeaderMap, condition: &Condition) -> Result<String, Error> {
        match self.size <= PART_BYTES {
            true => self.whole(kept, condition).await,
            false => self.in_parts(kept, condition).await,
        }
    }

    async fn whole(&self, kept: HeaderMap, condition: &Condition) -> Result<String, Error> {
        let _held = self.hold(self.size).await;
        let body = self.piece(0, self.size)?;
        let request = Request { headers: kept, ..Request::new(Method::PUT, &self.name).body(body) };
        let answer = self.requests.send(&under(request, condition)).await?;
        Ok(text_of(answer.headers(), &ETAG).trim_matches('"').to_owned())
    }

    async fn in_parts(&self, kept: HeaderMap, condition: &Condition) -> Result<String, Error> {
        let begin = Request { headers: kept, ..Request::new(Method::POST, &self.name).query("uploads", "") };
        let answer = self.requests.send(&begin).await?;
        let body = self.requests.document(answer).await?;
        let upload =
            documents::upload_id(&body).ok_or_else(|| self.requests.broken("an upload was begun and has no id"))?;
        let done = self.parts(&upload, condition).await;
        if done.is_err() {
            // Its parts would stay, unseen.
            let abort = Request::new(Method::DELETE, &self.name).query("uploadId", upload);
            let _ = self.requests.send(&abort).await;
        }
        done
    }

    async fn parts(&self, upload: &str, condition: &Condition) -> Result<String, Error> {
        let part_bytes = self.size.div_ceil(MAX_PARTS).max(PART_BYTES);
        let part = |number: u64| async move {
            let _held = self.hold(part_bytes).await;
            let at = (number - 1) * part_bytes;
            let body = self.piece(at, part_bytes.min(self.size - at))?;
            let request = Request::new(Method::PUT, &self.name)
                .query("partNumber", number.to_string())
                .query("uploadId", upload)
                .body(body);
            let answer = self.requests.send(&request).await?;
            Ok::<_, Error>(text_of(answer.headers(), &ETAG))
        };
        let count = self.size.div_ceil(part_bytes);
        let etags: Vec<String> = stream::iter(1..=count).map(part).buffered(PARTS_AT_ONCE).try_collect().await?;
        let body = documents::completion(&etags).into();
        let end = Request::new(Method::POST, &self.name).query("uploadId", upload).body(body);
        let end = Request { is_repeatable: false, answer_timeout: COMPLETION, ..under(end, condition) };
        let answer = self.requests.send(&end).await?;
        let body = self.requests.document(answer).await?;
        let ended =
            documents::completed(&body).ok_or_else(|| self.requests.broken("its answer is no end of an upload"))?;
        match ended.code.as_str() {
            "" => Ok(ended.etag.trim_matches('"').to_owned()),
            "PreconditionFailed" => Err(Error::Changed { location: self.requests.location(), name: self.name.clone() }),
            _ => {
                let document = ErrorDocument { code: ended.code, message: ended.message };
                Err(self.requests.broken(document.text(StatusCode::OK)))
            }
        }
    }

    /// What a body takes of the memory, until it is dropped; one that is longer than all takes all.
    async fn hold(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let units = bytes.div_ceil(UNIT).clamp(1, MEMORY as u64);
        self.memory.acquire_many(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
    }

    fn piece(&self, at: u64, length: u64) -> Result<Bytes, Error> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }
}

/// A request that is done only if this holds; repeated, it might meet what it has itself written.
fn under(request: Request, condition: &Condition) -> Request {
    match condition {
        Condition::Always => request,
        Condition::Absent => Request { is_repeatable: false, ..request.header(IF_NONE_MATCH, "*") },
        Condition::Matches(etag) => {
            Request { is_repeatable: false, ..request.header(IF_MATCH, &format!("\"{etag}\"")) }
        }
    }
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
