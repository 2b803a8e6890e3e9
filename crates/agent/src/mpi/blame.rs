//! Which of several ranks failed first, of what each left about its end ([`mod@super::rank`]); as
//! the control plane decides it for hosts (`plane/src/gang/failure.rs`).
//!
//! A rank that fails takes others with it, whose ends may be recorded before its own. So the
//! culprit is the rank whose end can least be a consequence of another's, and of equals the
//! earliest by the clocks of the instances:
//!
//! 1. was killed by SIGKILL: what `mpirun` kills so leaves nothing;
//! 2. ended by itself, or after a traceback, whose time counts then;
//! 3. ended after a signal to end (`mpirun` ends all when one fails, and some end their own group),
//!    but before any rank that lost a peer.
//!
//! One whose last output says that it lost a peer is no culprit.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::str::FromStr;

use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};

/// The longest time, in microseconds, from a rank's traceback to its end.
const TEARDOWN: u64 = 10_000_000;

/// By these `mpirun` ends ranks.
pub(super) const STOPS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// How a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) rank: u32,
    /// The instance, counted from 0; what an instance itself leaves has 0.
    pub(super) host: usize,
    pub(super) status: ExitStatus,
    /// Microseconds since 1970, by the clock of the instance.
    pub(super) at: u64,
    /// One of [`STOPS`] came before.
    pub(super) is_stopped: bool,
}

/// `RANK STATUS AT STOPPED`, the status as wait(2) gives it; without the host.
impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host: _, status, at, is_stopped } = self;
        write!(formatter, "{rank} {} {at} {}", status.into_raw(), u8::from(*is_stopped))
    }
}

impl FromStr for Failed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(());
        let (rank, status, at, stopped) = (word()?, word()?, word()?, word()?);
        Ok(Self {
            rank: rank.parse().map_err(drop)?,
            host: 0,
            status: ExitStatus::from_raw(status.parse().map_err(drop)?),
            at: at.parse().map_err(drop)?,
            is_stopped: stopped == "1",
        })
    }
}

/// The culprit; `None` if all of them lost a peer. `traceback`: when a rank printed its last one,
/// by the first instance's clock: then it failed, if it ended soon after.
pub(super) fn culprit(
    failed: &[Failed],
    has_lost_peer: impl Fn(u32) -> bool,
    traceback: impl Fn(u32) -> Option<u64>,
) -> Option<Failed> {
    let is_killed = |it: &Failed| it.status.signal() == Some(SIGKILL);
    // A warning of a connection that was lost is no cause of SIGKILL.
    let lost = |it: &&Failed| !is_killed(it) && has_lost_peer(it.rank);
    let first_lost = failed.iter().filter(lost).map(|it| it.at).min();
    let class = |it: &Failed| {
        let is_of_stop = it.status.signal().is_some_and(|signal| STOPS.contains(&signal));
        // A rank that raised may be in MPI_Abort when it is stopped.
        let ends_by_it = it.status.code().is_some() || is_of_stop;
        let raised = traceback(it.rank).filter(|at| ends_by_it && it.at.saturating_sub(*at) <= TEARDOWN);
        match raised {
            _ if is_killed(it) => Some((1, it.at)),
            Some(raised) => Some((2, raised.min(it.at))),
            None if is_of_stop => None,
            None if !it.is_stopped => Some((2, it.at)),
            None => first_lost.is_some_and(|first| it.at < first).then_some((3, it.at)),
        }
    };
    let suspects = failed.iter().filter(|it| !lost(it)).filter_map(|it| Some((class(it)?, *it)));
    suspects.min_by_key(|(class, it)| (*class, it.host, it.rank)).map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: u32 = 90;

    /// Ranks from [`LOST`] on have lost a peer.
    fn culprit_of(failed: &[Failed], traceback: Option<(u32, u64)>) -> Option<u32> {
        let raised = |rank| traceback.filter(|(of, _)| *of == rank).map(|(_, at)| at);
        let found = culprit(failed, |rank| rank >= LOST, raised).map(|it| it.rank);
        let reversed = Vec::from_iter(failed.iter().rev().copied());
        assert_eq!(culprit(&reversed, |rank| rank >= LOST, raised).map(|it| it.rank), found, "in any order");
        found
    }

    fn ended(rank: u32, raw: i32, at: u64) -> Failed {
        Failed { rank, host: 0, status: ExitStatus::from_raw(raw), at, is_stopped: false }
    }

    fn stopped(rank: u32, raw: i32, at: u64) -> Failed {
        Failed { is_stopped: true, ..ended(rank, raw, at) }
    }

    const fn exit(code: i32) -> i32 {
        code << 8
    }

    const ABORTED: i32 = 6;
    const SEGFAULT: i32 = 11;
    const KILLED: i32 = SIGKILL;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for failed in [ended(3, KILLED, 17), stopped(0, exit(14), 1_800_000_000_000_000)] {
            assert_eq!(failed.to_string().parse(), Ok(failed));
        }
        assert!(["", "1", "1 9", "1 9 5", "x 9 5 0"].iter().all(|text| text.parse::<Failed>().is_err()));
    }

    #[test]
    fn the_earliest_end_that_is_no_consequence_counts() {
        assert_eq!(culprit_of(&[], None), None);
        // One that notices the end of another in its own words, or aborts.
        assert_eq!(culprit_of(&[ended(0, exit(1), 20), ended(1, exit(3), 10)], None), Some(1));
        assert_eq!(culprit_of(&[ended(0, ABORTED, 20), ended(1, exit(3), 10)], None), Some(1));
        assert_eq!(culprit_of(&[ended(0, SEGFAULT, 10), ended(1, exit(3), 20)], None), Some(0));
        // SIGKILL comes first, however late it is recorded and whatever came before.
        assert_eq!(culprit_of(&[ended(0, exit(1), 10), stopped(LOST, KILLED, 20)], None), Some(LOST));
        // Open MPI's own end of those that lost a peer.
        assert_eq!(culprit_of(&[ended(LOST, exit(14), 10), ended(1, exit(4), 20)], None), Some(1));
        assert_eq!(culprit_of(&[ended(LOST, exit(14), 10), ended(LOST + 1, exit(14), 20)], None), None);
    }

    #[test]
    fn one_that_was_told_to_end_is_no_culprit() {
        assert_eq!(culprit_of(&[stopped(0, exit(1), 10), ended(1, exit(3), 20)], None), Some(1));
        assert_eq!(culprit_of(&[stopped(0, SIGTERM, 10), stopped(1, exit(1), 20)], None), None);
        // It ended its own process group, and after that another lost it.
        assert_eq!(culprit_of(&[stopped(1, exit(5), 10), ended(LOST, exit(14), 20)], None), Some(1));
        assert_eq!(culprit_of(&[stopped(1, SIGTERM, 10), ended(LOST, exit(14), 20)], None), None);
        assert_eq!(culprit_of(&[ended(1, SIGTERM, 10), ended(0, exit(1), 20)], None), Some(0));
        assert_eq!(culprit_of(&[stopped(1, exit(1), 30), ended(LOST, exit(14), 20)], None), None);
    }

    #[test]
    fn a_rank_has_failed_when_it_printed_its_traceback() {
        // Its interpreter takes a while to end; another has noticed by then.
        let (slow, quick) = (ended(1, exit(1), 30), ended(0, exit(1), 20));
        assert_eq!(culprit_of(&[slow, quick], Some((1, 10))), Some(1));
        // One that was handled, of a rank that fails later, too.
        assert_eq!(culprit_of(&[ended(1, KILLED, 30), quick], Some((0, 5))), Some(1));
        // MPI_Abort has all ranks told to end, this one as well.
        assert_eq!(culprit_of(&[stopped(1, SIGTERM, 20), ended(0, exit(1), 30)], Some((1, 10))), Some(1));
        assert_eq!(culprit_of(&[stopped(1, exit(1), 20), stopped(0, exit(143), 30)], Some((1, 10))), Some(1));
        let late = ended(0, exit(1), 2 * TEARDOWN);
        assert_eq!(culprit_of(&[ended(1, exit(3), TEARDOWN), late], Some((0, 5))), Some(1));
    }
}
