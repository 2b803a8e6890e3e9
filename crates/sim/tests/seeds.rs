//! Seeds that must come to their end, and planted errors that they must find.

use shoal_sim::{Bug, Coverage, check, find};

/// More with `cargo xtask sim --seeds N`.
const SEEDS: u64 = 500;

#[test]
fn seeds_come_to_their_end_and_strike_everywhere() {
    let (mut coverage, mut replaced) = (Coverage::default(), 0);
    for seed in 0..SEEDS {
        let history = check(seed).unwrap_or_else(|result| panic!("{result}"));
        coverage.add(&history.coverage);
        replaced += history.replaced;
    }
    println!("{coverage}\n{replaced} attempts that had served were replaced");
    assert!(u64::from(replaced) > SEEDS / 10, "services are replaced in too few seeds");
    assert_eq!(coverage.holes(), [] as [String; 0]);
}

#[test]
fn planted_errors_are_found() {
    for bug in Bug::ALL {
        let found = (0..SEEDS).find_map(|seed| Some((seed, find(seed, Some(bug)).err()?)));
        let (seed, what) = found.unwrap_or_else(|| panic!("{bug:?} is not found within {SEEDS} seeds"));
        let first: String = what.lines().next().unwrap_or_default().chars().take(150).collect();
        println!("{bug:?}: found by seed {} of {SEEDS}: {first}", seed + 1);
    }
}
