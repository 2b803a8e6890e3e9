//! One rank as a process of its own: reduces again and again until something goes wrong, then goes
//! on with those that are left. Says on standard output what happened and when, one line each;
//! times are microseconds of the system's clock.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shoal_comm::rendezvous::Config;
use shoal_comm::{Error, ProcessGroupExt, ReduceOp, join};

/// What a rank does after a failure: `shrink` or `rejoin`, by this variable.
pub(crate) const AFTER: &str = "SHOAL_TEST_AFTER";
/// Elements of the vector.
pub(crate) const LENGTH: &str = "SHOAL_TEST_LENGTH";

/// Microseconds of the system's clock.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros()).expect("64 bits")
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone needs no answer.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The program of one rank; what it is is in its environment.
pub(crate) fn main() -> Result<(), Error> {
    let rank: u32 = std::env::var("RANK").expect("RANK").parse().expect("a number");
    let length: usize = std::env::var(LENGTH).expect("a length").parse().expect("a number");
    let config = Config::from_env()?.keep_input(true).patience(Duration::from_secs(60));
    let mut group = join(config)?;
    say(&format!("formed {} {} {}", now(), group.size(), group.epoch()));
    let own = (rank + 1) as f32;
    let mut vector = vec![own; length];
    // Formed anew, it does a few operations more and ends.
    let mut left = if group.epoch() > 0 { 3 } else { u32::MAX };
    while left > 0 {
        match group.all_reduce(&mut vector, ReduceOp::Sum) {
            Ok(()) => {
                let sum = vector[0];
                assert!(vector.iter().all(|value| *value == sum), "all elements have the same sum");
                say(&format!("sum {sum}"));
                vector.fill(own);
                left = if left == u32::MAX { left } else { left - 1 };
            }
            Err(error) => {
                let (kind, who) = match &error {
                    Error::PeerDied { rank, .. } => ("died", *rank),
                    Error::PeerHung { rank, .. } => ("hung", *rank),
                    _ => ("other", 99),
                };
                say(&format!("failed {} {kind} {who} {}", now(), error.to_string().replace('\n', " ")));
                assert!(vector.iter().all(|value| *value == own), "the input is as it was");
                let formed = match std::env::var(AFTER).as_deref() {
                    Ok("rejoin") => group.rejoin(Duration::from_secs(60)),
                    _ => group.shrink(),
                };
                group = formed?;
                say(&format!("formed {} {} {}", now(), group.size(), group.epoch()));
                left = 3;
            }
        }
    }
    say("done");
    Ok(())
}
