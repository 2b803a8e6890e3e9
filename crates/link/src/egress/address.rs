//! Kinds of addresses, as far as rules about connections tell them apart.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address in an IPv6 one (mapped, NAT64, 6to4) is what is reached by it.
pub(super) fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let octets = v6.octets();
    let v4 = |at: usize| IpAddr::from([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => v4(12),
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => v4(12),
        [0x2002, ..] => v4(2),
        _ => address,
    }
}

/// Whether the network of this many bits has the address.
pub(super) fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    let same = |network: u128, address: u128, width: u32| {
        let differing = width - u32::from(bits);
        differing >= width || (network ^ address) >> differing == 0
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => same(network.to_bits().into(), address.to_bits().into(), 32),
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits(), address.to_bits(), 128),
        _ => false,
    }
}

/// What is not a host elsewhere: multicast, the link's own addresses, and those at which clouds
/// tell a machine its credentials.
pub(super) fn is_special(address: IpAddr) -> bool {
    const METADATA: [IpAddr; 4] = [
        // Azure, Alibaba, Oracle; AWS by IPv6. The usual 169.254.169.254 is an address of the link.
        IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    ];
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    of_link || address.is_multicast() || METADATA.contains(&address)
}

/// Of a house or a company, or reserved.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            v4.is_private()
                || (a == 100 && b & 0xc0 == 64)
                || (a == 198 && b & 0xfe == 18)
                || (a, b, c) == (192, 0, 0)
                || a >= 240
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0,
    }
}
