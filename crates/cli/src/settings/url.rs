//! Where a server is found. One that lives says so in the file `address` of its data directory: its
//! URL, and in a second line the certificate of the authority that its clients must trust, if it is
//! none that they trust anyway.

use std::{
    fmt, io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use shoal_wire::client::Scheme;

/// Where clients find a server, and whom they must trust for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// With or without TLS.
    pub(crate) scheme: Scheme,
    /// Host and port.
    pub(crate) authority: String,
    /// PEM; `None`: what the machine trusts.
    pub(crate) trusted: Option<PathBuf>,
}

impl ServerUrl {
    /// Reads a URL without a path.
    pub(crate) fn parse(url: &str, trusted: Option<PathBuf>) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.trim_end_matches('/').to_owned();
        let scheme = match scheme {
            "http" => Scheme::HTTP,
            "https" => Scheme::HTTPS,
            _ => return None,
        };
        (!authority.is_empty() && !authority.contains('/')).then_some(Self { scheme, authority, trusted })
    }

    /// Where one listens at this address.
    pub(crate) fn at(scheme: Scheme, mut address: SocketAddr, trusted: Option<PathBuf>) -> Self {
        if address.ip().is_unspecified() {
            // "Any" is reached by loopback.
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        Self { scheme, authority: address.to_string(), trusted }
    }

    /// What the file says.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let mut lines = text.lines();
        Self::parse(lines.next()?, lines.next().map(PathBuf::from))
    }

    /// Writes that file.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        let trusted = self.trusted.as_ref().map(|path| format!("{}\n", path.display())).unwrap_or_default();
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, format!("{self}\n{trusted}"))?;
        std::fs::rename(temporary, file)
    }

    /// Whether somebody takes connections there.
    pub(crate) fn answers(&self) -> bool {
        let mut addresses = self.authority.to_socket_addrs().into_iter().flatten();
        addresses.any(|address| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
    }

    /// Name or address without the port.
    pub(crate) fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.scheme, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_clients_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("address");
        assert_eq!(ServerUrl::read(&file), None);
        for (url, trusted, host) in [
            ("http://127.0.0.1:9777", None, "127.0.0.1"),
            ("https://[::1]:9777", Some("/data/tls/authority.pem"), "::1"),
            ("https://train-box.example.org:443", None, "train-box.example.org"),
        ] {
            let written = ServerUrl::parse(url, trusted.map(PathBuf::from)).unwrap();
            written.write(&file).unwrap();
            assert_eq!(ServerUrl::read(&file).unwrap(), written);
            assert_eq!((written.to_string().as_str(), written.host()), (url, host));
        }
        for wrong in ["127.0.0.1:9777", "ftp://a:1", "https://", "http://a:1/path"] {
            assert_eq!(ServerUrl::parse(wrong, None), None, "{wrong}");
        }
    }

    #[test]
    fn any_address_is_reached_by_loopback() {
        for (address, expected) in
            [("0.0.0.0:1", "http://127.0.0.1:1"), ("[::]:1", "http://[::1]:1"), ("10.0.0.1:1", "http://10.0.0.1:1")]
        {
            assert_eq!(ServerUrl::at(Scheme::HTTP, address.parse().unwrap(), None).to_string(), expected);
        }
    }
}
