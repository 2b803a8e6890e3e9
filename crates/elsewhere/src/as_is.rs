//! A bucket with the keys that it has: those of object_store's paths have neither empty parts
//! (`a//b`) nor a slash at their end (`folder/`), and other people's buckets do.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, LAST_MODIFIED, RANGE};
use http::{Method, StatusCode};
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::documents::{ListDocument, Listed};
use crate::requests::{Request, Requests, next_piece};
use crate::sending::{MEMORY, Sending};
use crate::{Address, Condition, Error};

/// S3's largest page.
const MAX_KEYS: usize = 1000;
/// Pages of the store for one of ours, at most; some stores have a few empty ones in a row.
const MAX_PAGES: usize = 1000;
/// Between two checks of whether the caller ends.
const POLL: Duration = Duration::from_millis(50);

/// A prefix of a bucket, whose objects have the keys that follow it.
#[derive(Debug)]
pub struct BucketAsIs {
    /// What keys have in front; empty, or with `/` at its end.
    root: String,
    requests: Arc<Requests>,
    /// Bodies in memory take of it.
    memory: Arc<Semaphore>,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

/// What the store has of an object, but for its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// Below the prefix.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// Milliseconds since the epoch, in whole seconds.
    pub modified_ms: u64,
    /// Headers that its writer gave, by lower-case name; of lists, the storage class alone.
    pub headers: BTreeMap<String, String>,
}

/// A part of a list, in the order of keys.
#[derive(Debug, Default)]
pub struct Page {
    /// Objects.
    pub objects: Vec<Described>,
    /// What stands for keys that go on after a delimiter.
    pub common_prefixes: Vec<String>,
    /// More follow.
    pub is_truncated: bool,
}

/// A content for [`BucketAsIs::put`].
#[derive(Debug)]
pub struct NewObject<'a> {
    /// Its key.
    pub key: &'a str,
    /// Headers that it keeps, by lower-case name.
    pub headers: &'a BTreeMap<String, String>,
    /// The whole file is its content.
    pub file: File,
    /// Of the file, in bytes.
    pub size: u64,
    /// What must hold.
    pub condition: &'a Condition,
}

impl BucketAsIs {
    /// The bucket at an address; keys are found as [`crate::Bucket::open`] finds them, at the first
    /// request. A request that fails is repeated for this time.
    ///
    /// # Errors
    /// No threads can be started, or the address is refused by the library.
    pub fn open(address: &Address, retry_timeout: Duration) -> Result<Self, Error> {
        Self::over(address, Requests::new(address, retry_timeout)?)
    }

    /// With keys that no server minds.
    #[cfg(test)]
    pub(crate) fn open_with_keys(address: &Address, retry_timeout: Duration) -> Result<Self, Error> {
        Self::over(address, Requests::new(address, retry_timeout)?.with_keys())
    }

    fn over(address: &Address, requests: Requests) -> Result<Self, Error> {
        let root = if address.prefix.is_empty() { String::new() } else { format!("{}/", address.prefix) };
        let requests = Arc::new(requests);
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("s3").enable_all().build()?;
        Ok(Self { root, requests, memory: Arc::new(Semaphore::new(MEMORY)), runtime: Some(runtime) })
    }

    /// As a user names it.
    pub fn location(&self) -> String {
        self.requests.location()
    }

    /// An object, if it is there.
    ///
    /// # Errors
    /// The store's.
    pub fn head(&self, key: &str) -> Result<Option<Described>, Error> {
        if key.is_empty() {
            return Ok(None);
        }
        let request = Request::new(Method::HEAD, &self.named(key)?);
        let requests = Arc::clone(&self.requests);
        match self.block(async move { requests.send(&request).await }) {
            Err(Error::Missing { .. }) => Ok(None),
            answer => {
                let found = described(key, answer?.headers());
                found.map(Some).ok_or_else(|| self.no_answer("an object's: it has no Content-Length"))
            }
        }
    }

    /// Objects whose keys start with a prefix and come after `after`, at most `max` with the common
    /// prefixes.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self, prefix: &str, after: Option<&str>, delimiter: Option<&str>, max: usize) -> Result<Page, Error> {
        let (mut page, mut token): (Page, Option<String>) = (Page::default(), None);
        for _ in 0..MAX_PAGES {
            let left = max - page.objects.len() - page.common_prefixes.len();
            let mut request = Request::new(Method::GET, "")
                .query("list-type", "2")
                .query("encoding-type", "url")
                .query("max-keys", left.min(MAX_KEYS).to_string())
                .query("prefix", format!("{}{prefix}", self.root));
            if let Some(delimiter) = delimiter {
                request = request.query("delimiter", delimiter);
            }
            request = match (&token, after) {
                (Some(token), _) => request.query("continuation-token", token.clone()),
                (None, Some(after)) => request.query("start-after", format!("{}{after}", self.root)),
                (None, None) => request,
            };
            let body = self.body_of(request)?;
            let document = ListDocument::read(&body).ok_or_else(|| self.no_answer("a list"))?;
            let below = |key: &str| key.strip_prefix(&self.root).map(str::to_owned);
            page.objects.extend(document.contents.iter().filter_map(|listed| {
                // The prefix itself may be a folder's marker, and is no key below it.
                Some(of_list(below(&listed.key).filter(|key| !key.is_empty())?, listed))
            }));
            page.common_prefixes.extend(document.common_prefixes.iter().filter_map(|it| below(&it.prefix)));
            let is_full = page.objects.len() + page.common_prefixes.len() >= max;
            page.is_truncated = document.is_truncated;
            match document.next_continuation_token.filter(|_| document.is_truncated) {
                Some(next) if !is_full && token.as_ref() != Some(&next) => token = Some(next),
                _ => break,
            }
        }
        // Taken for the end, it would hide all that follows.
        if page.is_truncated && page.objects.is_empty() && page.common_prefixes.is_empty() {
            return Err(self.no_answer("a list: it promises more, and does not send it"));
        }
        Ok(page)
    }

    /// Bytes of an object, of that with this ETag.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Changed`]; the store's.
    pub fn read(&self, key: &str, etag: &str, at: u64, length: usize) -> Result<Bytes, Error> {
        let request = self.get(key, etag, at, Some(at + length as u64))?;
        let requests = Arc::clone(&self.requests);
        let read = self.block(async move {
            let answer = requests.send(&request).await?;
            // Without ranges all comes; what is before is not kept, and what is behind not read.
            let mut before = if answer.status() == StatusCode::PARTIAL_CONTENT { 0 } else { at };
            let (mut wanted, mut pieces) = (BytesMut::with_capacity(length), answer.into_body().bytes_stream());
            while wanted.len() < length {
                let next = next_piece(&mut pieces).await.map_err(|message| requests.broken(message))?;
                let Some(mut piece) = next else { break };
                let skipped = usize::try_from(before).unwrap_or(usize::MAX).min(piece.len());
                piece.advance(skipped);
                before -= skipped as u64;
                piece.truncate(length - wanted.len());
                wanted.extend_from_slice(&piece);
            }
            Ok(wanted.freeze())
        })?;
        if read.len() == length { Ok(read) } else { Err(self.no_answer("as many bytes as the object has")) }
    }

    /// Writes an object, that with this ETag, into a file. What breaks off is resumed where it was.
    /// `is_cancelled` is asked until it is there.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Changed`]; [`Error::Cancelled`]; the store's, or the file's.
    pub fn fetch(
        &self,
        key: &str,
        etag: &str,
        size: u64,
        to: &File,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let (first, file) = (self.get(key, etag, 0, None)?, to.try_clone()?);
        let requests = Arc::clone(&self.requests);
        let fetched = async move {
            let mut done = 0;
            while done < size {
                let mut request = first.clone();
                if done > 0 {
                    request.headers.extend(HeaderValue::from_str(&format!("bytes={done}-")).map(|it| (RANGE, it)));
                }
                let answer = requests.send(&request).await?;
                let is_rest = done == 0 || answer.status() == StatusCode::PARTIAL_CONTENT;
                let (before, mut pieces) = (done, answer.into_body().bytes_stream());
                if !is_rest {
                    return Err(requests.broken("an answer broke off, and it has no ranges"));
                }
                let failed = loop {
                    match next_piece(&mut pieces).await {
                        Ok(Some(piece)) if piece.len() as u64 > size - done => {
                            return Err(requests.broken("its answer is longer than the object was"));
                        }
                        Ok(Some(piece)) => {
                            file.write_all_at(&piece, done)?;
                            done += piece.len() as u64;
                        }
                        Ok(None) => break "the answer ended early".to_owned(),
                        Err(message) => break message,
                    }
                };
                if done == before {
                    return Err(requests.broken(failed));
                }
            }
            Ok(())
        };
        self.block_unless(fetched, is_cancelled)
    }

    /// Writes an object; it is there, whole, when this returns its ETag. A long one is sent in
    /// parts.
    ///
    /// # Errors
    /// [`Error::Changed`]; the store's, or the file's.
    pub fn put(&self, object: NewObject<'_>) -> Result<String, Error> {
        let NewObject { key, headers, file, size, condition } = object;
        let kept = self.kept(headers)?;
        let (name, condition) = (self.named(key)?, condition.clone());
        let (requests, memory) = (Arc::clone(&self.requests), Arc::clone(&self.memory));
        let sending = Sending { requests, memory, name, file: Arc::new(file), size };
        self.block(async move { sending.send(kept, &condition).await })
    }

    /// Removes an object; that it is not there does not matter.
    ///
    /// # Errors
    /// The store's.
    pub fn remove(&self, key: &str) -> Result<(), Error> {
        let request = Request::new(Method::DELETE, &self.named(key)?);
        match self.body_of(request) {
            Err(Error::Missing { .. }) => Ok(()),
            done => done.map(drop),
        }
    }

    fn get(&self, key: &str, etag: &str, at: u64, end: Option<u64>) -> Result<Request, Error> {
        let request = Request::new(Method::GET, &self.named(key)?);
        let request = if etag.is_empty() { request } else { request.header(IF_MATCH, &format!("\"{etag}\"")) };
        Ok(match end {
            Some(end) => request.header(RANGE, &format!("bytes={at}-{}", end.saturating_sub(1))),
            None => request,
        })
    }

    /// As the store names it.
    fn named(&self, key: &str) -> Result<String, Error> {
        // Without a key, a request is for the bucket itself, be it to remove it.
        if key.is_empty() {
            let message = "the key of an object is empty; name the object".to_owned();
            return Err(Error::Rejected { location: self.location(), message });
        }
        if key.split('/').any(|part| part == "." || part == "..") {
            let message = format!("the key `{key}` has a part that addresses cannot have (`.` or `..`)");
            return Err(Error::Rejected { location: self.location(), message });
        }
        Ok(format!("{}{key}", self.root))
    }

    fn kept(&self, headers: &BTreeMap<String, String>) -> Result<HeaderMap, Error> {
        let named = |(name, value): (&String, &String)| {
            let bad = || Error::Rejected {
                location: self.location(),
                message: format!("the value of {name} is no text of ASCII characters, which headers have"),
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            // A signature is of visible ones.
            let value = HeaderValue::from_str(value).ok().filter(|value| value.to_str().is_ok());
            Ok((name, value.ok_or_else(bad)?))
        };
        headers.iter().map(named).collect()
    }

    fn body_of(&self, request: Request) -> Result<Bytes, Error> {
        let requests = Arc::clone(&self.requests);
        self.block(async move {
            let answer = requests.send(&request).await?;
            requests.document(answer).await
        })
    }

    fn no_answer(&self, what: &str) -> Error {
        self.requests.broken(format!("its answer is not {what}"))
    }

    /// Waits on any thread, be it one of another run time.
    fn block<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.block_unless(work, &|| false)
    }

    /// The same until the caller ends, which it is asked.
    fn block_unless<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        let task = runtime.spawn(async move { sender.send(work.await) });
        loop {
            match receiver.recv_timeout(POLL) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) if !is_cancelled() => {}
                Err(_) => {
                    task.abort();
                    return Err(Error::Cancelled { location: self.location() });
                }
            }
        }
    }
}

impl Drop for BucketAsIs {
    /// May be on a thread of another run time, which must not wait.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Headers that come back as they were given.
const KEPT: [&str; 7] = [
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-amz-storage-class",
];

/// `None`: its size is not known.
fn described(key: &str, headers: &HeaderMap) -> Option<Described> {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("x-amz-meta-");
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let modified = OffsetDateTime::parse(text(LAST_MODIFIED.as_str()), &Rfc2822);
    Some(Described {
        key: key.to_owned(),
        size: text("content-length").parse().ok()?,
        etag: text("etag").trim_start_matches("W/").trim_matches('"').to_owned(),
        modified_ms: modified.map_or(0, seconds_of),
        headers: kept
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect(),
    })
}

fn of_list(key: String, listed: &Listed) -> Described {
    let modified = OffsetDateTime::parse(&listed.last_modified, &Rfc3339);
    let class = listed.storage_class.as_ref().filter(|class| *class != "STANDARD");
    Described {
        key,
        size: listed.size,
        etag: listed.etag.trim_start_matches("W/").trim_matches('"').to_owned(),
        modified_ms: modified.map_or(0, seconds_of),
        headers: class.map(|class| ("x-amz-storage-class".to_owned(), class.clone())).into_iter().collect(),
    }
}

/// In milliseconds; HEAD knows no fractions.
fn seconds_of(time: OffsetDateTime) -> u64 {
    u64::try_from(time.unix_timestamp()).unwrap_or_default() * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_the_same_in_a_list_and_alone() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-length", "7"),
            ("etag", "\"00ff\""),
            ("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT"),
            ("x-amz-storage-class", "GLACIER"),
            ("date", "now"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let listed = Listed {
            key: "root/k".to_owned(),
            size: 7,
            etag: "\"00ff\"".to_owned(),
            last_modified: "2026-01-02T03:04:05.678Z".to_owned(),
            storage_class: Some("GLACIER".to_owned()),
        };
        let alone = described("k", &headers).unwrap();
        assert_eq!(alone, of_list("k".to_owned(), &listed));
        assert_eq!(alone.modified_ms, 1_767_323_045_000);
        assert_eq!(alone.headers.len(), 1);
        headers.remove("content-length");
        assert_eq!(described("k", &headers), None);
    }

    #[test]
    fn keys_and_headers_that_no_request_has_are_refused() {
        let address = Address::parse("s3://team/data?endpoint=http://127.0.0.1:1").unwrap();
        let bucket = BucketAsIs::open(&address, Duration::ZERO).unwrap();
        assert!(matches!(bucket.head("a/../b"), Err(Error::Rejected { .. })));
        let bad = BTreeMap::from([("x-amz-meta-a".to_owned(), "\u{f6}".to_owned())]);
        assert!(matches!(bucket.kept(&bad), Err(Error::Rejected { .. })));
        assert_eq!(bucket.named("a//b/").unwrap(), "data/a//b/");
        // No server is there: nothing is sent that would be for the bucket, or for its prefix.
        for address in ["s3://team?endpoint=http://127.0.0.1:1", "s3://team/data?endpoint=http://127.0.0.1:1"] {
            let bucket = BucketAsIs::open(&Address::parse(address).unwrap(), Duration::ZERO).unwrap();
            assert!(matches!(bucket.remove(""), Err(Error::Rejected { .. })));
            assert!(matches!(bucket.read("", "", 0, 1), Err(Error::Rejected { .. })));
            assert_eq!(bucket.head("").unwrap(), None);
        }
    }
}
