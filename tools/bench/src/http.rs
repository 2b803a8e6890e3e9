//! A load generator's client: one connection that stays open, requests made and signed before the
//! clock runs, so that little of what is measured is ours.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use ::http::Request;
use anyhow::{Context, Result, bail, ensure};

/// The head of a request whose body of `length` bytes comes from elsewhere.
pub(super) fn head<B>(request: &Request<B>, length: usize) -> Vec<u8> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/1.1\r\ncontent-length: {length}\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

/// How a body is framed.
enum Framing {
    Length(u64),
    Chunked,
}

impl Connection {
    /// Connects to `127.0.0.1:9777`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub(super) fn open(authority: &str) -> Result<Self> {
        let stream = TcpStream::connect(authority).with_context(|| format!("nobody answers at {authority}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(256 << 10, stream) })
    }

    /// Sends a request; returns the answer's body and its ETag, if it has one.
    ///
    /// # Errors
    /// The connection breaks, or the answer is not one of success.
    pub(super) fn send(&mut self, head: &[u8], body: &[u8]) -> Result<(Vec<u8>, Option<String>)> {
        let mut answer = Vec::new();
        let etag = self.fetch(head, body, &mut |piece| {
            answer.extend_from_slice(piece);
            Ok(())
        })?;
        Ok((answer, etag))
    }

    /// Sends a request, gives the answer's body away in pieces and returns its ETag.
    ///
    /// # Errors
    /// As [`Connection::send`], and what `take` returns.
    pub(super) fn fetch(
        &mut self,
        head: &[u8],
        body: &[u8],
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<String>> {
        if body.len() <= 64 << 10 {
            // One segment where one is enough, as clients send small requests.
            self.stream.get_mut().write_all(&[head, body].concat())?;
        } else {
            self.stream.get_mut().write_all(head)?;
            self.stream.get_mut().write_all(body)?;
        }
        let (status, framing, etag) = self.answer_head()?;
        if !(200..300).contains(&status) {
            let mut text = Vec::new();
            self.body(&framing, &mut |piece| {
                text.extend_from_slice(piece);
                Ok(())
            })?;
            bail!("status {status}: {}", String::from_utf8_lossy(&text));
        }
        self.body(&framing, take)?;
        Ok(etag)
    }

    fn answer_head(&mut self) -> Result<(u16, Framing, Option<String>)> {
        let status = self.line()?;
        let status = status
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("no status: {status:?}"))?;
        let (mut framing, mut etag) = (Framing::Length(0), None);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { return Ok((status, framing, etag)) };
            if name.eq_ignore_ascii_case("etag") {
                etag = Some(value.trim().to_owned());
            } else if name.eq_ignore_ascii_case("content-length") {
                framing = Framing::Length(value.trim().parse().with_context(|| format!("no length: {line:?}"))?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                framing = Framing::Chunked;
            }
        }
    }

    fn body(&mut self, framing: &Framing, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match framing {
            Framing::Length(length) => self.pieces(*length, take),
            Framing::Chunked => loop {
                let size = self.line()?;
                let length = u64::from_str_radix(&size, 16).with_context(|| format!("no chunk: {size:?}"))?;
                self.pieces(length, take)?;
                ensure!(self.line()?.is_empty(), "a chunk has no end");
                if length == 0 {
                    return Ok(());
                }
            },
        }
    }

    fn pieces(&mut self, mut left: u64, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while left > 0 {
            let there = self.stream.fill_buf()?;
            if there.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let piece = there.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            take(&there[..piece])?;
            self.stream.consume(piece);
            left -= piece as u64;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.by_ref().take(64 << 10).read_line(&mut line)?;
        ensure!(line.ends_with("\r\n"), "the connection broke off");
        line.truncate(line.len() - 2);
        Ok(line)
    }
}
