//! Histories of many seeds: `cargo run -p shoal-sim --example seeds -- [--seeds N] [--from SEED]`,
//! or `cargo xtask sim` with the same words. What breaks is told with all that happened before, and
//! the command that repeats it.

use std::{env, process::ExitCode};

use shoal_sim::{Coverage, check};

/// So many strike every place that can be struck.
const ENOUGH: u64 = 600;

fn option(name: &str) -> Option<u64> {
    env::args().skip_while(|word| word != name).nth(1)?.parse().ok()
}

fn main() -> ExitCode {
    let (seeds, from) = (option("--seeds").unwrap_or(500), option("--from").unwrap_or(0));
    let mut coverage = Coverage::default();
    let (mut events, mut failed) = (0, 0);
    for seed in from..from + seeds {
        match check(seed) {
            Ok(history) => {
                coverage.add(&history.coverage);
                events += history.events;
            }
            Err(result) => {
                failed += 1;
                eprintln!("{result}\n");
            }
        }
    }
    println!("{coverage}");
    println!("{seeds} seeds from {from}: {events} events, {failed} failed");
    let holes = if seeds < ENOUGH { Vec::new() } else { coverage.holes() };
    holes.iter().for_each(|hole| eprintln!("never struck: {hole}"));
    if failed == 0 && holes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
