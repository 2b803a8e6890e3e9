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
}
