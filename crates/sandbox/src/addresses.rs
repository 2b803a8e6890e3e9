//! Addresses on the private network of a training job.

use std::net::Ipv4Addr;

/// Of the network's addresses, 10.77.0.0/16.
pub(crate) const PREFIX: u8 = 16;

/// 10.77.0.1 for the first instance.
pub(crate) fn private_address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 0)) + host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_on_after_255() {
        assert_eq!(private_address(1).to_string(), "10.77.0.1");
        assert_eq!(private_address(300).to_string(), "10.77.1.44");
    }
}
