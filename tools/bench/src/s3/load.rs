//! The client: what it stores and fetches, and how fast that went.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::Instant,
};

use ::http::{HeaderValue, Method, Request, header};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, fadvise};
use shoal_wire::{client::Endpoint, sigv4};

use super::WORK;
use crate::{
    beside::beside,
    http::{Connection, head},
};
use shoal_cli::client::now_ms;

/// As boto3 cuts large objects.
const PART: usize = 8 << 20;
/// Bytes of a small object.
const SMALL: usize = 4096;

/// What is stored and fetched.
pub(super) struct Load {
    /// The large object.
    pub(super) large: Vec<u8>,
    /// How many small ones.
    pub(super) small: usize,
    /// How many connections at once.
    pub(super) connections: usize,
}

/// A request whose body lies elsewhere.
struct Signed<'a> {
    head: Vec<u8>,
    body: &'a [u8],
}

impl Load {
    /// Bytes without a pattern, the same at every call.
    pub(super) fn new(large: usize, small: usize, connections: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = (0..large.div_ceil(8)).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let mut bytes: Vec<u8> = words.collect();
        bytes.truncate(large);
        Self { large: bytes, small, connections: connections.max(1) }
    }

    /// Of the large object, 10^6 bytes each.
    pub(super) fn megabytes(&self) -> f64 {
        self.large.len() as f64 / 1e6
    }

    /// A small object's content: each its own.
    pub(super) fn content(&self, number: usize) -> Vec<u8> {
        let mut content = self.large.iter().copied().cycle().take(SMALL).collect::<Vec<_>>();
        content[..8].copy_from_slice(&(number as u64).to_le_bytes());
        content
    }

    /// All the work at a server, in the order of [`WORK`]; what comes back is compared with what
    /// was sent.
    ///
    /// # Errors
    /// The server refuses, or gives other bytes back.
    pub(super) fn run(&self, to: &Endpoint, dir: &Path) -> Result<[f64; WORK.len()]> {
        self.all(to, &[sign(to, Method::PUT, "/bench", &[])])?;
        let speed = |seconds: f64| self.megabytes() / seconds;
        let rate = |seconds: f64| self.small as f64 / seconds;
        let put = speed(self.all(to, &[sign(to, Method::PUT, "/bench/one", &self.large)])?);
        let parts = speed(self.put_parts(to, "/bench/parts")?);
        forget(dir)?;
        let get = speed(self.get(to, "/bench/one", std::slice::from_ref(&(0..self.large.len())))?);
        let starts = (0..self.large.len()).step_by(PART);
        let ranges: Vec<_> = starts.map(|start| start..self.large.len().min(start + PART)).collect();
        forget(dir)?;
        let get_ranges = speed(self.get(to, "/bench/parts", &ranges)?);

        let contents: Vec<_> = (0..self.small).map(|number| self.content(number)).collect();
        let path = |number: usize| format!("/bench/small/{number:06}");
        let puts: Vec<_> = contents
            .iter()
            .enumerate()
            .map(|(number, content)| sign(to, Method::PUT, &path(number), content))
            .collect();
        let put_small = rate(self.all(to, &puts)?);
        let gets: Vec<_> = (0..self.small).map(|number| sign(to, Method::GET, &path(number), &[])).collect();
        forget(dir)?;
        let started = Instant::now();
        beside(self.connections, gets.len(), &|| Connection::open(&to.authority), &|connection, number| {
            ensure!(
                connection.send(&gets[number].head, &[])?.0 == contents[number],
                "object {number} came back changed"
            );
            Ok(())
        })?;
        let get_small = rate(started.elapsed().as_secs_f64());
        Ok([put, parts, get, get_ranges, put_small, get_small])
    }

    /// Sends requests over all connections; seconds from the first to the last answer.
    fn all(&self, to: &Endpoint, requests: &[Signed<'_>]) -> Result<f64> {
        let started = Instant::now();
        beside(self.connections, requests.len(), &|| Connection::open(&to.authority), &|connection, number| {
            connection.send(&requests[number].head, requests[number].body).map(drop)
        })?;
        Ok(started.elapsed().as_secs_f64())
    }

    fn put_parts(&self, to: &Endpoint, path: &str) -> Result<f64> {
        let mut first = Connection::open(&to.authority)?;
        let created = sign(to, Method::POST, &format!("{path}?uploads="), &[]);
        let (answer, _) = first.send(&created.head, created.body)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let id =
            answer.split_once("<UploadId>").and_then(|(_, rest)| rest.split_once('<')).context("no upload id came")?.0;
        let parts = self.large.chunks(PART).zip(1..);
        let parts: Vec<_> = parts
            .map(|(part, number)| sign(to, Method::PUT, &format!("{path}?partNumber={number}&uploadId={id}"), part))
            .collect();
        let started = Instant::now();
        let etags =
            beside(self.connections, parts.len(), &|| Connection::open(&to.authority), &|connection, number| {
                let (_, etag) = connection.send(&parts[number].head, parts[number].body)?;
                etag.ok_or_else(|| anyhow!("part {number} got no ETag"))
            })?;
        let listed = etags
            .iter()
            .zip(1..)
            .map(|(etag, number)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
        let whole = format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", listed.collect::<String>());
        let complete = sign(to, Method::POST, &format!("{path}?uploadId={id}"), whole.as_bytes());
        let (answer, _) = first.send(&complete.head, complete.body)?;
        ensure!(
            String::from_utf8_lossy(&answer).contains("<ETag>"),
            "not completed: {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(started.elapsed().as_secs_f64())
    }

    /// Fetches ranges of the large object over all connections.
    fn get(&self, to: &Endpoint, path: &str, ranges: &[std::ops::Range<usize>]) -> Result<f64> {
        let requests: Vec<_> = ranges
            .iter()
            .map(|range| {
                let whole = range.len() == self.large.len();
                let range = (!whole).then(|| {
                    HeaderValue::from_str(&format!("bytes={}-{}", range.start, range.end - 1)).expect("digits")
                });
                signed(to, Method::GET, path, &[], range.map(|value| (header::RANGE, value)))
            })
            .collect();
        let started = Instant::now();
        beside(self.connections, requests.len(), &|| Connection::open(&to.authority), &|connection, number| {
            let mut at = ranges[number].start;
            connection.fetch(&requests[number].head, &[], &mut |piece| {
                ensure!(self.large.get(at..at + piece.len()) == Some(piece), "the bytes at {at} came back changed");
                at += piece.len();
                Ok(())
            })?;
            ensure!(at == ranges[number].end, "{at} instead of {} bytes came back", ranges[number].end);
            Ok(())
        })?;
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Makes the kernel write what waits, and then forget what it has of the files below a directory,
/// so that the disk is read.
///
/// # Errors
/// A file cannot be looked at.
pub(super) fn forget(dir: &Path) -> Result<()> {
    settle()?;
    forget_files(dir)
}

fn forget_files(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            forget_files(&path)?;
        } else if kind.is_file() {
            fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Lets what others have left to be written be written first.
pub(super) fn settle() -> Result<()> {
    ensure!(Command::new("sync").status().context("could not run sync")?.success(), "sync failed");
    Ok(())
}

fn sign<'a>(to: &Endpoint, method: Method, path: &str, body: &'a [u8]) -> Signed<'a> {
    let mut crc = flate2::Crc::new();
    crc.update(body);
    let checksum = base64_simd::STANDARD.encode_to_string(crc.sum().to_be_bytes());
    let checksum =
        (header::HeaderName::from_static("x-amz-checksum-crc32"), HeaderValue::from_str(&checksum).expect("base64"));
    // boto3 sends one with what is stored.
    let is_stored = method == Method::PUT && !body.is_empty();
    signed(to, method, path, body, is_stored.then_some(checksum))
}

fn signed<'a>(
    to: &Endpoint,
    method: Method,
    path: &str,
    body: &'a [u8],
    with: Option<(header::HeaderName, HeaderValue)>,
) -> Signed<'a> {
    let request = Request::builder().method(method).uri(path).header(header::HOST, to.authority.as_str());
    let mut request = request.body(()).expect("paths of our own making");
    request.headers_mut().extend(with);
    let (mut parts, ()) = request.into_parts();
    sigv4::sign(&mut parts, body, &to.credentials, &to.region, "s3", now_ms());
    Signed { head: head(&Request::from_parts(parts, ()), body.len()), body }
}
