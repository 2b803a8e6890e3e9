//! How a program ended, and what that tells.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use shoal_contract::SUCCESS;
use shoal_link::RankOutcome;
use shoal_sandbox::Exit;

/// What shells add to a signal's number.
const OF_SIGNALS: i32 = 128;

pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;

/// Whether the program, or one that it waited for, was killed without a chance to save anything, as
/// far as its end shows. SIGTERM is the request to end: a program that exits with 143 has handled
/// it, and has saved what it wanted to.
pub(crate) fn was_killed(outcome: RankOutcome, out_of_memory: bool) -> bool {
    match outcome {
        RankOutcome::Signaled(_) => true,
        RankOutcome::Exited(SUCCESS) => false,
        RankOutcome::Exited(code) => {
            out_of_memory || (OF_SIGNALS + 1..=OF_SIGNALS + 64).contains(&code) && code != OF_SIGNALS + SIGTERM
        }
    }
}

/// As a shell tells it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| OF_SIGNALS + status.signal().unwrap_or_default())
}

/// As the server hears it.
pub(crate) fn outcome(exit: Exit) -> RankOutcome {
    match (exit.code, exit.signal) {
        (Some(code), _) => RankOutcome::Exited(code),
        (None, signal) => RankOutcome::Signaled(signal.unwrap_or(SIGKILL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_tells_that_its_program_was_killed() {
        use RankOutcome::{Exited, Signaled};
        for (outcome, out_of_memory, expected) in [
            (Signaled(SIGKILL), false, true),
            (Exited(1), true, true),
            (Exited(128 + SIGKILL), false, true),
            (Exited(128 + SIGTERM), false, false),
            (Exited(1), false, false),
            (Exited(255), false, false),
            (Exited(SUCCESS), true, false),
        ] {
            assert_eq!(was_killed(outcome, out_of_memory), expected, "{outcome:?} {out_of_memory}");
        }
    }
}
