//! Wrong tries to sign in cost their source time: a few are free, then one more every few seconds.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Wrong tries that are free after a quiet time.
const FREE_TRIES: u32 = 10;
/// A try comes back after this.
const TRY_INTERVAL: Duration = Duration::from_secs(6);
/// Sources that are remembered. Beyond it the one that is nearest to having all its tries back is
/// forgotten.
const MAX_SOURCES: usize = 4096;

/// How many wrong tries each source has left. A link from `shoal console` needs none.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// When all tries of a source will have come back.
    whole: HashMap<IpAddr, Instant>,
}

impl Throttle {
    /// Seconds until a try counts; 0 if it counts now.
    pub(crate) fn wait_s(&self, source: IpAddr, now: Instant) -> u64 {
        let Some(whole) = self.whole.get(&network(source)) else { return 0 };
        let until = whole.saturating_duration_since(now).saturating_sub(TRY_INTERVAL * (FREE_TRIES - 1));
        until.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
    }

    /// A try was wrong.
    pub(crate) fn failed(&mut self, source: IpAddr, now: Instant) {
        let source = network(source);
        if self.whole.len() >= MAX_SOURCES && !self.whole.contains_key(&source) {
            self.whole.retain(|_, whole| *whole > now);
            let first = self.whole.iter().min_by_key(|(_, whole)| **whole).map(|(source, _)| *source);
            if let Some(first) = first.filter(|_| self.whole.len() >= MAX_SOURCES) {
                self.whole.remove(&first);
            }
        }
        let whole = self.whole.entry(source).or_insert(now);
        *whole = (*whole).max(now) + TRY_INTERVAL;
    }
}

/// The source that an address stands for: of IPv6 a customer has 2^64 addresses.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_run_out_and_come_back_for_each_source() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 7]));
        for _ in 0..FREE_TRIES {
            assert_eq!(throttle.wait_s(here, start), 0);
            throttle.failed(here, start);
        }
        assert_eq!(throttle.wait_s(here, start), TRY_INTERVAL.as_secs());
        assert_eq!(throttle.wait_s(there, start), 0, "another source has its own tries");
        assert_eq!(throttle.wait_s(here, start + TRY_INTERVAL), 0);
        throttle.failed(here, start + TRY_INTERVAL);
        assert_eq!(throttle.wait_s(here, start + TRY_INTERVAL), TRY_INTERVAL.as_secs());
        assert_eq!(throttle.wait_s(here, start + TRY_INTERVAL * 100), 0);
    }

    #[test]
    fn addresses_of_one_network_are_one_source_and_sources_are_bounded() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        let address = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        for host in 0..u16::try_from(FREE_TRIES).unwrap() {
            throttle.failed(address(1, host), start);
        }
        assert_eq!(throttle.wait_s(address(1, 999), start), TRY_INTERVAL.as_secs());
        for network in 0..9999 {
            throttle.failed(address(network, 0), start);
        }
        assert_eq!(throttle.whole.len(), MAX_SOURCES);
        assert!(throttle.wait_s(address(1, 1), start) > 0, "the one that tried most is remembered longest");
    }
}
