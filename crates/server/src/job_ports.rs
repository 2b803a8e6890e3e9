//! Ports of jobs in the network of their machines: each job has a block.

use shoal_link::MachineNetwork;

use crate::attempts::Attempts;

/// Blocks are below the ports that Linux gives by itself.
const FIRST_PORT: u16 = 16_384;
const BLOCKS: u16 = (32_768 - FIRST_PORT) / MachineNetwork::PORTS;

/// The first port for an attempt: of no other live one, where there are enough.
pub(crate) fn for_attempt(attempt: &str, live: &Attempts) -> u16 {
    free(attempt, &Vec::from_iter(live.all().iter().filter_map(|it| it.plan.first_port())))
}

/// The first port of a block that is not used, and differs from one server to the next.
fn free(attempt: &str, used: &[u16]) -> u16 {
    let seed = attempt.bytes().fold(0_u16, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let block = |number: u16| FIRST_PORT + seed.wrapping_add(number) % BLOCKS * MachineNetwork::PORTS;
    (0..BLOCKS).map(block).find(|first| !used.contains(first)).unwrap_or_else(|| block(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_until_all_are_used() {
        let mut used = Vec::new();
        for number in 0..BLOCKS {
            let first = free(&format!("attempt-{number}"), &used);
            assert!((FIRST_PORT..32_768).contains(&(first + MachineNetwork::PORTS - 1)), "{first}");
            assert!(used.iter().all(|other: &u16| other.abs_diff(first) >= MachineNetwork::PORTS), "{first}");
            used.push(first);
        }
        assert!(used.contains(&free("one-more", &used)), "there are no more");
    }
}
