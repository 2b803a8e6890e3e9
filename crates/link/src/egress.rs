//! Which hosts outside of its instance a program may connect to. Pure: names are resolved and
//! connections made by the agent, which asks here first.

mod address;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use address::{contains, embedded, is_private, is_special};

/// How far the network of an instance reaches, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// To the instances of the same job and to the server.
    None,
    /// And to the hosts of a list.
    AllowList,
    /// And to all that the server's machine reaches, except the machine itself and its link.
    Host,
}

impl NetworkMode {
    /// All of them, as they are written.
    pub const NAMES: &str = "none, allow-list or host";

    /// `allow-list`
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AllowList => "allow-list",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for NetworkMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::None, Self::AllowList, Self::Host].into_iter().find(|mode| mode.as_str() == text).ok_or(())
    }
}

/// What the program of an assignment may connect to through its agent's proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// How far it reaches without the list.
    pub mode: NetworkMode,
    /// Entries as [`AllowedHost`] has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

/// An entry of the list: a host name (`pypi.org`), all names below one (`*.pypi.org`), an address,
/// or a network (`10.1.0.0/16`); each with a port, or with `:*` for all ports. Without a port those
/// of HTTP and HTTPS are meant. IPv6 is written in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    host: Host,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    Below(String),
    Network(IpAddr, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    Web,
    One(u16),
    All,
}

impl Ports {
    fn contain(self, port: u16) -> bool {
        match self {
            Self::Web => port == 80 || port == 443,
            Self::One(one) => port == one,
            Self::All => true,
        }
    }
}

/// Why an entry is none; the text says what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not an allowed host: {problem}")]
pub struct BadEntry {
    entry: String,
    problem: &'static str,
}

impl FromStr for AllowedHost {
    type Err = BadEntry;

    fn from_str(entry: &str) -> Result<Self, BadEntry> {
        let bad = |problem| BadEntry { entry: entry.to_owned(), problem };
        let (host, port) = match entry.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((address, rest))) => match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return Err(bad("only a port may follow the brackets")),
            },
            Some(None) => return Err(bad("the closing bracket is missing")),
            None => match entry.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => return Err(bad("write an IPv6 address in brackets")),
                Some((host, port)) => (host, Some(port)),
                None => (entry, None),
            },
        };
        let ports = match port {
            None => Ports::Web,
            Some("*") => Ports::All,
            Some(port) => Ports::One(
                port.parse().ok().filter(|port| *port > 0).ok_or_else(|| bad("its port is not 1 to 65535 or *"))?,
            ),
        };
        let (address, bits) = match host.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (host, None),
        };
        if let Ok(address) = address.parse::<IpAddr>() {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                None => most,
                Some(bits) => bits
                    .parse()
                    .ok()
                    .filter(|bits| *bits <= most)
                    .ok_or_else(|| bad("the length of its prefix is wrong"))?,
            };
            let host = Host::Network(address, bits);
            if address.is_loopback() && !(bits == most && matches!(ports, Ports::One(_))) {
                return Err(bad(
                    "services of the machine itself are listed one by one, each with its port, as in 127.0.0.1:3141",
                ));
            }
            return Ok(Self { host, ports });
        }
        if bits.is_some() {
            return Err(bad("a network is an address and the length of its prefix, as in 10.1.0.0/16"));
        }
        let (name, is_below) = match host.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (host, false),
        };
        let name = canonical_name(name)
            .ok_or_else(|| bad("it is neither a host name such as pypi.org or *.pypi.org, nor an address"))?;
        Ok(Self { host: if is_below { Host::Below(name) } else { Host::Name(name) }, ports })
    }
}

/// Lower case, without a dot at the end; `None` if it cannot be a host name.
fn canonical_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
    };
    // Resolvers read a name whose last label is a number as an address (127.1, 2130706433).
    let ends_in_number =
        name.rsplit('.').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_digit()));
    (name.len() <= 253 && name.split('.').all(is_label) && !ends_in_number).then_some(name)
}

/// Whom a program wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    host: Wanted,
    /// TCP.
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Name(String),
    Address(IpAddr),
}

impl Destination {
    /// Of the host as a request names it (IPv6 in brackets); `None` if it is neither a name nor an
    /// address.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let address = match host.strip_prefix('[') {
            Some(rest) => Some(rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.into()),
            None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        let host = match address {
            Some(address) => Wanted::Address(address),
            None => Wanted::Name(canonical_name(host)?),
        };
        Some(Self { host, port })
    }

    /// The name to be resolved; `None` if an address is given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Wanted::Name(name) => Some(name),
            Wanted::Address(_) => None,
        }
    }

    /// The address, if that is given.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Wanted::Name(_) => None,
            Wanted::Address(address) => Some(address),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Wanted::Name(name) => write!(formatter, "{name}:{port}"),
            Wanted::Address(IpAddr::V4(address)) => write!(formatter, "{address}:{port}"),
            Wanted::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]:{port}"),
        }
    }
}

/// Why a connection is refused; the text follows the destination's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No entry names it.
    #[error("is not in network_allow")]
    NotListed,
    /// The address belongs to the server's machine, its link, or a service for machines of a cloud.
    #[error(
        "leads to the server's own machine or its cloud's metadata, which only an entry of network_allow with this \
         address and port opens"
    )]
    Machine,
    /// A pattern of names is no permission for private addresses: others may give names below it.
    #[error("leads to a private address, which only an entry of network_allow with its full name or its address opens")]
    Private,
    /// This server.
    #[error("is this server, which programs reach at AWS_ENDPOINT_URL")]
    Server,
}

/// The rules of an assignment.
#[derive(Debug, Clone)]
pub struct EgressPolicy {
    mode: NetworkMode,
    allow: Vec<AllowedHost>,
    server_port: Option<u16>,
}

impl EgressPolicy {
    /// `server_port`: where on its machine the server listens.
    ///
    /// # Errors
    /// The first entry that is none.
    pub fn new(egress: &Egress, server_port: Option<u16>) -> Result<Self, BadEntry> {
        let allow = egress.allow.iter().map(|entry| entry.parse()).collect::<Result<_, _>>()?;
        Ok(Self { mode: egress.mode, allow, server_port })
    }

    /// Whether the destination may be looked at more closely: its name resolved. A name that may
    /// not is not given to any resolver, whose queries could carry data out.
    ///
    /// # Errors
    /// Why not.
    pub fn check_name(&self, destination: &Destination) -> Result<(), Denied> {
        let is_open =
            self.mode == NetworkMode::Host || destination.name().is_none() || self.named(destination).is_some();
        if is_open { Ok(()) } else { Err(Denied::NotListed) }
    }

    /// Whether a connection to this address of the destination may be made. `is_own`: the machine
    /// has the address itself.
    ///
    /// # Errors
    /// Why not.
    pub fn check_address(&self, destination: &Destination, address: IpAddr, is_own: bool) -> Result<(), Denied> {
        let (address, port) = (embedded(address), destination.port);
        let is_own = is_own || address.is_loopback() || address.is_unspecified();
        if is_own && Some(port) == self.server_port {
            return Err(Denied::Server);
        }
        let of_address = |it: &&AllowedHost| {
            matches!(it.host, Host::Network(net, bits) if contains(net, bits, address)) && it.ports.contain(port)
        };
        if let Some(entry) = self.allow.iter().find(of_address) {
            // A whole network is not its metadata service.
            let is_exact =
                matches!(entry.host, Host::Network(_, bits) if bits == if address.is_ipv4() { 32 } else { 128 });
            if is_exact || !(is_own || is_special(address)) {
                return Ok(());
            }
        }
        if is_own || is_special(address) {
            return Err(Denied::Machine);
        }
        match (self.named(destination), self.mode) {
            (_, NetworkMode::Host) | (Some(Host::Name(_)), _) => Ok(()),
            (Some(_), _) if !is_private(address) => Ok(()),
            (Some(_), _) => Err(Denied::Private),
            (None, _) => Err(Denied::NotListed),
        }
    }

    /// The entry that names it; a full name rather than a pattern.
    fn named(&self, destination: &Destination) -> Option<&Host> {
        let (name, port) = (destination.name()?, destination.port);
        let of_port = || self.allow.iter().filter(move |it| it.ports.contain(port)).map(|it| &it.host);
        let below = |suffix: &str| name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
        let exact = of_port().find(|host| matches!(host, Host::Name(listed) if listed == name));
        exact.or_else(|| of_port().find(|host| matches!(host, Host::Below(suffix) if below(suffix))))
    }
}

#[cfg(test)]
mod tests;
