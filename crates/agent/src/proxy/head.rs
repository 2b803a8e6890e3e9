//! The head of a request to the proxy: where it goes, and what of it goes there.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Duration;

use shoal_link::Destination;

/// Of a request without its body.
const MAX_HEAD_BYTES: usize = 64 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Fields that are between a client and its proxy, and `Host`, which is written again from the URL.
const OWN_FIELDS: [&str; 6] =
    ["connection", "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive", "host"];

/// A request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) destination: Destination,
    pub(super) is_connect: bool,
    /// To be sent to the destination first.
    pub(super) forwarded: Vec<u8>,
}

/// Why a request is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the head of the request has more than {} KiB", MAX_HEAD_BYTES >> 10)]
    TooLong,
    #[error("this is an HTTP proxy: requests are CONNECT host:port, or have a whole URL that begins with http://")]
    NotForProxies,
    #[error("the destination is not a host name or address with a port")]
    BadDestination,
}

impl HeadError {
    pub(super) fn status(self) -> u16 {
        match self {
            Self::TooLong => 431,
            Self::NotForProxies | Self::BadDestination => 400,
        }
    }
}

impl Head {
    /// Reads it, with the bytes behind it that have come already.
    pub(super) fn read(stream: &mut TcpStream) -> io::Result<Result<Self, HeadError>> {
        stream.set_read_timeout(Some(HEAD_TIMEOUT))?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        let end = loop {
            match stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => bytes.extend_from_slice(&buffer[..count]),
            }
            let from = bytes.len().saturating_sub(buffer.len() + 3);
            if let Some(at) = bytes[from..].windows(4).position(|window| window == b"\r\n\r\n") {
                break from + at + 4;
            }
            if bytes.len() > MAX_HEAD_BYTES {
                return Ok(Err(HeadError::TooLong));
            }
        };
        stream.set_read_timeout(None)?;
        Ok(Self::parse(&bytes[..end], &bytes[end..]))
    }

    /// `head` ends in an empty line.
    fn parse(head: &[u8], behind: &[u8]) -> Result<Self, HeadError> {
        let text = std::str::from_utf8(head).map_err(|_| HeadError::NotForProxies)?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(HeadError::NotForProxies);
        };
        if !version.starts_with("HTTP/1.") {
            return Err(HeadError::NotForProxies);
        }
        if method == "CONNECT" {
            let destination = destination(target, None)?;
            return Ok(Self { destination, is_connect: true, forwarded: behind.to_vec() });
        }
        let is_http = target.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        if !is_http {
            return Err(HeadError::NotForProxies);
        }
        let rest = &target[7..];
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let destination = destination(authority, Some(80))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        // One request a connection: the next one may go elsewhere.
        let mut forwarded = format!("{method} {slash}{path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
        for line in lines.take_while(|line| !line.is_empty()) {
            let name = line.split(':').next().unwrap_or_default();
            if !OWN_FIELDS.iter().any(|own| name.trim().eq_ignore_ascii_case(own)) {
                forwarded.push_str(line);
                forwarded.push_str("\r\n");
            }
        }
        forwarded.push_str("\r\n");
        Ok(Self { destination, is_connect: false, forwarded: [forwarded.as_bytes(), behind].concat() })
    }
}

fn destination(authority: &str, default_port: Option<u16>) -> Result<Destination, HeadError> {
    let (host, port) = match authority.rsplit_once(':') {
        // Within the brackets of an address.
        Some((_, rest)) if rest.ends_with(']') => (authority, default_port),
        Some((host, port)) => (host, port.parse().ok()),
        None => (authority, default_port),
    };
    let port = port.filter(|port| *port > 0).ok_or(HeadError::BadDestination)?;
    Destination::new(host, port).ok_or(HeadError::BadDestination)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<(String, bool, String), HeadError> {
        let head = Head::parse(head.as_bytes(), b"body")?;
        Ok((head.destination.to_string(), head.is_connect, String::from_utf8(head.forwarded).unwrap()))
    }

    #[test]
    fn requests_say_where_they_go() {
        for (head, destination, is_connect, forwarded) in [
            ("CONNECT Example.com:443 HTTP/1.1\r\nHost: other\r\n\r\n", "example.com:443", true, "body"),
            ("CONNECT [fd00::1]:22 HTTP/1.0\r\n\r\n", "[fd00::1]:22", true, "body"),
            (
                "GET http://a.b/c?d HTTP/1.1\r\nHost: elsewhere\r\nAccept: */*\r\nProxy-Authorization: \
                 x\r\nConnection: keep-alive\r\n\r\n",
                "a.b:80",
                false,
                "GET /c?d HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\nAccept: */*\r\n\r\nbody",
            ),
            (
                "POST HTTP://a.b:8080 HTTP/1.1\r\n\r\n",
                "a.b:8080",
                false,
                "POST / HTTP/1.1\r\nHost: a.b:8080\r\nConnection: close\r\n\r\nbody",
            ),
            (
                "GET http://[::1]?q HTTP/1.1\r\n\r\n",
                "[::1]:80",
                false,
                "GET /?q HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\nbody",
            ),
        ] {
            assert_eq!(parse(head).unwrap(), (destination.to_owned(), is_connect, forwarded.to_owned()), "{head}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        use HeadError::{BadDestination, NotForProxies};
        for (head, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", NotForProxies),
            ("GET https://a.b/ HTTP/1.1\r\n\r\n", NotForProxies),
            ("GET h\u{e4}ttp:// HTTP/1.1\r\n\r\n", NotForProxies),
            ("SSH-2.0-x\r\n\r\n", NotForProxies),
            ("CONNECT a.b HTTP/1.1\r\n\r\n", BadDestination),
            ("CONNECT a.b:0 HTTP/1.1\r\n\r\n", BadDestination),
            ("CONNECT a.b:65536 HTTP/1.1\r\n\r\n", BadDestination),
            ("GET http://user:pw@a.b/ HTTP/1.1\r\n\r\n", BadDestination),
            ("GET http:///x HTTP/1.1\r\n\r\n", BadDestination),
        ] {
            assert_eq!(parse(head).unwrap_err(), expected, "{head}");
        }
    }
}
