//! Seeds that must come to their end, and planted errors that they must find.

use shoal_sim::{Bug, Coverage, check, found};

/// More with `cargo xtask sim --seeds N`.
const SEEDS: u64 = 120;
/// Places of the program that these may never strike; 600 histories strike every one, which `cargo
/// xtask soak` asks for.
const MOST_HOLES: usize = 40;
/// Each planted error is found within these.
const SEEDS_OF_ERRORS: u64 = 200;

#[test]
fn seeds_come_to_their_end_and_strike_nearly_everywhere() {
    let (mut coverage, mut replaced, mut reused) = (Coverage::default(), 0, 0);
    for seed in 0..SEEDS {
        let history = check(seed).unwrap_or_else(|result| panic!("{result}"));
        coverage.add(&history.coverage);
        replaced += history.replaced;
        reused += history.reused;
    }
    println!("{coverage}\n{replaced} attempts that had served were replaced, {reused} were served by a warm instance");
    assert!(u64::from(replaced) > SEEDS / 10, "services are replaced in too few seeds");
    assert!(u64::from(reused) > SEEDS, "warm instances are reused in too few seeds");
    let holes = coverage.holes();
    assert!(holes.len() <= MOST_HOLES, "{holes:?}");
}

#[test]
fn planted_errors_are_found() {
    let mut hidden = Bug::ALL.to_vec();
    for seed in 0..SEEDS_OF_ERRORS {
        if hidden.is_empty() {
            break;
        }
        for (bug, what) in found(seed, &hidden).unwrap_or_else(|result| panic!("seed {seed}: {result}")) {
            let first: String = what.lines().next().unwrap_or_default().chars().take(150).collect();
            println!("{bug:?}: found by seed {} of {SEEDS_OF_ERRORS}: {first}", seed + 1);
            hidden.retain(|it| *it != bug);
        }
    }
    assert_eq!(hidden, [], "not found within {SEEDS_OF_ERRORS} seeds");
}
