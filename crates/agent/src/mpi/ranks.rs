//! The ranks of this instance: what `mpirun`, or its daemon, has started here.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Who starts ranks: in Open MPI 4 and 5, and where there is none.
const DAEMONS: [&str; 6] = ["mpirun", "orted", "prterun", "prted", super::rank::NAME, crate::ranks::NAME];

/// A process: its name and its parent.
type Process = (String, i32);

/// Sends SIGTERM to each, as a script expects it; `mpirun` itself would give them a second, and not
/// let them end by themselves. Where there is none, who starts ranks passes it on, and knows that
/// it is a stop. Gives how many were told.
pub(super) fn terminate() -> usize {
    let all = processes();
    let found = Vec::from_iter(of_daemons(&all, std::process::id().cast_signed()));
    // One that is gone needs to be told nothing.
    found.iter().filter(|pid| Pid::from_raw(**pid).is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())).count()
}

/// Children of mpirun's daemons that descend from `root`, and `shoal-ranks` itself; the program in
/// ssh's place is ours and no rank.
fn of_daemons(all: &BTreeMap<i32, Process>, root: i32) -> Vec<i32> {
    let own = all.get(&root).map(|(name, _)| name.as_str()).unwrap_or_default();
    let is_daemon = |pid: &i32| all.get(pid).is_some_and(|(name, _)| DAEMONS.contains(&name.as_str()));
    let descends = |pid: i32| {
        std::iter::successors(Some(pid), |pid| all.get(pid).map(|(_, parent)| *parent))
            .take(all.len())
            .any(|pid| pid == root)
    };
    let starts_ranks = |pid: &i32| *pid != root && all.get(pid).is_some_and(|(name, _)| name == crate::ranks::NAME);
    let is_rank = |pid: &i32, name: &str, parent: &i32| {
        is_daemon(parent) && !starts_ranks(parent) && !is_daemon(pid) && name != own
    };
    let ranks =
        all.iter().filter(|(pid, (name, parent))| (starts_ranks(pid) || is_rank(pid, name, parent)) && descends(**pid));
    ranks.map(|(pid, _)| *pid).collect()
}

/// All that can be seen from here.
fn processes() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| Some((pid, parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// `PID (NAME) STATE PARENT ..`; a name may have anything in it.
fn parse(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once(" (")?;
    Some((name.to_owned(), after.split(' ').nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_what_daemons_of_ours_have_started() {
        assert_eq!(parse("12 (a) b) c) S 3 4 5"), Some(("a) b) c".into(), 3)));
        assert!(processes().contains_key(&std::process::id().cast_signed()));
        let all = [
            (1, "shoal", 0),
            (2, "mpirun", 1),
            (3, "python3", 2),
            (4, "python3", 3),
            (5, "shoal", 2),
            (6, "sh", 1),
            (7, "prted", 6),
            (8, "prted", 7),
            (9, "sh", 8),
            (10, "shoal-rank", 8),
            (11, "python3", 10),
            // Without Open MPI.
            (12, "shoal-ranks", 1),
            (13, "python3", 12),
            // Somebody else's, where instances see each other.
            (20, "mpirun", 19),
            (21, "python3", 20),
        ];
        let all = all.into_iter().map(|(pid, name, parent)| (pid, (name.to_owned(), parent))).collect();
        assert_eq!(of_daemons(&all, 1), [3, 9, 11, 12]);
    }
}
