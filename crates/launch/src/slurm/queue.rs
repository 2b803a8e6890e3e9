//! All jobs at once, as `squeue` prints them.

use std::collections::BTreeMap;

use crate::Ending;

/// Fields of a line, in this order; the comment, which has the separator in it, is the last.
pub(super) const FORMAT: &str = "%i|%T|%r|%S|%N|%j|%u|%U|%k";

/// A job as Slurm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) state: State,
    /// Why it waits, or why it ended.
    pub(super) reason: String,
    /// When it began, or is expected to: `2026-11-27T08:00:00`, in Slurm's local time or with a
    /// `Z`.
    pub(super) start: Option<String>,
    /// Which nodes it has or had, as a list of Slurm's; empty: none.
    pub(super) nodes: String,
    pub(super) name: String,
    /// Whose it is, by name.
    pub(super) user: String,
    /// The same, by number, where that is known.
    pub(super) uid: Option<u32>,
    pub(super) comment: String,
}

/// What a state means to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for nodes.
    Waits,
    /// Has nodes, which are being started: power saving, nodes of a cloud.
    Boots,
    /// Has nodes.
    Runs,
    /// Has nodes, and its processes are stopped.
    Paused,
    /// Has ended, and something of it may still be on its nodes.
    Ends,
    /// Is over.
    Over(Ending),
}

/// Jobs by number.
pub(super) fn jobs(text: &str) -> BTreeMap<u64, Job> {
    text.lines().filter_map(job).collect()
}

fn job(line: &str) -> Option<(u64, Job)> {
    let mut fields = line.splitn(9, '|');
    let mut next = || fields.next().map(str::trim);
    let (id, state, reason, start) = (next()?.parse().ok()?, next()?, next()?, next()?);
    let (nodes, name, user, uid) = (next()?, next()?, next()?, next()?);
    let known = |text: &&str| !matches!(*text, "" | "(null)" | "N/A" | "None");
    Some((
        id,
        Job {
            state: state_of(state),
            reason: reason.to_owned(),
            start: Some(start).filter(known).map(str::to_owned),
            nodes: Some(nodes).filter(known).unwrap_or_default().to_owned(),
            name: name.to_owned(),
            user: user.to_owned(),
            uid: uid.parse().ok(),
            comment: next().filter(known).unwrap_or_default().to_owned(),
        },
    ))
}

/// What one of Slurm's words for a state means.
pub(super) fn state_of(word: &str) -> State {
    match word {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => State::Waits,
        "CONFIGURING" | "POWER_UP_NODE" => State::Boots,
        "SUSPENDED" | "STOPPED" => State::Paused,
        "COMPLETING" | "STAGE_OUT" | "SIGNALING" => State::Ends,
        "COMPLETED" | "FAILED" => State::Over(Ending::Itself),
        "NODE_FAIL" | "BOOT_FAIL" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => State::Over(Ending::NodeFailed),
        "PREEMPTED" | "REVOKED" => State::Over(Ending::Preempted),
        "TIMEOUT" | "DEADLINE" => State::Over(Ending::TimeLimit),
        "OUT_OF_MEMORY" => State::Over(Ending::OutOfMemory),
        "CANCELLED" => State::Over(Ending::Cancelled),
        // RUNNING, RESIZING
        _ => State::Runs,
    }
}

/// How a job ended, for people.
pub(super) fn how(id: u64, ending: Ending, last: &str) -> String {
    match ending {
        Ending::Itself | Ending::NeverStarted => last.to_owned(),
        Ending::NodeFailed => node_failure(id, &[], &[]),
        Ending::Preempted => format!(
            "Slurm took the nodes of job {id} for a job of a higher priority (PREEMPTED); with managed spot training and \
             checkpoints the training job is resumed"
        ),
        Ending::TimeLimit => format!("Slurm job {id} reached its time limit (TIMEOUT)"),
        Ending::OutOfMemory => format!(
            "Slurm ended job {id} for want of memory (OUT_OF_MEMORY): choose an instance type that has more of it"
        ),
        Ending::Cancelled => format!("Slurm job {id} was cancelled on the cluster (CANCELLED)"),
    }
}

/// Which node of a job failed, for people. `nodes`: what it had; `down`: those of them that are
/// down now.
pub(super) fn node_failure(id: u64, nodes: &[String], down: &[String]) -> String {
    match (nodes, down) {
        ([node], _) | (_, [node]) => format!("node {node} of Slurm job {id} failed (NODE_FAIL)"),
        ([], []) => format!("a node of Slurm job {id} failed (NODE_FAIL)"),
        (nodes, []) => format!("one of the nodes {} of Slurm job {id} failed (NODE_FAIL)", nodes.join(", ")),
        (_, down) => format!("nodes {} of Slurm job {id} failed (NODE_FAIL)", down.join(", ")),
    }
}

/// Why a job waits, for people: Slurm's word, and what it means where that helps.
pub(super) fn why(reason: &str) -> String {
    let meaning = match reason {
        "None" | "" => return "it was just submitted".to_owned(),
        "Priority" => "jobs of a higher priority are before it",
        "Resources" => "it is the next one, and waits for resources",
        "ReqNodeNotAvail" | "ReqNodeNotAvail, May be reserved for other job" => "nodes that it needs are not available",
        "PartitionDown" | "PartitionInactive" => "the partition is down",
        "PartitionNodeLimit" => "the partition has or allows fewer nodes",
        "PartitionTimeLimit" => "the partition allows a shorter time",
        "JobHeldUser" | "JobHeldAdmin" => "it is held; `scontrol release` lets it go on",
        "BeginTime" => "its earliest start has not come",
        "Licenses" => "it waits for a licence",
        limit if limit.starts_with("QOS") || limit.starts_with("Assoc") => {
            "a limit of the account or the QOS is reached"
        }
        _ => return reason.to_owned(),
    };
    format!("{reason} ({meaning})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_jobs() {
        let text = "12|RUNNING|None|2026-11-27T08:00:00|n[1-2]|shoal-a|anna|1001|arn:x|2:no | space\n\
                    13|PENDING|Resources|N/A||shoal-b|root|0|(null)\nnonsense\n\
                    14|NODE_FAIL|NodeDown|2026-11-27T08:00:00|n1|c|root|0|\n";
        let jobs = jobs(text);
        assert_eq!(jobs.keys().copied().collect::<Vec<_>>(), [12, 13, 14]);
        assert_eq!((jobs[&12].state, &*jobs[&12].comment), (State::Runs, "arn:x|2:no | space"));
        assert_eq!((&*jobs[&12].user, jobs[&12].uid), ("anna", Some(1001)));
        assert_eq!((&*jobs[&12].nodes, &*jobs[&13].nodes), ("n[1-2]", ""));
        assert_eq!((jobs[&13].state, &jobs[&13].start, &*jobs[&13].comment), (State::Waits, &None, ""));
        assert_eq!((jobs[&14].state, &*jobs[&14].name), (State::Over(Ending::NodeFailed), "c"));
    }

    #[test]
    fn ends_have_their_cause() {
        let of = |words: &[&str], ending| words.iter().all(|word| state_of(word) == State::Over(ending));
        assert!(of(&["TIMEOUT", "DEADLINE"], Ending::TimeLimit) && of(&["OUT_OF_MEMORY"], Ending::OutOfMemory));
        assert!(of(&["PREEMPTED"], Ending::Preempted) && of(&["CANCELLED"], Ending::Cancelled));
        assert!(of(&["NODE_FAIL", "BOOT_FAIL"], Ending::NodeFailed) && of(&["FAILED", "COMPLETED"], Ending::Itself));
        assert_eq!(["PENDING", "COMPLETING", "CONFIGURING"].map(state_of), [State::Waits, State::Ends, State::Boots]);
        assert_eq!(["RUNNING", "SUSPENDED", "STOPPED"].map(state_of), [State::Runs, State::Paused, State::Paused]);
        assert!(how(7, Ending::OutOfMemory, "").contains("choose an instance type that has more of it"));
    }

    #[test]
    fn a_node_that_failed_is_named() {
        let names = |names: &[&str]| Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
        let of = |nodes: &[&str], down: &[&str]| node_failure(7, &names(nodes), &names(down));
        assert_eq!(of(&["n1"], &[]), "node n1 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2"], &["n2"]), "node n2 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2", "n3"], &["n2", "n3"]), "nodes n2, n3 of Slurm job 7 failed (NODE_FAIL)");
        assert_eq!(of(&["n1", "n2"], &[]), "one of the nodes n1, n2 of Slurm job 7 failed (NODE_FAIL)");
    }

    #[test]
    fn reasons_are_explained_where_that_helps() {
        assert_eq!(why("Priority"), "Priority (jobs of a higher priority are before it)");
        assert_eq!(why("QOSMaxGRESPerUser"), "QOSMaxGRESPerUser (a limit of the account or the QOS is reached)");
        assert_eq!(why("BadConstraints"), "BadConstraints");
        assert_eq!(why("None"), "it was just submitted");
    }
}
