//! Ranks that are processes: one is killed or stopped at a random moment, and the others go on,
//! alone or with a replacement.

#[path = "processes/rank.rs"]
mod rank;
#[path = "processes/round.rs"]
mod round;

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use round::{Blow, Round};

fn main() -> ExitCode {
    // This program is its own ranks.
    if std::env::var_os("SHOAL_TEST_RANK").is_some() {
        return match rank::main() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("rank {}: {error}", std::env::var("RANK").unwrap_or_default());
                ExitCode::FAILURE
            }
        };
    }
    let trials = vec![
        Trial::test("a_killed_rank_is_known_and_the_others_go_on", || played(4, Blow::Kill, false, "tcp")),
        Trial::test("a_killed_rank_is_known_in_shared_memory", || played(3, Blow::Kill, false, "auto")),
        Trial::test("a_killed_rank_is_replaced_in_shared_memory", || played(3, Blow::Kill, true, "auto")),
        Trial::test("a_stopped_rank_is_known_and_the_others_go_on", || played(3, Blow::Stop, false, "tcp")),
        Trial::test("a_killed_rank_is_replaced", || played(3, Blow::Kill, true, "tcp")),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

#[expect(clippy::unnecessary_wraps, reason = "libtest-mimic's kind of test")]
fn played(ranks: usize, blow: Blow, replace: bool, carrier: &'static str) -> Result<(), libtest_mimic::Failed> {
    let seed = std::env::var("SHOAL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rank::now);
    println!("SHOAL_TEST_SEED={seed}");
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let program = std::env::current_exe().expect("this program");
    // Rank 0 has the store and leads: one round is its.
    for victim in [0, 1 + random(ranks as u64 - 1) as usize] {
        // Of a hang, a silence below the heartbeat could be a busy machine's; deaths are known
        // without one.
        let heartbeat = if blow == Blow::Kill { "60" } else { "3" };
        let after = Duration::from_micros(random(50_000));
        let round =
            Round { ranks, victim, blow, after, length: 1 + random(200_000) as usize, replace, carrier, heartbeat };
        println!("{round:?}: {:?}", round::play(&program, &round));
    }
    Ok(())
}
