//! The network of the machines themselves, where the instances of a job are on several of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use nix::ifaddrs::getifaddrs;

use crate::server::Server;

/// This machine's address on the way to the server: where other machines reach it.
///
/// # Errors
/// There is no way, or it is not IPv4.
pub(crate) fn address(server: &Server) -> io::Result<Ipv4Addr> {
    let Server::Tls { address, .. } = server else { return Ok(Ipv4Addr::LOCALHOST) };
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Nothing is sent.
    socket.connect(address.as_str())?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => Err(io::Error::other(format!("{address} is not an IPv4 address"))),
    }
}

/// The name of the interface that has an address; none: there is no such interface.
pub(crate) fn interface(address: Ipv4Addr) -> Option<String> {
    let has = |it: &nix::ifaddrs::InterfaceAddress| {
        it.address.as_ref().and_then(|of| of.as_sockaddr_in()).is_some_and(|of| of.ip() == address)
    };
    getifaddrs().ok()?.find(has).map(|it| it.interface_name)
}

/// Where a host of a job on several machines is, as its agent reports it
/// ([`shoal_link::ReportBody::Network`]) and gets it of all ([`shoal_link::ToAgent::Network`]):
/// `10.0.0.1`, or `10.0.0.1:PORT/FINGERPRINT` where the agent passes parts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of its machine.
    pub(crate) address: Ipv4Addr,
    /// Where it passes parts on: a port, and the SHA-256 of the certificate that is shown there.
    pub(crate) passes: Option<(u16, String)>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.address)?;
        match &self.passes {
            Some((port, fingerprint)) => write!(formatter, ":{port}/{fingerprint}"),
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is no place of a host: wanted is ADDRESS or ADDRESS:PORT/FINGERPRINT");
        let (address, passes) = match text.split_once(':') {
            None => (text, None),
            Some((address, rest)) => {
                let (port, fingerprint) = rest.split_once('/').ok_or_else(wrong)?;
                (address, Some((port.parse().map_err(|_| wrong())?, fingerprint.to_owned())))
            }
        };
        Ok(Self { address: address.parse().map_err(|_| wrong())?, passes })
    }
}

impl Place {
    /// All hosts' places, by host number - 1.
    ///
    /// # Errors
    /// One of them is no place.
    pub(crate) fn all(handle: &str) -> Result<Vec<Self>, String> {
        handle.split(',').map(str::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use shoal_contract::Port;
    use shoal_link::MachineNetwork;

    use super::*;

    #[test]
    fn a_jobs_ports_are_enough_for_all_that_it_needs() {
        assert!(Port::Algorithm.number(Some(0)) + 32 <= MachineNetwork::PORTS);
    }

    #[test]
    fn interfaces_have_names() {
        assert_eq!(interface(Ipv4Addr::LOCALHOST).as_deref(), Some("lo"));
        assert_eq!(interface(Ipv4Addr::new(192, 0, 2, 1)), None);
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let handle = "10.0.0.1,10.0.0.2:41000/0f0f,10.0.0.3";
        let places = Place::all(handle).unwrap();
        assert_eq!(places[1].passes, Some((41_000, "0f0f".to_owned())));
        assert_eq!(Vec::from_iter(places.iter().map(Place::to_string)).join(","), handle);
        for wrong in ["", "10.0.0.1:/f", "10.0.0.1:41000", "10.0.0.1,::1", "moon"] {
            assert!(Place::all(wrong).unwrap_err().contains("is no place of a host"), "{wrong}");
        }
    }
}
