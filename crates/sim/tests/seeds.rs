//! Seeds that must come to their end, and planted errors that they must find.

use shoal_sim::{Bug, Coverage, check, found};

/// More with `cargo xtask sim --seeds N`.
const SEEDS: u64 = 200;

#[test]
fn seeds_come_to_their_end_and_strike_everywhere() {
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
    assert_eq!(coverage.holes(), [] as [String; 0]);
}

#[test]
fn planted_errors_are_found() {
    let mut hidden = Bug::ALL.to_vec();
    for seed in 0..SEEDS {
        if hidden.is_empty() {
            break;
        }
        for (bug, what) in found(seed, &hidden).unwrap_or_else(|result| panic!("seed {seed}: {result}")) {
            let first: String = what.lines().next().unwrap_or_default().chars().take(150).collect();
            println!("{bug:?}: found by seed {} of {SEEDS}: {first}", seed + 1);
            hidden.retain(|it| *it != bug);
        }
    }
    assert_eq!(hidden, [], "not found within {SEEDS} seeds");
}
