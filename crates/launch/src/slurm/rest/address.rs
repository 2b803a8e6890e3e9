//! Where slurmrestd listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that Slurm's documentation has for it.
const PORT: u16 = 6820;

/// An address of slurmrestd's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `http://HOST:PORT` or `https://HOST:PORT`
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// Something before slurmrestd speaks TLS.
        tls: bool,
    },
    /// `unix:/PATH`
    Unix(PathBuf),
}

impl Address {
    /// For the header of that name.
    pub(super) fn host(&self) -> String {
        match self {
            Address::Tcp { host, port, .. } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is none of \"http://HOST:PORT\", \"https://HOST:PORT\" and \"unix:/PATH\" of its socket")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return if path.is_absolute() { Ok(Address::Unix(path)) } else { Err(wrong()) };
        }
        let uri: http::Uri = text.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let has_path = uri.path() != "/" || uri.query().is_some() || text.contains('@');
        match uri.host().filter(|host| !host.is_empty() && !has_path) {
            Some(host) => Ok(Address::Tcp { host: host.to_owned(), port: uri.port_u16().unwrap_or(PORT), tls }),
            None => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port, tls } => write!(f, "http{}://{host}:{port}", if *tls { "s" } else { "" }),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_sockets() {
        for (text, shown) in [
            ("http://login1:6821", "http://login1:6821"),
            ("http://login1", "http://login1:6820"),
            ("https://[::1]:443/", "https://[::1]:443"),
            ("unix:/run/slurmrestd.sock", "unix:/run/slurmrestd.sock"),
            ("unix:///run/slurmrestd.sock", "unix:/run/slurmrestd.sock"),
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), shown);
        }
        for text in ["login1:6820", "ftp://login1", "http://", "http://a/slurm", "unix:run", "http://user@a", ""] {
            assert!(text.parse::<Address>().is_err_and(|error| error.contains("unix:/PATH")), "{text}");
        }
    }
}
