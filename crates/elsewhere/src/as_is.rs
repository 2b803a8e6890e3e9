//! A bucket with the keys that it has: those of object_store's paths have neither empty parts
//! (`a//b`) nor a slash at their end (`folder/`), and other people's buckets do.

use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED, RANGE};
use http::{Method, StatusCode};
use object_store::client::HttpResponse;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};
use tokio::runtime::{Builder, Runtime};

use crate::bucket::PART_BYTES;
use crate::documents::{self, ErrorDocument, ListDocument, Listed};
use crate::requests::{Request, Requests};
use crate::{Address, Condition, Error};

/// Parts of one object on their way.
const PARTS_AT_ONCE: usize = 4;
/// S3 takes 10,000 of them.
const MAX_PARTS: u64 = 9_000;
/// S3's largest page.
const MAX_KEYS: usize = 1000;
/// Between two pieces of an answer.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// A prefix of a bucket, whose objects have the keys that follow it.
#[derive(Debug)]
pub struct BucketAsIs {
    /// What keys have in front; empty, or with `/` at its end.
    root: String,
    requests: Arc<Requests>,
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
        let root = if address.prefix.is_empty() { String::new() } else { format!("{}/", address.prefix) };
        let requests = Arc::new(Requests::new(address, retry_timeout)?);
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("s3").enable_all().build()?;
        Ok(Self { root, requests, runtime: Some(runtime) })
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
        let request = Request::new(Method::HEAD, &self.named(key)?);
        let requests = Arc::clone(&self.requests);
        match self.block(async move { requests.send(&request).await }) {
            Err(Error::Missing { .. }) => Ok(None),
            answer => answer.map(|answer| Some(described(key, answer.headers()))),
        }
    }

    /// Objects whose keys start with a prefix and come after `after`, at most `max` with the common
    /// prefixes.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self, prefix: &str, after: Option<&str>, delimiter: Option<&str>, max: usize) -> Result<Page, Error> {
        let (mut page, mut token): (Page, Option<String>) = (Page::default(), None);
        loop {
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
            match document.next_continuation_token.filter(|_| document.is_truncated) {
                Some(next) if !is_full && token.as_ref() != Some(&next) => token = Some(next),
                next => return Ok(Page { is_truncated: next.is_some(), ..page }),
            }
        }
    }

    /// Bytes of an object, of that with this ETag.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Changed`]; the store's.
    pub fn read(&self, key: &str, etag: &str, at: u64, length: usize) -> Result<Bytes, Error> {
        let request = self.get(key, etag, at, Some(at + length as u64))?;
        let requests = Arc::clone(&self.requests);
        let (whole, body) = self.block(async move {
            let answer = requests.send(&request).await?;
            let whole = answer.status() != StatusCode::PARTIAL_CONTENT;
            Ok((whole, bytes_of(&requests, answer).await?))
        })?;
        let start = if whole { usize::try_from(at).unwrap_or(usize::MAX) } else { 0 };
        let wanted = body.get(start..).and_then(|body| body.get(..length));
        wanted.map(|wanted| body.slice_ref(wanted)).ok_or_else(|| self.no_answer("as many bytes as the object has"))
    }

    /// Writes an object, that with this ETag, into a file. What breaks off is resumed where it was.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Changed`]; the store's, or the file's.
    pub fn fetch(&self, key: &str, etag: &str, size: u64, to: &File) -> Result<(), Error> {
        let (first, file) = (self.get(key, etag, 0, None)?, to.try_clone()?);
        let requests = Arc::clone(&self.requests);
        self.block(async move {
            let mut done = 0;
            while done < size {
                let mut request = first.clone();
                if done > 0 {
                    request.headers.extend(HeaderValue::from_str(&format!("bytes={done}-")).map(|it| (RANGE, it)));
                }
                let answer = requests.send(&request).await?;
                let is_rest = done == 0 || answer.status() == StatusCode::PARTIAL_CONTENT;
                let (before, mut pieces) = (done, answer.into_body().bytes_stream());
                let broken = |message: String| Error::Unreachable { location: requests.location(), message };
                if !is_rest {
                    return Err(broken("an answer broke off, and it has no ranges".to_owned()));
                }
                let failed = loop {
                    match tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await {
                        Ok(Some(Ok(piece))) => {
                            file.write_all_at(&piece, done)?;
                            done += piece.len() as u64;
                        }
                        Ok(Some(Err(error))) => break error.to_string(),
                        Ok(None) => break "the answer ended early".to_owned(),
                        Err(_) => break "the answer has stopped".to_owned(),
                    }
                };
                if done == before {
                    return Err(broken(failed));
                }
            }
            Ok(())
        })
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
        let requests = Arc::clone(&self.requests);
        self.block(async move {
            let sending = Sending { requests, name, file: Arc::new(file), size };
            match size <= PART_BYTES {
                true => sending.whole(kept, &condition).await,
                false => sending.in_parts(kept, &condition).await,
            }
        })
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
            bytes_of(&requests, answer).await
        })
    }

    fn no_answer(&self, what: &str) -> Error {
        Error::Unreachable { location: self.location(), message: format!("its answer is not {what}") }
    }

    /// Waits on any thread, be it one of another run time.
    fn block<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime.as_ref().expect("it is there until the drop").spawn(async move { sender.send(work.await) });
        receiver.recv().unwrap_or_else(|_| Err(Error::Cancelled { location: self.location() }))
    }
}

impl Drop for BucketAsIs {
    /// May be on a thread of another run time, which must not wait.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// An object on its way.
struct Sending {
    requests: Arc<Requests>,
    name: String,
    file: Arc<File>,
    size: u64,
}

impl Sending {
    async fn whole(&self, kept: HeaderMap, condition: &Condition) -> Result<String, Error> {
        let body = self.piece(0, self.size)?;
        let request = Request { headers: kept, ..Request::new(Method::PUT, &self.name).body(body) };
        let answer = self.requests.send(&under(request, condition)).await?;
        Ok(text_of(answer.headers(), &ETAG).trim_matches('"').to_owned())
    }

    async fn in_parts(&self, kept: HeaderMap, condition: &Condition) -> Result<String, Error> {
        let begin = Request { headers: kept, ..Request::new(Method::POST, &self.name).query("uploads", "") };
        let answer = self.requests.send(&begin).await?;
        let body = bytes_of(&self.requests, answer).await?;
        let upload = documents::upload_id(&body).ok_or_else(|| self.broken("an upload was begun and has no id"))?;
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
        let end = Request { is_repeatable: false, ..under(end, condition) };
        let answer = self.requests.send(&end).await?;
        let body = bytes_of(&self.requests, answer).await?;
        let ended = documents::completed(&body).ok_or_else(|| self.broken("its answer is no end of an upload"))?;
        match ended.code.as_str() {
            "" => Ok(ended.etag.trim_matches('"').to_owned()),
            "PreconditionFailed" => Err(Error::Changed { location: self.requests.location(), name: self.name.clone() }),
            _ => {
                let document = ErrorDocument { code: ended.code, message: ended.message };
                Err(self.broken(&document.text(StatusCode::OK)))
            }
        }
    }

    fn piece(&self, at: u64, length: u64) -> Result<Bytes, Error> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }

    fn broken(&self, message: &str) -> Error {
        Error::Unreachable { location: self.requests.location(), message: message.to_owned() }
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

async fn bytes_of(requests: &Requests, answer: HttpResponse) -> Result<Bytes, Error> {
    let broken = |message: String| Error::Unreachable { location: requests.location(), message };
    let read = tokio::time::timeout(PIECE_TIMEOUT, answer.into_body().bytes()).await;
    read.map_err(|_| broken("the answer has stopped".to_owned()))?.map_err(|error| broken(error.to_string()))
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
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

fn described(key: &str, headers: &HeaderMap) -> Described {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("x-amz-meta-");
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let modified = OffsetDateTime::parse(text(LAST_MODIFIED.as_str()), &Rfc2822);
    Described {
        key: key.to_owned(),
        size: text("content-length").parse().unwrap_or_default(),
        etag: text("etag").trim_start_matches("W/").trim_matches('"').to_owned(),
        modified_ms: modified.map_or(0, seconds_of),
        headers: kept
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
            .collect(),
    }
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
        let alone = described("k", &headers);
        assert_eq!(alone, of_list("k".to_owned(), &listed));
        assert_eq!(alone.modified_ms, 1_767_323_045_000);
        assert_eq!(alone.headers.len(), 1);
    }

    #[test]
    fn keys_and_headers_that_no_request_has_are_refused() {
        let address = Address::parse("s3://team/data?endpoint=http://127.0.0.1:1").unwrap();
        let bucket = BucketAsIs::open(&address, Duration::ZERO).unwrap();
        assert!(matches!(bucket.head("a/../b"), Err(Error::Rejected { .. })));
        let bad = BTreeMap::from([("x-amz-meta-a".to_owned(), "\u{f6}".to_owned())]);
        assert!(matches!(bucket.kept(&bad), Err(Error::Rejected { .. })));
        assert_eq!(bucket.named("a//b/").unwrap(), "data/a//b/");
    }
}
